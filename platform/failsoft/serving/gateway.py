"""The gateway: the app's HTTP ingress on Ray Serve. Here the pure parts of one replica meet Ray; nothing is decided.

Never imports torch: this process must start and answer when no model can.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from ray.serve.handle import DeploymentHandle

from failsoft.artifacts.home import Home
from failsoft.artifacts.tokens import Digests
from failsoft.errors import FailsoftError, ServingError
from failsoft.health.clock import SystemClock
from failsoft.health.exporter import Exporter
from failsoft.health.ledger import Side
from failsoft.health.metrics import RaySink
from failsoft.serving.arms.handle_arm import HandleArm
from failsoft.serving.arms.mirror import MirrorQueue
from failsoft.serving.config import AppConfig
from failsoft.serving.kit import KitShelf, open_shelf
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.request import Answerer, Mirrored
from failsoft.serving.rollout.controller import (
    ControllerClient,
    ControllerConfig,
    controller_of,
    follow_plans,
    start_controller,
)
from failsoft.serving.rollout.evidence import OutcomeBatch
from failsoft.serving.rollout.stages import stage_policy
from failsoft.serving.rollout.steering import Steering
from failsoft.serving.several import answer_all
from failsoft.serving.tracing.spans import kept_trace_id
from failsoft.serving.tracing.wiring import Untraced, traces_if_any
from failsoft.serving.watching.answer_history import FILE_NAME, AnswerHistory
from failsoft.serving.watching.answer_memory import AnswerMemory
from failsoft.serving.watching.diary import diary
from failsoft.serving.watching.front import FrontDesk
from failsoft.serving.watching.gateway_metrics import GatewayMetrics
from failsoft.serving.watching.housekeeping import Housekeeping
from failsoft.serving.watching.label_exchange import LabelExchange
from failsoft.serving.watching.late_labels import LateLabels
from failsoft.serving.watching.outcomes import OutcomeBuffer
from failsoft.serving.watching.reporting import Reporter
from failsoft.serving.watching.specimens import Specimens
from failsoft.serving.watching.watch import Watch
from failsoft.serving.web.auth import Guard, Guards, bearer_guard, label_guard, viewer_guard
from failsoft.serving.web.label_routes import add_labels
from failsoft.serving.web.messages import Ask
from failsoft.serving.web.mounting import Mounted, mount_all
from failsoft.serving.web.protocol.grpc_calls import GrpcMethods
from failsoft.serving.web.protocol.inference import Standing
from failsoft.serving.web.protocol.opening import open_protocol
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of

_log = logging.getLogger(__name__)
OPERATOR = "operator"
_RELEASE_RETRY_S = 2.0
_WARM_UP_S = 30.0


class Gateway(GrpcMethods):
    """One gateway replica.

    Args:
        config: the app's settings.
        blue: handle of the blue model.
        green: handle of the green model; None with one slot.
        fallback: handle of the stand-alone fallback; held so that it is part of the app, never called from here.
    """

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self,
        config: AppConfig,
        blue: DeploymentHandle[Any],
        green: DeploymentHandle[Any] | None,
        fallback: DeploymentHandle[Any],
    ) -> None:
        self._name, self._config = f"gateway-{uuid.uuid4().hex[:8]}", config
        self._fallback = fallback
        self._clock, self._home = SystemClock(), Home.find(config.home)
        self._diary = diary(self._home.ledger, self._clock, subject=self._name)
        controller = controller_of(config)
        self._controller, self._follower = ControllerClient(controller), follow_plans(controller, name=self._name)
        await self._follower.start()
        self._buffer = OutcomeBuffer(self._name)
        every_s = config.gateway.report_every_s
        self._reporter = Reporter(self._buffer, self._send, clock=self._clock, every_s=every_s)
        self._buffer.on_record = self._reporter.noticed
        self._mirror: MirrorQueue[Mirrored] = MirrorQueue(config.gateway.mirror_queue)
        self._watch, self._shelf = self._make_watch(), await self._open_shelf()
        self._labels, self._history = self._make_labels(), self._make_history()
        self._exchange = LabelExchange(self._labels, self._controller)
        self._desk = self._make_desk()
        self._desk.metrics.book.whose["app"] = controller.app
        self._follower.on_change(self._desk.follow)
        self._exporter = self._make_exporter(self._desk.metrics)
        self._traces = self._make_traces(controller.app)
        handles = {Colour.BLUE: blue, Colour.GREEN: green}
        self._arms = arms = {colour: self._make_arm(handle) for colour, handle in handles.items() if handle is not None}
        self._answerer = self._make_answerer()
        self._report_refusals()
        tasks = (asyncio.create_task(duty, name=name) for name, duty in self._duties().items())
        self._tasks = [*self._follower.tasks, *tasks]
        self._errands = [
            *(asyncio.create_task(arm.warm_up(within_s=_WARM_UP_S)) for arm in arms.values()),
            asyncio.create_task(self._meet_controller(controller)),
        ]

    def _make_desk(self) -> FrontDesk:
        desk = FrontDesk(
            plan=lambda: self._follower.plan,
            shelf=self._shelf,
            watch=self._watch,
            buffer=self._buffer,
            mirror=self._mirror,
            labels=self._labels,
        )
        desk.on_answer = self._history.answered
        return desk

    def _make_arm(self, handle: DeploymentHandle[Any]) -> HandleArm:
        task, most = self._config.task, self._config.gateway.max_model_queue
        return self._traces.arm(handle, task.kind, max_held=most, weigh=task.inputs.weight)

    def _make_traces(self, app: str) -> Untraced:
        refused: Callable[[str], object] = lambda why: self._diary.record("traces_off", why)  # noqa: E731
        config = self._config.gateway.traces
        return traces_if_any(config, gateway=self._name, app=app, clock=self._clock, refused=refused)

    def _make_exporter(self, metrics: GatewayMetrics) -> Exporter:
        look: Callable[[], None] = lambda: metrics.look(self.status())  # noqa: E731 -- asked when all of it stands
        return Exporter(metrics.book, RaySink, look, side=Side.SERVING, clock=self._clock)

    def _make_watch(self) -> Watch:
        policy = stage_policy(self._config.profile)
        return Watch(policy.health, self._tripped, policy.signals)

    def _make_labels(self) -> LateLabels:
        limits = self._config.gateway
        return LateLabels(
            AnswerMemory(self._clock, max_answers=limits.remembered_answers, max_age_s=limits.remembered_s),
            plan=lambda: self._follower.plan,
            watch=self._watch,
            buffer=self._buffer,
            quality=self._config.task.kind,
            known=lambda: self._shelf.known_labels,
        )

    def _make_history(self) -> AnswerHistory:
        specimens = Specimens(self._config.gateway.specimens, random.Random(self._name))
        return AnswerHistory(self._name, lambda: self._follower.plan, self._clock, specimens)

    def _make_answerer(self) -> Answerer:
        return self._traces.answerer(
            situation=self._desk.situation,
            models=self._arms,
            journal=self._desk,
            clock=self._clock,
            config=self._config.gateway,
            task=self._config.task,
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Serve asks for the HTTP app once this replica is made."""
        operator, limits = self._home.operator_tokens().digests, self._config.gateway
        guards = Guards(operator=bearer_guard(operator), reader=self._reader(operator))
        app = build_routes(
            self,
            guards,
            max_body_bytes=limits.max_body_bytes,
            max_requests=limits.max_requests,
            wire=wire_of(self._config.task),
            steers=Steering(self._controller, self._follower.offer),
        )
        add_labels(app, self._exchange.take, label_guard(self._home.label_tokens().digests, operator))
        self.grpc_calls = open_protocol(app, limits, self._config.task, self._standing)
        mounted = Mounted(home=self._home, status=self.status, rollout=self._controller.status, guards=guards)
        mount_all(app, self._config.mounts, mounted)
        self._traces.put_around(app)
        return app

    def _reader(self, operator: Digests) -> Guard | None:
        return viewer_guard(self._home.viewer_tokens().digests, operator) if self._config.reader_token else None

    async def check_health(self) -> None:
        """Called by Serve.

        Raises:
            ServingError: a background duty of this replica has ended; a new replica takes over.
        """
        for task in self._tasks:
            if task.done():
                raise ServingError(f"{self._name}: {task.get_name()} has ended: {task.exception()!r}")

    def _standing(self) -> Standing:
        starting = frozenset(colour for colour, arm in self._arms.items() if arm.starting)
        whole = not any(task.done() for task in self._tasks)
        return Standing(plan=self._follower.plan, starting=starting, is_whole=whole)

    async def predict(self, request: Ask) -> BaseModel:
        """Answer one item, or several item by item."""
        request_id = request.request_id or uuid.uuid4().hex
        answers = await answer_all(self._answerer, request, request_id=request_id, clock=self._clock)
        return self._config.task.answers.several()(answers=answers) if request.is_several else answers[0]

    def status(self) -> dict[str, Any]:
        """What this replica knows, as :class:`failsoft.serving.web.status_bodies.StatusBody` describes it."""
        process = {
            "gateway": self._name,
            "pid": os.getpid(),
            "torch_loaded": "torch" in sys.modules,
            "starting": sorted(colour for colour, arm in self._arms.items() if arm.starting),
            "controller_silent_s": self._follower.silent_s,
            "tripped_locally": self._follower.tripped_locally,
            "texts_at_models": {colour: arm.held for colour, arm in self._arms.items()},
            "stand_ins_resting": self._answerer.resting(),
            "shared_window_lag": self._reporter.status(),
            "traces": self._traces.status(),
            "events_not_recorded": self._diary.unrecorded,
        }
        return process | self._desk.status()

    async def degrade(self, *, for_s: float | None, why: str, by: str = OPERATOR) -> dict[str, Any]:
        """Force the fallback everywhere; durable when this returns."""
        return await self._order(self._controller.force(for_s, why, by))

    async def restore(self, *, why: str, by: str = OPERATOR) -> dict[str, Any]:
        """End the force; the model comes back through the stages."""
        return await self._order(self._controller.restore(why, by))

    async def propose(self, release: str, *, again: bool = False) -> dict[str, Any]:
        """Let a release begin its way through the stages."""
        return await self._order(self._controller.propose(release, OPERATOR, again=again))

    async def _order(self, order: Awaitable[RoutingPlan]) -> dict[str, Any]:
        plan = await order
        self._follower.offer(plan)
        return plan.as_json()

    def _tripped(self, epoch: int, why: str) -> None:
        """The watch's verdict takes effect here at once; the follower tells the controller."""
        self._follower.trip_locally(why)
        trace_id = kept_trace_id(surely=True)
        self._diary.record("gateway_tripped", why, epoch=epoch, **({"trace_id": trace_id} if trace_id else {}))

    async def _open_shelf(self) -> KitShelf:
        return await asyncio.to_thread(
            open_shelf, self._home.releases(self._clock), self._follower.plan.subject_release, self._config.task
        )

    def _duties(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {
            "outcome reports": self._reporter.run(),
            "metrics": self._exporter.run(),
            "answer history": self._history.keep(self._home.serving / FILE_NAME),
            "release changes": self._keep_release(),
            "housekeeping": Housekeeping(self._home, self._clock).run(),
            "mirrored calls": self._mirror.run(self._answerer.answer_mirrored),
            "labels handed on": self._exchange.send(),
            "labels from others": self._exchange.listen(),
        }

    async def _meet_controller(self, controller: ControllerConfig) -> None:
        """Have it judge by this app's profile. This replica serves without it, so its absence is only written down."""
        try:
            await asyncio.to_thread(start_controller, controller)
        except FailsoftError as error:
            self._diary.record("controller_absent", str(error))

    async def _send(self, batches: tuple[OutcomeBatch, ...]) -> None:
        self._follower.offer(await self._controller.report(batches))

    async def _keep_release(self) -> None:
        """Take over the ladder and the baseline of another subject; try a refused one again."""
        while True:
            plan = self._follower.plan
            await self._desk.follow_release()
            self._report_refusals()
            await self._follower.changed(timeout_s=_RELEASE_RETRY_S, known_epoch=plan.epoch)

    def _report_refusals(self) -> None:
        """An unarmed watch or a fallback that did not load is said aloud, not only shown to those who ask."""
        for kind, refusal in self._desk.new_refusals():
            _log.warning("%s: %s", self._name, refusal)
            self._diary.record(kind, refusal)
