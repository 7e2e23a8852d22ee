"""The long way reads a request as the short one does: as JSON, not as Python's own values.

FastAPI makes Python's values of a body before pydantic sees it. In a strict schema of somebody's own instances a list
is no tuple then, nor a text a date: a request that the short way answers was refused because of one more header.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError, ValidatorFunctionWrapHandler, WrapValidator


def read_as_json(form: type[BaseModel]) -> WrapValidator:
    """To annotate a body of ``form`` with: what does not fit as Python's values is read once more as JSON."""

    def read(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as misfit:
            found = _from_json(form, value)
            if isinstance(found, ValidationError) or found is None:
                raise (found or misfit) from None
            return found

    return WrapValidator(read)


def _from_json(form: type[BaseModel], value: Any) -> BaseModel | ValidationError | None:
    """The request, or what of it does not fit; None when pydantic reads no such JSON: half characters, deep nesting."""
    try:
        return form.model_validate_json(json.dumps(value))
    except ValidationError as error:
        return None if error.errors(include_input=False)[0]["type"] == "json_invalid" else error
    except (TypeError, ValueError, RecursionError):  # no JSON at all, as a body of another content type
        return None
