"""Small train scripts of a stranger: no failsoft in them. Written into a test's folder."""

from __future__ import annotations

from pathlib import Path

PLAIN = """
import os, pathlib, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs = torch.randn(40, 8, 3)
for batch in inputs:
    loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
"""Saves nothing, guards nothing."""

CAREFUL = """
import os, pathlib, signal, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs = torch.randn(40, 8, 3)
place, told = pathlib.Path("state.pt"), []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
first = refused = 0
if place.exists():
    kept = torch.load(place)
    model.load_state_dict(kept["model"])
    first, refused = kept["next"], kept["refused"]

def save(next_):
    torch.save({"model": model.state_dict(), "next": next_, "refused": refused}, "state.pt.tmp")
    os.replace("state.pt.tmp", place)

for number in range(first, 40):
    batch = inputs[number]
    loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if all(torch.isfinite(one.grad).all() for one in model.parameters()):
        optimizer.step()
    else:
        refused += 1
    if number % 8 == 7 or told:
        save(number + 1)
    if told:
        raise SystemExit(143)
with torch.no_grad():
    print("loss", float((model(inputs[0]) - inputs[0].sum(1, keepdim=True)).square().mean()))
"""
"""Refuses what is not finite, saves aside and renames, goes on where it was, leaves when it is told."""

PLANTED = CAREFUL.replace("    model.load", '    if not kept["refused"]:\n        model.load')
"""A bug that only a refused batch *and* a restart behind it meet: the restart keeps its place, not its weights."""


def write(folder: Path, text: str) -> Path:
    assert CAREFUL != PLANTED
    path = folder / "own.py"
    path.write_text(text, "utf-8")
    return path
