"""What the loader's nets cost: batches a second with all of them on, against torch's plain ``DataLoader``.

Same dataset, same samples in the same order, same number of workers, same start method. The nets: each sample compared
with its digest, length and form, NaN and Inf looked for, generators seeded by position, deaths and hangs watched.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor
from torch.utils.data import DataLoader

from failsoft.health.clock import SystemClock
from failsoft.training.batches import GlobalBatches
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.checks import SampleChecks
from failsoft.training.loading.lane import LoaderPolicy
from failsoft.training.loading.layout import ShardLayout, write_shards
from failsoft.training.loading.loader import GuardedLoader
from failsoft.training.loading.local import LocalShards
from failsoft.training.loading.order import RankOrder
from failsoft.training.loading.sample import Request
from failsoft.training.loading.tiered_dataset import TieredDataset
from failsoft.training.loading.tiers import TieredSource
from tests.benchmarks.measuring import CONTROL, Contender, Timings, interleave
from tests.benchmarks.outcome import Outcome

BATCH, SAMPLES, WORDS, SIDE = 32, 1600, 512, 224
VOCABULARY = 20_000
WORKERS_EACH = 5
GUARDED, PLAIN = "all nets", "plain DataLoader"


def measure(*, quick: bool) -> Outcome:
    """Photographs by the usual recipe, and documents of up to 512 words; one worker each, on two cores."""
    outcome = Outcome(name="loader", processes=2)
    rounds = 3 if quick else 20
    for kind, name, batches in (("pictures", "", 4), ("texts", "text_", 20)):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(kind, Path(folder), total=3 * (rounds + 2) * batches)  # one contender runs twice
            timings = bench.race(outcome, rounds=rounds, batches=batches)
            work = bench.work(outcome, rounds=rounds, batches=batches)
        outcome.ratios[f"guarded_{name}loader_over_plain"] = timings.ratio(PLAIN, GUARDED)
        outcome.ratios[f"guarded_{name}loader_over_plain_by_cpu_time"] = work.ratio(PLAIN, GUARDED)
    outcome.notes.append(f"ratios are of throughput: above 1 the guarded loader is faster; batches of {BATCH}")
    return outcome


class PlainDataset:
    """What one would write: files opened once, a read at an offset, a decode."""

    def __init__(self, layout: ShardLayout, decode: Callable[[bytes], Any]) -> None:
        self._layout = layout
        self._decode = decode
        self._files: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._layout)

    def __getitem__(self, index: int) -> Any:
        place = self._layout.place_of(index)
        if place.shard not in self._files:
            self._files[place.shard] = os.open(self._layout.folder / place.shard, os.O_RDONLY)
        return self._decode(os.pread(self._files[place.shard], place.length, place.first))


def decode_picture(data: bytes) -> tuple[Tensor, int]:
    """The usual recipe for photographs: decode, crop by chance, scale, mirror by chance, make floats, normalise."""
    with Image.open(io.BytesIO(data)) as opened:
        picture = opened.convert("RGB")
    side = int(torch.randint(160, 375, ()))
    left, top = int(torch.randint(500 - side, ())), int(torch.randint(376 - side, ()))
    part = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    pixels = torch.from_numpy(np.array(part)).permute(2, 0, 1)
    mirrored = pixels.flip(2) if torch.rand(()) < 0.5 else pixels
    return mirrored.float().div_(255.0).sub_(0.5), side % 10


def decode_text(data: bytes) -> dict[str, Tensor]:
    """Tokenise a line of JSON."""
    words = _tokenizer().encode(json.loads(data)["text"]).ids
    ids = torch.tensor(words[:WORDS] + [0] * (WORDS - len(words)))
    return {"ids": ids, "weight": (ids > 0).float()}


@cache
def _tokenizer() -> Tokenizer:
    """One for each process."""
    made = Tokenizer(WordLevel({f"word{rank}": rank for rank in range(VOCABULARY)} | {"?": VOCABULARY}, unk_token="?"))
    made.pre_tokenizer = Whitespace()
    return made


def width_of(sample: Any) -> int:
    """What a limit of length looks at."""
    return int((sample[0] if isinstance(sample, tuple) else sample["ids"]).shape[-1])


def in_range(sample: Any) -> str | None:
    """A user's own check, of the usual size."""
    if isinstance(sample, tuple):
        return None if 0 <= sample[1] < 256 else f"label {sample[1]}"
    return None if sample["ids"].dtype == torch.int64 else "ids of another type"


