"""What callers send: texts, which go through the sanitizer, or instances of any JSON kind, which are validated."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, Self

from pydantic import BaseModel, Field, create_model, model_validator

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.errors import ConfigError
from failsoft.serving.fallback.ladder import PROBES
from failsoft.serving.intake.sanitizer import Cleaned, Cleanliness, TextPolicy, sanitize
from failsoft.serving.web.forms import ByIdentity
from failsoft.serving.web.messages import MAX_TEXTS, Ask, PredictRequest
from failsoft.serving.web.problems import whole

Unreadable = Callable[[Any], str | None]
"""Why no model could make sense of an instance; None when one can."""


class Inputs(Protocol):
    """The net before the model, for one kind of input. Picklable."""

    @property
    def probes(self) -> Sequence[Any]:
        """What the last rung must answer before it may serve."""
        ...

    def request(self) -> type[Ask]:
        """The body that callers send."""
        ...

    def policy_of(self, bundle: Bundle) -> TextPolicy | None:
        """How the texts of a release are cleaned; None where items are no texts."""
        ...

    def clean(self, item: Any, policy: TextPolicy | None) -> Cleaned:
        """The item as the model and the rungs get it, and whether it is hopeless. Never raises."""
        ...

    def weight(self, item: Any) -> int:
        """How much work an item is, in characters or the like; items of one call share a cap of it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Callers send ``text`` or ``texts``; each goes through the sanitizer."""

    policy: TextPolicy | None = None
    """Cleaning for every release; None: each release's own ``text_policy.json``, the default where it has none."""
    probes: tuple[str, ...] = PROBES

    def request(self) -> type[Ask]:
        """See :class:`Inputs`."""
        return PredictRequest

    def policy_of(self, bundle: Bundle) -> TextPolicy:
        """See :class:`Inputs`."""
        return self.policy or _policy_in(bundle)

    def clean(self, item: Any, policy: TextPolicy | None) -> Cleaned:
        """See :class:`Inputs`."""
        return sanitize(item, policy or TextPolicy())

    def weight(self, item: Any) -> int:
        """Its characters."""
        return len(item)


def _policy_in(bundle: Bundle) -> TextPolicy:
    if not bundle.has(Role.TEXT_POLICY):
        return TextPolicy()
    return TextPolicy.from_json(bundle.part(Role.TEXT_POLICY).read_bytes())


def no_number_is_missing(instance: Any) -> str | None:
    """Why an instance is unreadable when a number in it is NaN or infinite; JSON as Python reads it may hold them."""
    if isinstance(instance, float):
        return None if math.isfinite(instance) else f"the instance holds {instance}"
    parts = instance.values() if isinstance(instance, Mapping) else instance
    if not isinstance(instance, Mapping | list | tuple):
        return None
    return next((why for part in parts if (why := no_number_is_missing(part)) is not None), None)


@dataclass(frozen=True, kw_only=True)
class Instances:
    """Callers send ``instance`` or ``instances`` of any JSON kind: feature vectors, dicts, nested ones."""

    schema: Any = Any
    """What an instance is: a pydantic model, ``list[float]``, ``Annotated[…]``; what does not fit is refused with 422.
    A pydantic model arrives at the predictor and the rungs as a dict."""
    examples: Sequence[Any] = field(default_factory=tuple)
    """For the API's description; they are probes of the last rung, too."""
    unreadable: Unreadable = no_number_is_missing
    """Says why an instance that fits the schema is hopeless all the same: the fallback answers it, and it is not held
    against the model."""
    text_fields: tuple[str, ...] = ()
    """Fields of an instance that are texts and go through the sanitizer; one that is hopeless makes the instance so."""
    max_items: int = MAX_TEXTS
    """Instances in one request."""
    odd: Sequence[Any] = (None, "", 0, [], {})
    """More probes of the last rung."""

    def __post_init__(self) -> None:
        """Refuse what no request could fit."""
        if self.max_items < 1:
            raise ConfigError(f"max_items is {self.max_items}; a request holds at least 1 instance")

    @property
    def probes(self) -> Sequence[Any]:
        """The odd ones, and the examples."""
        return (*self.odd, *self.examples)

    def request(self) -> type[Ask]:
        """See :class:`Inputs`."""
        return _request_of(ByIdentity(self.schema), self.max_items)

    def policy_of(self, bundle: Bundle) -> TextPolicy | None:
        """None without text fields."""
        return _policy_in(bundle) if self.text_fields else None

    def clean(self, item: Any, policy: TextPolicy | None) -> Cleaned:
        """As it came, its text fields cleaned.

        One that can't be judged is hopeless: better a fallback than a model asked nonsense.
        """
        try:
            why = self.unreadable(item)
        except Exception:  # noqa: BLE001 -- anybody's check; its caller gets an answer whatever it does
            why = "the check of the instance failed"
        verdict = Cleanliness.CLEAN if why is None else Cleanliness.HOPELESS
        cleaned = Cleaned(text=item, verdict=verdict, why=whole(str(why or "")))
        return self._with_clean_texts(cleaned, policy) if self.text_fields else cleaned

    def _with_clean_texts(self, cleaned: Cleaned, policy: TextPolicy | None) -> Cleaned:
        item: Any = cleaned.text
        if not isinstance(item, Mapping):
            return cleaned
        named = {name: item[name] for name in self.text_fields if isinstance(item.get(name), str)}
        found = {name: sanitize(text, policy or TextPolicy()) for name, text in named.items()}
        repairs: Counter[str] = Counter()
        for one in found.values():
            repairs.update(one.repairs)
        texts: Any = {**item, **{name: one.text for name, one in found.items()}}
        verdicts = {cleaned.verdict, *(one.verdict for one in found.values())}
        whys = [cleaned.why, *(f"{name}: {one.why}" for name, one in found.items() if one.why)]
        return Cleaned(text=texts, verdict=_worst(verdicts), repairs=repairs, why="; ".join(filter(None, whys)))

    def weight(self, _item: Any) -> int:
        """All weigh the same."""
        return 1


def _worst(verdicts: set[Cleanliness]) -> Cleanliness:
    order = (Cleanliness.HOPELESS, Cleanliness.REPAIRED, Cleanliness.CLEAN)
    return next(verdict for verdict in order if verdict in verdicts)


class InstanceAsk(Ask):
    """One instance, or several that are answered item by item."""

    instance: Any = None
    instances: list[Any] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if ("instance" in self.model_fields_set) == (self.instances is not None):
            raise ValueError("give either instance or instances, not both and not none")
        return self

    @property
    def items(self) -> list[Any]:
        """The instances to answer, one or several; pydantic models as dicts."""
        given = [self.instance] if self.instances is None else self.instances
        return [item.model_dump() if isinstance(item, BaseModel) else item for item in given]

    @property
    def is_several(self) -> bool:
        """Whether ``instances`` was given."""
        return self.instances is not None


@lru_cache
def _request_of(schema: ByIdentity, max_items: int) -> type[Ask]:
    one: dict[str, Any] = {
        "instance": (schema.kind, Field(default=None)),  # null only where the schema has it: a default is not looked at
        "instances": (list[schema.kind] | None, Field(default=None, min_length=1, max_length=max_items)),  # type: ignore[name-defined]
    }
    return create_model("InstanceRequest", __base__=InstanceAsk, __doc__=InstanceAsk.__doc__, **one)
