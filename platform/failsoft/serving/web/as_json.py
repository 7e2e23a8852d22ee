"""The long way reads a request as the short one does: as JSON, not as Python's own values.

FastAPI makes Python's values of a body before pydantic sees it. In a strict schema of somebody's own instances a list
is no tuple then, nor a text a date: a request that the short way answers was refused because of one more header.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

_LISTED = 20
"""What does not fit is listed up to so many: 1 MB of nothing else took a gateway 4 s and made an answer of 30 MB."""


def read_as_json(form: type[BaseModel]) -> WrapValidator:
    """To annotate a body of ``form`` with: what does not fit as Python's values is read once more as JSON."""

    def read(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as misfit:
            found = _from_json(form, value)
            if found is None or isinstance(found, ValidationError):
                raise _in_short(found or misfit) from None
            return found

    return WrapValidator(read)


def _from_json(form: type[BaseModel], value: Any) -> BaseModel | ValidationError | None:
    """The request, or what of it does not fit; None when pydantic reads no such JSON: half characters, deep nesting."""
    try:
        return form.model_validate_json(json.dumps(value))
    except ValidationError as error:
        no_json = error.error_count() == 1 and error.errors(include_input=False)[0]["type"] == "json_invalid"
        return None if no_json else error
    except (TypeError, ValueError, RecursionError):  # no JSON at all, as a body of another content type
        return None


def _in_short(misfits: ValidationError) -> Exception:
    """The same, unless there are so many that listing them would hold up all other callers."""
    count = misfits.error_count()
    if count <= _LISTED:
        return misfits
    words = "{count} parts of it do not fit; send one item alone to be told what is wrong with it"
    return PydanticCustomError("too_many_misfits", words, {"count": count})