def _bodies(kind: str) -> Iterator[bytes]:
    chance = np.random.default_rng(3)
    for _ in range(SAMPLES):
        if kind == "texts":
            ranks = chance.integers(1, VOCABULARY, size=int(chance.integers(WORDS // 4, WORDS)))
            yield json.dumps({"text": " ".join(f"word{rank}" for rank in ranks)}).encode()
        else:
            rough = Image.fromarray(chance.integers(0, 256, size=(60, 80, 3), dtype=np.uint8))
            file = io.BytesIO()
            rough.resize((500, 375), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
            yield file.getvalue()


class Bench:
    """One kind of samples, both ways."""

    def __init__(self, kind: str, folder: Path, *, total: int) -> None:
        layout, decode = write_shards(_bodies(kind), folder), decode_text if kind == "texts" else decode_picture
        self.kind, self.total = kind, total
        batches = GlobalBatches(num_samples=SAMPLES, global_batch=BATCH, seed=7)
        self.order = RankOrder(batches=batches, rank=0, world=1, total=total)
        self.plain = PlainDataset(layout, decode)
        self.checked = Checked(
            TieredDataset(TieredSource(tiers=(LocalShards(layout),)), decode, size=SAMPLES),
            checks=SampleChecks(max_length=1000, length_of=width_of, check=in_range),
            reserve=self.order.reserve,
            seed=7,
        )

    def race(self, outcome: Outcome, *, rounds: int, batches: int) -> Timings:
        """As a training would use them; each contender goes on where it stopped."""
        plain = iter(_plain(self.plain, self.order))
        with GuardedLoader(self.checked, self.order, policy=LoaderPolicy(workers=1)) as loader:
            positions = iter(range(self.total))

            def guarded() -> None:
                for _ in range(batches):
                    batch = loader.fetch(next(positions))
                    assert batch.real == BATCH

            def unguarded() -> None:
                for _ in range(batches):
                    next(plain)

            contenders = [Contender(name=GUARDED, run=guarded), Contender(name=PLAIN, run=unguarded)]
            timings = interleave(contenders, rounds=rounds, control=PLAIN)
        outcome.add(f"{batches} batches of {BATCH} {self.kind}, 1 worker", timings)
        return timings

    def work(self, outcome: Outcome, *, rounds: int, batches: int) -> Timings:
        """CPU time of each one's own worker: what the nets cost there, also on a machine that is busy otherwise.

        Of several workers each: where memory happens to lie makes one process quicker than its twin by some per cent.
        """
        seconds: dict[str, list[float]] = {name: [] for name in (GUARDED, PLAIN, PLAIN + CONTROL)}
        for _ in range(WORKERS_EACH):
            self._work(seconds, rounds=max(1, rounds // WORKERS_EACH), batches=batches)
        timings = Timings(seconds=seconds)
        outcome.add(f"the work on {batches} batches of {BATCH} {self.kind}, CPU time of the worker", timings)
        return timings

    def _work(self, seconds: dict[str, list[float]], *, rounds: int, batches: int) -> None:
        plain, again = (iter(_plain(self.plain, self.order)) for _ in range(2))
        with GuardedLoader(self.checked, self.order, policy=LoaderPolicy(workers=1)) as loader:
            positions = iter(range(self.total))
            fetches: dict[str, Callable[[], object]] = {
                GUARDED: lambda: loader.fetch(next(positions)),
                PLAIN: lambda: next(plain),
                PLAIN + CONTROL: lambda: next(again),
            }
            for fetch in fetches.values():
                fetch()
            pids = dict(
                zip(fetches, (loader.worker_pids()[0], *(_worker_of(one) for one in (plain, again))), strict=True)
            )
            for _ in range(rounds):
                for name, fetch in fetches.items():
                    began_s = _cpu_s(pids[name])
                    for _ in range(batches):
                        fetch()
                    seconds[name].append(_cpu_s(pids[name]) - began_s)


def _worker_of(iterator: Any) -> int:
    return int(iterator._workers[0].pid)


def _cpu_s(pid: int) -> float:
    """CPU time of a process, as soon as it has nothing to do."""
    clock, before_s = SystemClock(), -1.0
    while True:
        now_s = int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[0]) / 1e9
        if now_s - before_s < 0.0005:
            return now_s
        before_s = now_s
        clock.sleep_s(0.05)


def _plain(dataset: PlainDataset, order: RankOrder) -> DataLoader[Any]:
    sampler = [order.ask(Request(position)).indices for position in range(order.total)]
    return DataLoader(
        dataset,  # type: ignore[arg-type]  # map-style by its methods
        batch_sampler=sampler,  # type: ignore[arg-type]  # tuples do as well as lists
        num_workers=1,
        multiprocessing_context="forkserver",
        generator=torch.Generator(),
    )
