"""All that reads bytes which somebody else may have written, each with good forms to make odd."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from failsoft.alerts.courier import _read as read_position
from failsoft.alerts.settings import read_settings as read_alerts
from failsoft.artifacts.manifest import digest_bytes, parse_manifest
from failsoft.artifacts.signing_keys import read_signing, read_trusted
from failsoft.artifacts.tokens import Tokens
from failsoft.health.faults import FaultPlan
from failsoft.health.ledger import read_ledger
from failsoft.health.retention import read_retention
from failsoft.incidents.answers import read_spans
from failsoft.models.corpora import load_corpus
from failsoft.models.foreign.hf_files import labels_of, refuse_unsafe
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.labels import LabelSet
from failsoft.models.linear_text import LinearText
from failsoft.models.network import NetworkConfig
from failsoft.models.rules import RulesEngine
from failsoft.models.tokens import TextCodec
from failsoft.release.report import GateReport
from failsoft.release.settings import read_settings as read_gates
from failsoft.serving.intake.text_policy import TextPolicy
from failsoft.serving.plan.plan import RoutingPlan
from failsoft.serving.plan.planstore import FORMAT as PLAN_FORMAT
from failsoft.serving.plan.planstore import PlanStore, _digest
from failsoft.serving.rollout.stage_settings import policy_at
from failsoft.training.accounting.consumed_history import read_generations
from failsoft.training.checkpoints.formats import read_scalars
from failsoft.training.checkpoints.withdrawn import withdrawn
from failsoft.training.letters.letterbook import bursts, read_letter_book
from failsoft.training.letters.requeue import read_requeue
from failsoft.training.loading.sample_letters import read_sample_letters
from failsoft.training.memory.note import take_note
from failsoft.training.progress import read_progress
from failsoft.training.snapshots.refuge_note import parse_note
from failsoft.training.survival.notice import read_notice
from failsoft.training.survival.preflight_record import read_record
from failsoft.training.survival.suspicion import statement_of
from tests.security.good_forms import CLINC, LETTER, MANIFEST_BODY, NOTE, PLAN, REPORT, SNIPS, SPAN, STATE
from tests.security.odd_bytes import as_json, odd_json, odd_lines, odd_toml, odd_values


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Something that reads bytes of others."""

    name: str
    read: Callable[[Path], Any]
    """Called with a folder in which the bytes lie."""
    content: st.SearchStrategy[bytes]
    file: str = "file"

    def __str__(self) -> str:
        return self.name


def text_of(folder: Path) -> str:
    return (folder / "file").read_bytes().decode("utf-8", "surrogateescape")


def own(path: Path) -> Path:
    path.chmod(0o600)
    return path


def forged_note(body: bytes) -> bytes:
    """With a digest that fits: whoever may write the folder can do that."""
    return digest_bytes(body).encode() + b"\n" + body


def forged_state(write: Any, state: Any) -> bytes:
    body = {"format": PLAN_FORMAT, "write": write, "state": state}
    return as_json(body | {"digest": _digest(write, state)})


def forged_manifest(body: Any) -> bytes:
    """The same for a manifest."""
    if not isinstance(body, dict):
        return as_json(body)
    plain = {key: value for key, value in body.items() if key not in {"digest", "signature"}}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return as_json(plain | {"digest": digest_bytes(text.encode())})


