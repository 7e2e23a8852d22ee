"""The entry point of ``failsoft``: gathers the groups of commands and turns errors into one line."""

from __future__ import annotations

import io
import re
import sys

from rich.console import Console
from rich.text import Text

from failsoft.cli import alerts as _alerts  # noqa: F401 -- the same
from failsoft.cli import checkpoint_now as _checkpoint_now  # noqa: F401 -- the same
from failsoft.cli import checkpoints as _checkpoints  # noqa: F401 -- the same
from failsoft.cli import command_list as _command_list  # noqa: F401 -- the same
from failsoft.cli import commands as _commands  # noqa: F401 -- importing it hangs its commands on the app
from failsoft.cli import doctor as _doctor  # noqa: F401 -- the same
from failsoft.cli import drill as _drill  # noqa: F401 -- the same
from failsoft.cli import events as _events  # noqa: F401 -- the same
from failsoft.cli import fetch as _fetch  # noqa: F401 -- the same
from failsoft.cli import fleet as _fleet  # noqa: F401 -- the same
from failsoft.cli import gate as _gate  # noqa: F401 -- the same
from failsoft.cli import incidents as _incidents  # noqa: F401 -- the same
from failsoft.cli import letters as _letters  # noqa: F401 -- the same
from failsoft.cli import metrics as _metrics  # noqa: F401 -- the same
from failsoft.cli import plan as _plan  # noqa: F401 -- the same
from failsoft.cli import preempt as _preempt  # noqa: F401 -- the same
from failsoft.cli import preflight as _preflight  # noqa: F401 -- the same
from failsoft.cli import purge as _purge  # noqa: F401 -- the same
from failsoft.cli import releases as _releases  # noqa: F401 -- the same
from failsoft.cli import replay as _replay  # noqa: F401 -- the same
from failsoft.cli import runs as _runs  # noqa: F401 -- the same
from failsoft.cli import serve as _serve  # noqa: F401 -- the same
from failsoft.cli import settings as _settings  # noqa: F401 -- the same
from failsoft.cli import signing as _signing  # noqa: F401 -- the same
from failsoft.cli import simulate as _simulate  # noqa: F401 -- the same
from failsoft.cli import steer as _steer  # noqa: F401 -- the same
from failsoft.cli import train as _train  # noqa: F401 -- the same
from failsoft.cli.app import app
from failsoft.errors import FailsoftError

_SAYS_A_MEND = re.compile(r"; |failsoft [a-z]|\b(?:use|give|set|make|try)\b|\b(?:see|run):")


def main() -> None:
    """Entry point: errors raised on purpose, and a disk that refuses, become one line and an exit code."""
    _show_whatever_comes()
    try:
        app()
    except (FailsoftError, OSError) as error:
        said = Text.assemble(("failsoft:", "red"), " ", with_mend(error))  # brackets in it are no markup
        Console(stderr=True).print(said, highlight=False, soft_wrap=True)
        raise SystemExit(error.exit_status if isinstance(error, FailsoftError) else 1) from error


def _show_whatever_comes() -> None:
    """A name of a file may be no text, and a terminal may know few signs: such a sign is shown by its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def with_mend(error: FailsoftError | OSError) -> str:
    """What an error says, in one line, and what to do next where it does not say that itself."""
    words = " ".join(str(error).splitlines())
    if _SAYS_A_MEND.search(words):
        return words
    return f"{words}; next: {error.mend if isinstance(error, FailsoftError) else FailsoftError.mend}"


if __name__ == "__main__":
    main()
