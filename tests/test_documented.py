"""No command of a document is only claimed: each is typed by a drill as it stands, or it is said why it can't be."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.documented import NOT_HERE, commands_in, shown_commands, the_one, typed_by, without_comment
from tests.drills.outcome_page import drills_of, page
from tests.drills.outcomes import read_record, write_page

FOLDER = ROOT / "tests" / "drills"
DRILLS = [FOLDER / "conftest.py", *sorted(FOLDER.glob("test_documented_*.py"))]
SHOWN = shown_commands()

DOCUMENT = """# A page

Words, `and words`.

```
failsoft one --why '# no comment'   # a comment
failsoft two \\
    --more   # another
# alone

export A=1
```

```python
failsoft = 3
```

```sh
$ failsoft three
```
"""


def test_commands_are_read_off_a_document_as_a_reader_would_type_them() -> None:
    found = [(one.line, one.text) for one in commands_in("page.md", DOCUMENT)]
    assert found == [
        (6, "failsoft one --why '# no comment'"),
        (7, "failsoft two --more"),
        (11, "export A=1"),
        (19, "failsoft three"),
    ]
    assert without_comment('echo "a # b" # c') == 'echo "a # b"'


def test_the_documents_have_commands_of_all_kinds() -> None:
    assert len(SHOWN) > 60
    starts = {one.text.split()[0] for one in SHOWN}
    assert starts >= {"failsoft", "ray", "serve", "kubectl", "make"}


def test_each_command_of_a_document_is_typed_by_a_drill_or_it_is_said_why_not() -> None:
    """Whoever adds a command to a document adds it to a drill."""
    typed = {one.text for drill in DRILLS for one in typed_by(drill)}
    neither = [
        f"{one.document}:{one.line}: {one.text}" for one in SHOWN if one.why_not is None and one.text not in typed
    ]
    assert neither == []
    both = [one.text for one in SHOWN if one.why_not is not None and one.text in typed]
    assert both == [], "what is typed needs no excuse"


@pytest.mark.parametrize("start", NOT_HERE)
def test_no_excuse_is_kept_for_a_command_that_no_document_has(start: str) -> None:
    assert [one for one in SHOWN if one.text.startswith(start)], start


def test_a_drill_that_types_what_no_document_says_is_found_out() -> None:
    with pytest.raises(LookupError, match="shows 0 commands"):
        the_one("README.md", "failsoft tarin")
    with pytest.raises(LookupError, match=r"shows \d\d commands"):
        the_one("README.md", "failsoft")


def test_each_file_of_drills_has_its_lines_in_the_table_and_no_line_is_of_one_that_is_gone() -> None:
    table = (ROOT / "docs" / "drills.md").read_text("utf-8")
    here = [drill.path for drill in drills_of(ROOT)]
    told = [line.removeprefix("## ") for line in table.splitlines() if line.startswith("## tests/")]
    assert told == here, "run: .venv/bin/python -m tests.drills.outcomes"


def test_the_table_says_what_was_recorded() -> None:
    record = read_record(ROOT / "docs")
    table = (ROOT / "docs" / "drills.md").read_text("utf-8")
    for name, said in record["drills"].items():
        claim = name.partition("::test_")[2].replace("_", " ")
        lines = [one for one in table.splitlines() if one.startswith(f"| {claim} |")]
        assert any(f"| {said['date']} |" in line for line in lines), name


DRILL = '''"""Falls over, and stands up.

More words.
"""
import pytest

pytestmark = pytest.mark.drill


def test_it_stands_up() -> None:
    assert True


@pytest.mark.parametrize("leg", [1, 2])
def test_it_stands_on(leg) -> None:
    assert leg == 1, "a | fall"


@pytest.mark.skip(reason="needs a moon")
def test_it_flies() -> None:
    assert False
'''


def drilled(folder: Path, *words: str) -> None:
    """A run of drills of another tree, with the recorder of this one."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.drills.outcomes", "-p", "no:cacheprovider", *words]
    command += ["--override-ini=markers=drill", f"--rootdir={folder}", str(folder / "tests")]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "FAILSOFT_DRILL_TABLE": str(folder / "docs")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_legs.py").write_text(DRILL, "utf-8")
    (tmp_path / "tests" / "test_plain.py").write_text("def test_quick() -> None:\n    assert True\n", "utf-8")
    return tmp_path


def lines_of(record: dict[str, Any], tree: Path) -> list[str]:
    return [line for line in page(record, tree).splitlines() if line.startswith("| it ")]


def test_a_run_writes_down_how_each_drill_ended_and_a_run_of_some_leaves_the_others(tree: Path) -> None:
    where = tree / "docs"
    drilled(tree)
    first = read_record(where)
    assert set(first["drills"]) == {
        f"tests/test_legs.py::test_it_{what}" for what in ("stands_up", "stands_on", "flies")
    }
    stands_up, stands_on, flies = lines_of(first, tree)
    assert stands_up.startswith("| it stands up | passed | 0 | ")
    assert "**failed**: AssertionError: a \\| fall" in stands_on
    assert "| skipped: needs a moon |" in flies
    first["drills"]["tests/test_legs.py::test_it_flies"]["date"] = "2001-01-01"
    (where / "drills.json").write_text(json.dumps(first), "utf-8")
    drilled(tree, "-k", "stands_up")
    assert "2001-01-01" in lines_of(read_record(where), tree)[2]


def test_a_drill_that_never_ran_says_so(tree: Path) -> None:
    assert lines_of({"format": 1, "drills": {}, "commands": {}}, tree) == [
        "| it stands up | never run | | | | |",
        "| it stands on | never run | | | | |",
        "| it flies | never run | | | | |",
    ]


def test_lines_of_a_file_that_is_gone_go_with_it(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "drills.json", tmp_path / "drills.json")
    gone = {"outcome": "passed", "why": "", "cases": 1, "seconds": 1.0, "date": "d", "machine": "m", "commit": "c"}
    record = read_record(tmp_path)
    record["drills"]["tests/drills/test_gone.py::test_it"] = gone
    (tmp_path / "drills.json").write_text(json.dumps(record), "utf-8")
    write_page(tmp_path)
    assert "test_gone" not in (tmp_path / "drills.json").read_text("utf-8")
    assert "test_gone" not in (tmp_path / "drills.md").read_text("utf-8")