STAGES = ("drill", "drill.shadow_s", "standard", "standard.max_share", "by_hand")
READERS = [
    Reader(name="retention", read=read_retention, file="retention.toml", content=odd_toml("texts_days", "ledger_mb")),
    Reader(name="stages", read=lambda at: policy_at(at, "drill"), file="stages.toml", content=odd_toml(*STAGES)),
    Reader(name="alerts", read=read_alerts, file="alerts.toml", content=odd_toml("send", "receive")),
    Reader(
        name="gates as TOML",
        read=lambda at: read_gates(at / "gates.toml"),
        file="gates.toml",
        content=odd_toml("max_kl", "widths", "bootstrap", "waivers"),
    ),
    Reader(
        name="gates as YAML",
        read=lambda at: read_gates(at / "gates.yaml"),
        file="gates.yaml",
        content=odd_json({"max_kl": 0.1, "waivers": [{"gate": "slots", "why": "w"}]}),
    ),
    Reader(
        name="rules",
        read=lambda at: RulesEngine.load(at / "file"),
        content=odd_json({"default": "oos", "rules": [{"intent": "a", "words": {"play": 1.0}, "regex": "a+"}]}),
    ),
    Reader(name="SNIPS", read=load_corpus, file="train_PlayMusic_full.json", content=odd_json(SNIPS)),
    Reader(name="CLINC150", read=load_corpus, file="data_full.json", content=odd_json(CLINC)),
    Reader(name="ledger", read=lambda at: read_ledger(at / "file"), content=odd_lines({"at_s": 1.0, "kind": "trip"})),
    Reader(
        name="manifest",
        read=lambda at: parse_manifest((at / "file").read_bytes(), where="here"),
        content=odd_json(MANIFEST_BODY),
    ),
    Reader(
        name="stored plan",
        read=lambda at: PlanStore(at).load(),
        file="plan-0.json",
        content=odd_json({"format": PLAN_FORMAT, "write": 1, "state": STATE, "digest": _digest(1, STATE)}),
    ),
    Reader(
        name="forged stored plan",
        read=lambda at: PlanStore(at).load(),
        file="plan-0.json",
        content=st.tuples(st.sampled_from([1, 2**70]), odd_values(STATE)).map(lambda drawn: forged_state(*drawn)),
    ),
    Reader(
        name="forged manifest",
        read=lambda at: parse_manifest((at / "file").read_bytes(), where="here"),
        content=odd_values(MANIFEST_BODY).map(forged_manifest),
    ),
    Reader(name="plan", read=lambda at: RoutingPlan.from_json(text_of(at)), content=odd_json(PLAN.as_json())),
    Reader(
        name="dead letters",
        read=lambda at: bursts(read_letter_book(at).letters),
        file="rank-0000.jsonl",
        content=odd_lines(LETTER),
    ),
    Reader(
        name="requeued batches",
        read=read_requeue,
        file="requeue.jsonl",
        content=odd_lines({"position_of_letter": 3, "sample_indices": [4], "without": [], "why": "", "at_s": 1.0}),
    ),
    Reader(
        name="letters of samples",
        read=read_sample_letters,
        file="samples-rank-0000.jsonl",
        content=odd_lines({"kind": "malformed", "index": 3, "why": "w"}),
    ),
    Reader(name="host-memory note", read=lambda at: parse_note((at / "file").read_bytes()), content=odd_json(NOTE)),
    Reader(
        name="forged host-memory note",
        read=lambda at: parse_note((at / "file").read_bytes()),
        content=odd_json(NOTE).map(forged_note),
    ),
    Reader(
        name="progress", read=read_progress, file="progress.json", content=odd_json({"phase": "training", "step": 3})
    ),
    Reader(name="notice", read=read_notice, file="leave.json", content=odd_json({"why": "w"})),
    Reader(name="memory note", read=take_note, file="memory_note.json", content=odd_json({"why": "w"})),
    Reader(
        name="preflight record",
        read=read_record,
        file="preflight.json",
        content=odd_json({"nodes": {"a1": {"standing": "fit", "passes": 1}}, "preflights": 3}),
    ),
    Reader(
        name="statement of a rank",
        read=lambda at: statement_of(text_of(at)),
        content=odd_json({"rank": 0, "phase": "p", "position": 1, "standing": "backward", "where": "w"}),
    ),
    Reader(name="withdrawn checkpoints", read=withdrawn, file=".withdrawn", content=odd_lines({"name": "a"})),
    Reader(
        name="consumed samples",
        read=read_generations,
        file="consumed/generation-0001/marks.jsonl",
        content=odd_lines(
            {"begun": {"world": 1, "position": 0, "total_batches": 3, "num_samples": 8, "global_batch": 2, "seed": 0}}
        ),
    ),
    Reader(
        name="state of a run", read=lambda at: read_scalars(text_of(at), where="h"), content=odd_json({"format": 1})
    ),
    Reader(name="gate report", read=lambda at: GateReport.from_json(text_of(at)), content=odd_json(REPORT)),
    Reader(
        name="planned faults", read=lambda at: FaultPlan.from_json(text_of(at)), content=odd_json([{"kind": "nan"}])
    ),
    Reader(name="text policy", read=lambda at: TextPolicy.from_json(text_of(at)), content=odd_json({"max_words": 3})),
    Reader(
        name="spans of answers",
        read=lambda at: read_spans(at / "file", after_s=0.0, before_s=9.0),
        content=odd_lines(SPAN),
    ),
    Reader(
        name="how far a target was told",
        read=lambda at: read_position(at / "file"),
        content=odd_json({"file": 0, "bytes": 3}),
    ),
    Reader(
        name="labels", read=lambda at: LabelSet.load(at / "file"), content=odd_json({"intents": ["a"], "slots": []})
    ),
    Reader(name="codec", read=lambda at: TextCodec.load(at / "file"), content=odd_json({"format": 1, "tokenizer": {}})),
    Reader(
        name="network", read=lambda at: NetworkConfig.load(at / "file"), content=odd_json({"width": 8, "layers": 1})
    ),
    Reader(name="trees", read=GbdtIntent.load, file="meta.json", content=odd_json({"labels": ["a"], "words": {}})),
    Reader(name="linear model", read=LinearText.load, file="meta.json", content=odd_json({"labels": ["a"]})),
    Reader(
        name="model folder of others",
        read=labels_of,
        file="config.json",
        content=odd_json({"id2label": {"0": "a"}, "architectures": ["X"]}),
    ),
    Reader(
        name="model folder of others, looked at for code",
        read=refuse_unsafe,
        file="config.json",
        content=odd_json({"auto_map": {"AutoModel": "x.Y"}}),
    ),
    Reader(
        name="trusted keys",
        read=lambda at: read_trusted(own(at / "file")),
        content=st.one_of(st.binary(max_size=80), st.sampled_from([b"retired", b"ed25519:AAAA x", b"ed25519:\xff"])),
    ),
    Reader(
        name="signing key",
        read=lambda at: read_signing(own(at / "file")),
        content=st.binary(max_size=80).map(
            lambda raw: b"-----BEGIN PRIVATE KEY-----\n" + raw + b"\n-----END PRIVATE KEY-----\n"
        ),
    ),
    Reader(
        name="tokens",
        read=lambda at: Tokens.read(text_of(at), whose="operator", where="here"),
        content=st.text(max_size=80).map(str.encode),
    ),
]
