"""One replica in a process of its own: loads a release and answers texts by serving's own path, without a cluster.

``python -m serve_apps.probe FOLDER TEXTS.json REPORT.json``: what the gates start to see that a release loads and
answers where it will have to, and to compare what reaches the network there with what training gave it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from failsoft.artifacts.bundle import Bundle
from failsoft.errors import FailsoftError
from failsoft.health.clock import Clock, SystemClock
from failsoft.models.network import IntentNer
from failsoft.release.candidate import open_release
from failsoft.release.replica import OnlineAnswer, ReplicaReport
from failsoft.serving.arms.mirror import NotMirrored
from failsoft.serving.arms.readings import NoReading, Reading
from failsoft.serving.arms.replies import ModelReply, read_reply
from failsoft.serving.config import GatewayConfig
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.replicas.golden import check_golden
from failsoft.serving.request import Answerer, Mirrored
from failsoft.serving.seam import Measures, Predictor, Quality
from failsoft.serving.task import AppSpec
from failsoft.serving.visit import Situation
from failsoft.serving.watching.outcomes import Seen
from failsoft.serving.web.messages import Answer, Source
from serve_apps.intent_ner import SPEC

_LIFE_S = 900.0
"""Longer than anybody waits for a replica."""
_PATIENT = GatewayConfig(deadline_ms=20_000.0, max_deadline_ms=20_000.0)
"""A busy machine must not turn an answer into a fallback; how long it took is judged by whoever asked."""


class Eye:
    """What last reached the network of one text, and what left it; a forward hook on every network of this process."""

    def __init__(self) -> None:
        self.ids: tuple[int, ...] | None = None
        self.logits: tuple[float, ...] | None = None

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...], scores: Any) -> None:
        """See one forward pass."""
        if isinstance(module, IntentNer):
            batch = arguments[0]
            self.ids = tuple(batch["word_ids"][0][batch["mask"][0]].tolist())
            self.logits = tuple(scores.intent_logits_BC[0].tolist())

    def close(self) -> None:
        """Forget, before the next text."""
        self.ids = self.logits = None


class ArmHere:
    """The model in this process, asked as a gateway asks a replica of it, less the hop."""

    def __init__(self, model: Predictor, quality: Quality, *, release: str, measures: Measures) -> None:
        self._model, self._quality, self._release, self._measures = model, quality, release, measures

    async def ask(self, text: Any, *, within_s: float = math.inf) -> Reading | NoReading:
        """Answer one clean text; raises whatever the model raises, since a release that does that must not pass."""
        del within_s
        scores = self._model.predict([text])
        reply = ModelReply(scores=scores, measures=self._measures, release=self._release, load_generation=0)
        return read_reply(reply, self._quality, texts=1)[0]


class Nobody:
    """A journal that nobody reads."""

    def note(self, seen: Seen) -> None:
        """Pass over a call's outcome."""

    def stale(self, colour: Colour) -> None:
        """Pass over stale news."""

    def answered(self, answer: Answer, row: int, why: str, asked: Any, *, caller: int | None = None) -> None:
        """Pass over an answer."""

    def holds_back(self, caller: int | None) -> str | None:
        """Hold nobody back."""
        del caller
        return None

    def mirror(self, copy: Mirrored) -> None:
        """Mirror nothing."""

    def not_mirrored(self, reason: NotMirrored) -> None:
        """Pass over why."""


def answerer_of(bundle: Bundle, clock: Clock, spec: AppSpec = SPEC) -> Answerer:
    """A gateway's answering half with this release in service and its model in this process.

    Args:
        bundle: the release.
        clock: measures.
        spec: the app that serves it; the example's.

    Raises:
        FailsoftError: a part is absent or does not load, or the golden inputs are answered otherwise.
    """
    task, measures = spec.task(), bundle.measures()
    model = spec.loader()(bundle)
    check_golden(model, bundle, task.kind, measures)
    policy = task.inputs.policy_of(bundle)
    plan = RoutingPlan(
        epoch=1,
        stage=Stage.SERVING,
        subject=Colour.BLUE,
        stand_in=None,
        releases={Colour.BLUE: bundle.name},
        load_generation={Colour.BLUE: 0},
        share=1.0,
        mirror_share=0.0,
    )
    now = Situation(plan=plan, text_policy=policy, subject_policy=policy, ladder=task.ladder_of(bundle))
    arm = ArmHere(model, task.kind, release=bundle.name, measures=measures)
    return Answerer(
        situation=lambda: now, models={Colour.BLUE: arm}, journal=Nobody(), clock=clock, config=_PATIENT, task=task
    )


async def answer_all(answerer: Answerer, eye: Eye, texts: Sequence[str], clock: Clock) -> list[OnlineAnswer]:
    """One text after the other, as a caller would send them."""
    answers = []
    for number, text in enumerate(texts):
        eye.close()
        began_s = clock.monotonic_s()
        said = await answerer.answer(text, key=str(number), request_id=str(number))
        latency_ms = (clock.monotonic_s() - began_s) * 1000
        body = said.model_dump(mode="json")
        source = "model" if body["source"] == Source.PRIMARY else str(body["source"])
        answers.append(
            OnlineAnswer(
                ids=eye.ids, logits=eye.logits, intent=str(body["intent"]), source=source, latency_ms=latency_ms
            )
        )
    return answers


def probe(folder: Path, texts: Sequence[str], clock: Clock) -> ReplicaReport:
    """Load and answer.

    Raises:
        FailsoftError: the release can't be loaded as serving loads it.
    """
    torch.set_num_threads(1)
    began_s = clock.monotonic_s()
    answerer = answerer_of(open_release(folder), clock)
    load_s = clock.monotonic_s() - began_s
    eye = Eye()
    handle = nn.modules.module.register_module_forward_hook(eye)
    try:
        answers = asyncio.run(answer_all(answerer, eye, texts, clock))
    finally:
        handle.remove()
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return ReplicaReport(answers=tuple(answers), load_s=load_s, rss_mb=rss_mb, pid=os.getpid())


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 when the report is written, 1 with one line on stderr when the release can't be served."""
    folder, texts, report = (Path(argument) for argument in arguments)
    try:
        found = probe(folder, json.loads(texts.read_text("utf-8")), SystemClock())
    except (FailsoftError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    report.write_text(found.to_json(), "utf-8")
    return 0


def end_after(limit_s: float) -> None:
    """Let the kernel end this process by then, whatever it does: who started it may be gone."""
    signal.setitimer(signal.ITIMER_REAL, limit_s)


if __name__ == "__main__":
    end_after(_LIFE_S)
    sys.exit(main(sys.argv[1:]))
