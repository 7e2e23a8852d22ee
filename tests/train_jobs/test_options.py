from __future__ import annotations

from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import failsoft.cli.main  # noqa: F401 -- hangs the commands on the app
from failsoft.cli.app import app
from failsoft.errors import ConfigError
from train_jobs.config import JobConfig, Preset
from train_jobs.options import config_of, parser


def options_of_the_job() -> set[str]:
    return {word for action in parser()._actions for word in action.option_strings if word.startswith("--")}


def options_of_train() -> set[str]:
    command = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    return {word for option in command.params for word in (*option.opts, *option.secondary_opts)} | {"--help"}


def test_both_ways_to_start_the_job_take_the_same_options_by_the_same_names() -> None:
    here_only = {"--json", "--submit", "--working-dir", "--follow", "--no-follow", "--stop-on-interrupt"}
    assert options_of_train() - here_only == options_of_the_job(), "who carries it out, and how it is told, is not it"


def asked_of_train(monkeypatch: pytest.MonkeyPatch, *words: str) -> JobConfig:
    asked: list[JobConfig] = []

    def note(config: JobConfig) -> None:
        asked.append(config)
        raise typer.Exit

    monkeypatch.setattr("failsoft.cli.train._trained", note)
    done = CliRunner().invoke(app, ["train", *words])
    assert done.exit_code == 0, done.output
    return asked[0]


WORDS = """--preset demo --workers 2:4 --threads 3 --gpu --seed 5 --epochs 4 --max-batches 9 --first-wait 2
--record-consumed --snapshot-every 11 --snapshot-place sharded --poisoned replay --checkpoint-every 13
--checkpoint-every-time 15m --checkpoint-at-epoch-end --keep-last 4 --keep-best 2
--remote file:///mnt/x --remote-stop-after 60 --validate-every 8 --validate-at-epoch-end --track tensorboard:b
--track wandb:p --relieve-slow-workers --no-preflight --no-spares --no-publish"""


def test_the_same_words_ask_both_for_the_same_job_and_none_is_left_at_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--home", str(tmp_path), "--run", "r", *WORDS.split()]
    job, plain = config_of(parser().parse_args(words)), JobConfig(home=tmp_path, run="r", preset=Preset.DEMO)
    assert asked_of_train(monkeypatch, *words) == job
    same = {name for name in vars(job) if getattr(job, name) == getattr(plain, name)}
    only_in_python = {"snapshots_outlive", "keep_every_hours", "loss_spikes", "relief", "letters", "memory", "pace"}
    only_in_python |= {"resize", "ray_patience_s", "node_faults", "watch", "notice", "fabric", "storage"}
    only_in_python |= {"driver_watch"}
    assert same - only_in_python == {"home", "run", "preset", "data", "faults", "node_mtbf_s"}


def test_a_job_that_is_handed_on_is_asked_for_by_the_same_words(tmp_path: Path) -> None:
    from failsoft.cli.train_submit import words_of

    words = ["--home", str(tmp_path), "--run", "r", *WORDS.split()]
    given = parser().parse_args(words)
    assert config_of(parser().parse_args(words_of(given))) == config_of(given)
    assert words_of(parser().parse_args(["--run", "r"])) == ["--run", "r"], "what is its default is left out"


def test_the_mean_time_between_failures_is_asked_for_as_a_duration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked_of_train(monkeypatch, "--home", str(tmp_path), "--mtbf", "2h").node_mtbf_s == 7200.0
    with pytest.raises(ConfigError, match="'30' is no duration"):
        config_of(parser().parse_args(["--run", "r", "--mtbf", "30"]))


@pytest.mark.parametrize(
    "wrong", [["--preset", "nope"], ["--snapshot-every", "0"], ["--epochs", "0"], ["--max-batches", "-1"]]
)
def test_a_value_that_no_option_takes_is_a_usage_error_that_names_it(tmp_path: Path, wrong: list[str]) -> None:
    done = CliRunner().invoke(app, ["train", "--home", str(tmp_path), *wrong])
    assert done.exit_code == 2
    assert wrong[0] in done.output
    assert not list(tmp_path.iterdir())


def test_a_fault_plan_may_lie_in_a_file_also_for_failsoft_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('[{"kind": "nan_batch", "position": 4}]', "utf-8")
    job = asked_of_train(monkeypatch, "--home", str(tmp_path), "--faults", str(plan))
    assert [fault.position for fault in job.faults.faults] == [4]
