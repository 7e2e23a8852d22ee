"""What the protocol's calls mean here, over whichever transport they come.

An inference is a request like any other: it becomes the app's own :class:`Ask` and goes where ``/v1/predict`` goes,
with its deadline, its nets and its room; only the form is another.

Health says what it means in a platform that gives less instead of stopping:

- *live*: this gateway replica runs.
- *ready*: it can answer. It always can while its background duties run, for the last rung of its fallback was proven
  before it started. A probe that takes gateways out of rotation asks this; were it false while the model is away, a
  degraded model would become an outage.
- *model ready*: a release's own model answers callers of this replica now. Held back, ill or not yet found it is not
  ready, though whoever asks is answered all the same, and told by whom. With a version: that release's model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from failsoft.errors import ArtifactMissingError, BadRequestError
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.task import Task
from failsoft.serving.web.answer_headers import said_in_headers
from failsoft.serving.web.as_json import read_as_json
from failsoft.serving.web.headers import as_id
from failsoft.serving.web.messages import Answer, Ask
from failsoft.serving.web.protocol.columns import input_form
from failsoft.serving.web.protocol.http_bodies import in_one_line
from failsoft.serving.web.protocol.outputs import output_form
from failsoft.serving.web.protocol.tensors import InferRequest, InferResponse, Parameters

EXTENSIONS = ("binary_tensor_data",)
PLATFORM = "failsoft"


@dataclass(frozen=True, kw_only=True)
class Caller:
    """What is said of a request beside its tensors, as ``/v1/predict`` takes it in headers."""

    timeout_ms: float | None = None
    caller: str | None = None
    session: str | None = None
    request_id: str | None = None
    """Holds where the request itself has no id; what can't be one is passed over, since a proxy may have added it."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How the gateway replica stands at one moment."""

    plan: RoutingPlan
    """In force here."""
    starting: frozenset[Colour]
    """Models that were not found yet."""
    is_whole: bool
    """Whether all background duties run."""


