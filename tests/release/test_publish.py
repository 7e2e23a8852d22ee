from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.artifacts.home import Home
from failsoft.errors import ArtifactError, ConfigError, DamagedArtifactError, GateError
from failsoft.health.clock import ManualClock
from failsoft.models.labels import LabelSet
from failsoft.release.inspect import gate_bundle
from failsoft.release.publish import Publisher, newest_release, stored_report
from tests.release.conftest import Trained, fill_release


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(home=Home.find(tmp_path), clock=ManualClock())


def publish(publisher: Publisher, trained: Trained, name: str | None = None) -> Bundle:
    return publisher.publish(lambda folder: fill_release(folder, trained), name=name, provenance={"run": "first"})


def candidates(publisher: Publisher) -> list[Path]:
    return sorted((publisher.home.root / "candidates").iterdir())


def spoil(folder: Path, trained: Trained) -> None:
    fill_release(folder, trained)
    (folder / Role.CALIBRATION).write_text('{"temperature": 30.0}')


def test_a_published_release_is_whole_verified_and_carries_its_report(publisher: Publisher, trained: Trained) -> None:
    bundle = publish(publisher, trained)
    store = publisher.home.releases(publisher.clock)
    assert Bundle.of(store.open(bundle.name)).digest == bundle.digest
    assert stored_report(bundle).passed
    assert gate_bundle(bundle.path).passed
    assert bundle.meta["provenance"] == {"run": "first"}
    assert candidates(publisher) == []


def test_a_name_is_made_of_the_utc_date_and_the_contents(publisher: Publisher, trained: Trained) -> None:
    assert publish(publisher, trained).name.startswith("r-20231114-")


def test_each_release_knows_the_one_before(publisher: Publisher, trained: Trained) -> None:
    first = publish(publisher, trained, "a")
    second = publish(publisher, trained, "b")
    assert (first.previous, second.previous) == (None, "a")
    assert any("release a" in result.name for result in stored_report(second).results)


def test_a_release_of_another_task_may_follow(publisher: Publisher, trained: Trained) -> None:
    first = publish(publisher, trained, "a")
    other = replace(trained, labels=LabelSet(("x", "y", "z"), ("thing",)))
    intents = dict(zip(trained.labels.intents, other.labels.intents, strict=True))
    train, validation = (
        tuple(replace(u, intent=intents[u.intent]) for u in split)
        for split in (trained.corpus.train, trained.corpus.validation)
    )
    corpus = replace(trained.corpus, intents=other.labels.intents, train=train, validation=validation)
    other = replace(other, corpus=corpus)
    second = publish(publisher, other, "b")
    assert second.previous == first.name
    assert not any("release a" in result.name for result in stored_report(second).results)


def test_a_candidate_that_fails_stays_for_inspection_and_nothing_is_published(
    publisher: Publisher, trained: Trained
) -> None:
    with pytest.raises(GateError, match=r"entropy mean.*candidates.*failsoft gate"):
        publisher.publish(lambda folder: spoil(folder, trained), name="bad", provenance={})
    assert newest_release(publisher.home.releases(publisher.clock)) is None
    (left,) = candidates(publisher)
    assert not stored_report(Bundle(name="bad", path=left, digest="", meta={})).passed


def test_a_model_with_nan_weights_is_refused_by_name(publisher: Publisher, trained: Trained) -> None:
    def fill(folder: Path) -> None:
        spoil(folder, trained)
        torch.set_num_threads(1)
        from safetensors.torch import load_file, save_file

        state = load_file(folder / Role.WEIGHTS)
        state["norm.weight"][0] = torch.inf
        save_file(state, folder / Role.WEIGHTS)

    with pytest.raises(GateError, match=r"finite weights.*norm\.weight"):
        publisher.publish(fill, provenance={})


def test_a_taken_name_is_refused_and_the_published_one_stays_as_it_is(publisher: Publisher, trained: Trained) -> None:
    first = publish(publisher, trained, "a")
    with pytest.raises(ArtifactError, match="never changes"):
        publish(publisher, trained, "a")
    assert Bundle.of(publisher.home.releases(publisher.clock).open("a")).digest == first.digest


def test_a_name_that_can_t_be_had_is_refused_before_anything_is_judged(publisher: Publisher, trained: Trained) -> None:
    publish(publisher, trained, "a")
    told: list[str] = []
    for name, error in (("a", ArtifactError), ("../a", ConfigError)):
        with pytest.raises(error):
            publish(replace(publisher, watch=told.append), trained, name)
    assert told == []


def test_what_is_published_is_what_was_judged(publisher: Publisher, trained: Trained) -> None:
    def spoil_after(what: str) -> None:
        if what == "quantization KL":  # the last gate; the calibration was read long before
            (left,) = candidates(publisher)
            (left / Role.CALIBRATION).write_text('{"temperature": 30.0}')

    with pytest.raises(ArtifactError, match="changed while it was judged"):
        publish(replace(publisher, watch=spoil_after), trained, "a")
    assert newest_release(publisher.home.releases(publisher.clock)) is None


def test_a_report_of_other_files_is_refused(publisher: Publisher, trained: Trained, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(publish(publisher, trained).path, copied)
    (copied / Role.RULES).write_text("version: 1", "utf-8")
    with pytest.raises(DamagedArtifactError, match="judged other files"):
        stored_report(Bundle(name="copied", path=copied, digest="", meta={}))


def test_a_writer_that_breaks_leaves_no_candidate(publisher: Publisher) -> None:
    def fill(_folder: Path) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        publisher.publish(fill, provenance={})
    assert candidates(publisher) == []
