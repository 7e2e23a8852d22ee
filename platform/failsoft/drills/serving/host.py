"""Starts the drilled app on a private Ray, in a process of its own, and stops all of it when its standard input ends.

``python -m failsoft.drills.serving.host JSON`` prints one JSON line: where the app answers and of what it is made, or
why it does not. The drill that started it finds the app's processes below this one.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from failsoft.drills.serving.signs import FOLDER_VARIABLE
from failsoft.errors import ConfigError, FailsoftError
from failsoft.local_ray import settle_environment

APP_NAME = "drilled"
_HOOK = "failsoft.drills.serving.hook.install"
_STORE_BYTES = 128 * 1024 * 1024
_FOR_OURS = {"profile": "drill", "allow_planned_faults": True}
"""Seconds instead of minutes, and leave to be broken: of a builder that takes failsoft's settings."""


@contextmanager
def private_ray(asked: Mapping[str, Any]) -> Iterator[None]:
    """A Ray on loopback with files in the drill's own folder; each worker of it runs the drill's hook first."""
    settle_environment()
    import ray  # noqa: PLC0415 -- must come after its environment is settled

    path = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    ray.init(
        address="local",
        num_cpus=int(asked["slots"]),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.WARNING,
        object_store_memory=_STORE_BYTES,
        _node_ip_address="127.0.0.1",
        _temp_dir=asked["ray_folder"],
        runtime_env={
            "worker_process_setup_hook": _HOOK,
            "env_vars": {FOLDER_VARIABLE: asked["signs"], "PYTHONPATH": path},
        },
    )
    try:
        yield
    finally:
        ray.shutdown()


def built(asked: Mapping[str, Any]) -> Any:
    """The application of an import path; a builder that takes failsoft's settings is told to take the drill's home.

    A refusal of failsoft's own is passed on: the same builder without those settings would serve, and break, the
    user's own home.

    Raises:
        ConfigError: there is none, or its builder does not build one.
    """
    from ray.serve import Application  # noqa: PLC0415 -- after the environment is settled
    from ray.serve._private.api import call_user_app_builder_with_args_if_necessary as build  # noqa: PLC0415

    from failsoft.serving.task import imported  # noqa: PLC0415 -- the same

    found, arguments = imported(asked["app"]), dict(asked["arguments"])
    if isinstance(found, Application):
        return found
    failure: Exception | None = None
    for given in ({"home": asked["home"], **_FOR_OURS, **arguments}, arguments):
        try:
            return build(found, given)
        except FailsoftError:
            raise
        except Exception as error:  # noqa: BLE001 -- anybody's builder, which may know no such settings
            failure = error
    raise ConfigError(f"{asked['app']} builds no app: {failure.__class__.__name__}: {failure}") from failure


def served(application: Any, port: int) -> dict[str, Any]:
    """Deploy it on loopback; of what it is made, for the drill.

    Raises:
        ConfigError: a replica does not start.
    """
    from ray import serve  # noqa: PLC0415 -- after the environment is settled
    from ray.serve.config import HTTPOptions, ProxyLocation  # noqa: PLC0415
    from ray.serve.schema import LoggingConfig  # noqa: PLC0415

    quiet = LoggingConfig(log_level="WARNING", enable_access_log=False)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    http = HTTPOptions(host="127.0.0.1", port=port)
    serve.start(http_options=http, proxy_location=ProxyLocation.HeadOnly, logging_config=quiet)
    try:
        handle = serve.run(application, name=APP_NAME, route_prefix="/", logging_config=quiet)
    except RuntimeError as error:  # Serve's own word for a replica that can't start
        app = serve.status().applications.get(APP_NAME)
        messages = [] if app is None else [one.message for one in app.deployments.values() if one.message]
        raise ConfigError(f"the app does not start: {' '.join(messages)[-800:] or error}") from error
    deployments = serve.status().applications[APP_NAME].deployments
    return {"port": port, "ingress": handle.deployment_name, "deployments": sorted(deployments)}


def run(asked: Mapping[str, Any], told: Any) -> None:
    """Serve until standard input ends; on a line ``drain`` every replica leaves, and another takes its place."""
    with private_ray(asked):
        from ray import serve  # noqa: PLC0415 -- after the environment is settled

        try:
            application = built(asked)
            _say(told, served(application, int(asked["port"])))
            for line in sys.stdin:
                if line.strip() == "drain":
                    served(built(asked), int(asked["port"]))
                    _say(told, {"drained": True})
        finally:
            serve.shutdown()
            _stop_ours(asked["home"])


def _stop_ours(home: str) -> None:
    from failsoft.serving.rollout.controller import stop_controller  # noqa: PLC0415 -- as above

    stop_controller(home)


def _say(told: Any, what: Mapping[str, Any]) -> None:
    told.write(json.dumps(what) + "\n")
    told.flush()


def main() -> int:
    """Exit status 0 when it was told to stop, 1 with the reason on the JSON line when the app does not start."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray writes to standard output, too
    sys.path.insert(0, str(Path.cwd()))
    try:
        run(json.loads(sys.argv[1]), told)
    except FailsoftError as error:
        _say(told, {"error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