class Inference:
    """One gateway replica, as the protocol knows it.

    Args:
        model: name of the model; there is one.
        task: what it is asked.
        answer: answers a request, as it does for ``/v1/predict``.
        standing: how the replica stands now.
    """

    def __init__(
        self, *, model: str, task: Task, answer: Callable[[Ask], Awaitable[BaseModel]], standing: Callable[[], Standing]
    ) -> None:
        self._model = model
        self._inputs, self._outputs = input_form(task.inputs), output_form(task)
        form: Any = task.inputs.request()
        self._ask: TypeAdapter[Ask] = TypeAdapter(Annotated[form, read_as_json(form)])
        self._answer = answer
        self._standing = standing

    def is_ready(self) -> bool:
        """Whether this replica can answer."""
        return self._standing().is_whole

    def why_not_ready(self, model: str, release: str = "") -> str | None:
        """Why no model answers callers now; None when one does.

        Raises:
            ArtifactMissingError: there is no such model or version.
        """
        self.check(model, release)
        now = self._standing()
        plan, starting = now.plan, now.starting
        colours = [colour for colour in Colour if plan.releases.get(colour) and release in ("", plan.releases[colour])]
        if any(plan.lets_answer(colour) and colour not in starting for colour in colours):
            return None
        if any(plan.lets_answer(colour) for colour in colours):
            return "the model was not found yet; the fallback answers"
        return f"{plan.stage}: {plan.why}" if plan.why else str(plan.stage)

    def check(self, model: str, release: str = "") -> None:
        """Whether this is the model, and a version of it that stands behind this gateway.

        Raises:
            ArtifactMissingError: it is not; says what is there.
        """
        if model != self._model:
            raise ArtifactMissingError(f"no model {model[:80]!r} is served here; there is {self._model!r}")
        if release and release not in self._versions():
            there = ", ".join(self._versions())
            raise ArtifactMissingError(f"version {release[:80]!r} of {model!r} is not loaded; there: {there}")

    def server_card(self) -> dict[str, Any]:
        """Metadata of the server."""
        return {"name": PLATFORM, "version": version("failsoft"), "extensions": list(EXTENSIONS)}

    def model_card(self, model: str, release: str = "") -> dict[str, Any]:
        """Metadata of the model.

        Raises:
            ArtifactMissingError: there is no such model or version.
        """
        self.check(model, release)
        return {
            "name": model,
            "versions": [release] if release else self._versions(),
            "platform": PLATFORM,
            "inputs": [column.card() for column in self._inputs.columns],
            "outputs": self._outputs.cards(),
        }

    async def infer(self, model: str, release: str, request: InferRequest, caller: Caller) -> InferResponse:
        """Answer each item. A version says which releases may be meant; which one answers, the routing plan says.

        Raises:
            ArtifactMissingError: there is no such model or version.
            BadRequestError: the tensors are no items of this app, or too many.
            SaturatedError: there is no room for all of them.
        """
        self.check(model, release)
        self._outputs.check(request.wanted)
        ask = self._asked(request).within(caller.timeout_ms).asked_by(caller.caller).keyed_by(caller.session)
        ask = ask.identified(as_id(caller.request_id))
        found = await self._answer(ask)
        answers: Sequence[Answer] = [found] if isinstance(found, Answer) else found.answers  # type: ignore[attr-defined]
        releases = {answer.release for answer in answers}
        return InferResponse(
            model=model,
            version=(releases.pop() or "") if len(releases) == 1 else "",
            request_id=answers[0].request_id,
            outputs=self._outputs.tensors(answers, request.wanted),
            parameters=_told(answers),
            headers=said_in_headers(answers),
        )

    def _asked(self, request: InferRequest) -> Ask:
        items = self._inputs.items(request.inputs)
        field = {self._inputs.field: items} if len(items) > 1 else {self._inputs.field.removesuffix("s"): items[0]}
        said = field | _said_by(request.parameters) | ({"request_id": request.request_id} if request.request_id else {})
        try:
            return self._ask.validate_python(said)
        except ValidationError as error:
            raise BadRequestError(in_one_line(error)) from None

    def _versions(self) -> list[str]:
        return sorted({release for release in self._standing().plan.releases.values() if release})


def _said_by(parameters: Parameters) -> dict[str, Any]:
    """What the protocol's parameters say of who asks and how long it waits.

    ``timeout`` is Triton's, in µs; ``timeout_ms``, ``caller`` and ``session`` are as in the headers; a ``sequence_id``
    is a session, too, and 0 is none.
    """
    waits = [parameters["timeout_ms"]] if "timeout_ms" in parameters else []
    if "timeout" in parameters:
        waits.append(_number("timeout", parameters["timeout"]) / 1000)
    session = parameters.get("session") or parameters.get("sequence_id") or None
    said = {
        "timeout_ms": min(_number("timeout_ms", wait) for wait in waits) if waits else None,
        "caller": parameters.get("caller"),
        "key": session if session is None else str(session),
    }
    return {name: value for name, value in said.items() if value is not None}


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise BadRequestError(f"parameter {name} is {str(value)[:40]!r}; it is a time above 0")
    return float(value)


def _told(answers: Sequence[Answer]) -> Mapping[str, bool | int | float | str]:
    """What holds of the answer as a whole; of each item its outputs tell."""
    first = answers[0]
    sources = ", ".join(dict.fromkeys(str(answer.source) for answer in answers))
    reasons = "; ".join(dict.fromkeys(answer.degrade_reason for answer in answers if answer.degrade_reason))
    told: dict[str, bool | int | float | str] = {"source": sources, "stage": str(first.stage), "epoch": first.epoch}
    told |= {"degrade_reason": reasons[:500]} if reasons else {}
    return told | {"latency_ms": max(answer.latency_ms for answer in answers)}
