"""The manifests: what kustomize makes of them, against KubeRay's schema and against the code that they start."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema
from typer.main import get_command

from failsoft.cli import main as _commands  # noqa: F401 -- importing it hangs the commands on the app
from failsoft.cli.app import app
from failsoft.serving.settings import settings_of
from tests.conftest import ROOT
from tests.deploy.kuberay import own_schema, published_schemas, refusals
from tests.deploy.kustomized import BUILDS, KUBERNETES, Object, built, containers, pod_specs
from train_jobs.options import parser

RAY_KINDS = {"RayCluster", "RayJob", "RayService"}


def objects(build: str) -> list[Object]:
    return built(KUBERNETES / build)


def ray_object(build: str) -> Object:
    (found,) = (one for one in objects(build) if one["kind"] in RAY_KINDS)
    return found


def of_kind(build: str, kind: str) -> list[Object]:
    return [one for one in objects(build) if one["kind"] == kind]


def templates(build: str) -> Iterator[Object]:
    """Pods that run Ray: the head's, then the workers'."""
    spec = ray_object(build)["spec"]
    cluster = spec.get("rayClusterConfig") or spec.get("rayClusterSpec") or spec
    yield cluster["headGroupSpec"]["template"]
    yield from (group["template"] for group in cluster["workerGroupSpecs"])


@pytest.mark.parametrize("build", BUILDS)
def test_kuberay_would_take_it(build: str) -> None:
    assert refusals(ray_object(build), own_schema()) == []


@pytest.mark.parametrize("build", BUILDS)
def test_the_published_schemas_take_it_too(build: str) -> None:
    schemas = published_schemas()
    if schemas is None:
        pytest.skip(
            "set KUBERAY_CRDS to a folder with KubeRay's ray.io_*.yaml (helm-chart/kuberay-operator/crds, 1.7.0)"
        )
    assert refusals(ray_object(build), schemas) == []


def test_a_misspelt_field_would_be_refused() -> None:
    """Else the tests above would prove nothing."""
    body = ray_object("training")
    body["spec"]["backofLimit"] = 5
    head = next(templates("training"))
    body["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"] = head["spec"] | {"hostname": 7}
    found = " ".join(refusals(body, own_schema()))
    assert "backofLimit" in found
    assert "hostname" in found


@pytest.mark.parametrize("build", BUILDS)
def test_kubectl_makes_the_same_of_it(build: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here; what kustomize makes is only known from our own reading of it")
    made = subprocess.run(
        [kubectl, "kustomize", str(KUBERNETES / build)], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(made)}
    assert by_name == {(one["kind"], one["metadata"]["name"]): one for one in objects(build)}


@pytest.mark.parametrize("build", BUILDS)
def test_no_pod_may_do_more_than_it_must(build: str) -> None:
    for spec in pod_specs(ray_object(build)):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(ray_object(build)):
        allowed = container["securityContext"]
        assert allowed["allowPrivilegeEscalation"] is False, container["name"]
        assert allowed["capabilities"] == {"drop": ["ALL"]}
        assert allowed["readOnlyRootFilesystem"] is True
        assert {"name": "scratch", "mountPath": "/tmp"} in container["volumeMounts"], "Ray must write somewhere"
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


def test_no_secret_is_in_the_tree_and_every_token_comes_from_one() -> None:
    for path in KUBERNETES.rglob("*.yaml"):
        for body in yaml.safe_load_all(path.read_text("utf-8")):
            assert body.get("kind") != "Secret", path
            for container in containers(body):
                plain = [one["name"] for one in container.get("env", ()) if "TOKEN" in one["name"] and "value" in one]
                assert plain == [], path


@pytest.mark.parametrize("build", BUILDS)
def test_ray_asks_for_a_token(build: str) -> None:
    text = yaml.safe_dump(ray_object(build))
    assert "authOptions:\n" in text
    assert "secretName: failsoft-ray-token" in text


@pytest.mark.parametrize("build", ["serving", "training", "cluster"])
def test_a_drained_machine_takes_one_worker_at_a_time(build: str) -> None:
    (budget,) = of_kind(build, "PodDisruptionBudget")
    head, *workers = templates(build)
    chosen = budget["spec"]["selector"]["matchLabels"].items()
    assert budget["spec"]["maxUnavailable"] == 1
    assert all(chosen <= worker["metadata"]["labels"].items() for worker in workers)
    assert not chosen <= head["metadata"]["labels"].items(), "a budget of one pod would stop every drain for ever"


@pytest.mark.parametrize("build", ["serving", "training", "cluster"])
def test_workers_keep_away_from_each_other(build: str) -> None:
    _, *workers = templates(build)
    for worker in workers:
        apart = worker["spec"]["affinity"]["podAntiAffinity"]
        hard = apart.get("requiredDuringSchedulingIgnoredDuringExecution", [])
        soft = [one["podAffinityTerm"] for one in apart.get("preferredDuringSchedulingIgnoredDuringExecution", [])]
        terms = [one for one in (*hard, *soft) if one["topologyKey"] == "kubernetes.io/hostname"]
        assert terms, "one machine's loss would cost them all"
        assert terms[0]["labelSelector"]["matchLabels"].items() <= worker["metadata"]["labels"].items()
        assert build != "serving" or hard, "two gateways on one machine are one"


def test_the_network_is_closed_but_for_callers_and_those_who_must() -> None:
    for build in ("serving", "training", "cluster"):
        policies = of_kind(build, "NetworkPolicy")
        closed = next(one for one in policies if one["metadata"]["name"] == "failsoft-closed")["spec"]
        chosen = closed["podSelector"]["matchLabels"].items()
        assert all(chosen <= template["metadata"]["labels"].items() for template in templates(build))
        for rule in closed["ingress"]:
            assert all("podSelector" in who or "namespaceSelector" in who for who in rule["from"])
        outside = [who["ipBlock"] for rule in closed["egress"] for who in rule["to"] if "ipBlock" in who]
        assert all("169.254.169.254/32" in block["except"] for block in outside)
    callers = next(one for one in of_kind("serving", "NetworkPolicy") if one["metadata"]["name"] == "failsoft-callers")
    assert [port["port"] for rule in callers["spec"]["ingress"] for port in rule["ports"]] == [8000]


def test_the_served_app_is_one_that_serve_and_failsoft_take() -> None:
    config = ServeDeploySchema.model_validate(yaml.safe_load(ray_object("serving")["spec"]["serveConfigV2"]))
    (served,) = config.applications
    settings = settings_of(served.args)
    _, worker = templates("serving")
    workers = ray_object("serving")["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["minReplicas"]
    assert {one.name for one in served.deployments} == {"gateway", "blue", "green"}
    assert all(one.max_replicas_per_node == 1 for one in served.deployments)
    assert settings.gateways == settings.replicas == workers, "one of each on every machine"
    assert {port["containerPort"] for port in worker["spec"]["containers"][0]["ports"]} >= {config.http_options.port}


def test_a_service_is_never_upgraded_by_a_second_cluster_on_the_same_home() -> None:
    """Both would have a controller, and both would write the routing plan."""
    assert ray_object("serving")["spec"]["upgradeStrategy"] == {"type": "None"}


@pytest.mark.parametrize("build", ["training", "overlays/gpu-spot"])
def test_the_jobs_command_is_one_that_the_job_takes(build: str) -> None:
    words = ray_object(build)["spec"]["entrypoint"].split()
    assert words[:3] == ["python", "-m", "train_jobs.intent_ner"]
    given = parser().parse_args(words[3:])
    least, _, most = given.workers.partition(":")
    group = ray_object(build)["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    assert (int(least), int(most)) == (group["minReplicas"], group["maxReplicas"])
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert int(limits["cpu"]) >= given.threads
    assert ("nvidia.com/gpu" in limits) == given.gpu


@pytest.mark.parametrize("build", ["serving", "training"])
def test_what_is_fetched_before_the_start_is_what_the_command_line_takes(build: str) -> None:
    commands: Any = get_command(app)
    (words,) = (one["args"] for one in containers(ray_object(build)) if "args" in one)
    assert words[:2] == ["failsoft", "fetch"], "nothing is verified before the start"
    commands.commands["fetch"].make_context("fetch", words[2:])  # raises on what it does not know


def test_the_hook_of_a_runs_head_names_the_run_that_the_job_trains() -> None:
    (hook,) = (
        one["lifecycle"]["preStop"]["exec"]["command"]
        for one in containers(ray_object("training"))
        if one["name"] == "ray-head"
    )
    assert f"--run {hook[1]} " in ray_object("training")["spec"]["entrypoint"]


def test_scripts_that_hooks_call_are_in_the_image() -> None:
    image = (KUBERNETES / "Dockerfile").read_text("utf-8")
    assert "COPY deploy deploy" in image
    assert "WORKDIR /opt/failsoft" in image
    hooks = re.findall(r"/opt/failsoft/(deploy/[\w/-]+)", "".join(map(str, map(ray_object, BUILDS))))
    assert hooks
    for hook in hooks:
        assert (ROOT / hook).stat().st_mode & 0o111, f"{hook} can't be started"


def test_the_images_user_is_the_pods() -> None:
    user = re.search(r"^USER (\d+):(\d+)$", (KUBERNETES / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert user is not None
    for build in BUILDS:
        for spec in pod_specs(ray_object(build)):
            allowed = spec["securityContext"]
            assert (str(allowed["runAsUser"]), str(allowed["fsGroup"])) == user.groups()
