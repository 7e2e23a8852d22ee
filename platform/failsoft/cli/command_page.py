"""Every command, read off the application itself, with what its exit codes say."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import typer

_EVERYWHERE = {
    0: "done",
    1: "not done: the one line on standard error says what was wrong, and the command that mends it",
    2: "the command line can't be parsed; nothing was done",
    130: "Ctrl-C",
}
"""Of every command. Where another meaning is listed below, that one holds as well."""
_TRAINING = {
    3: "stopped: too many batches refused, too many samples skipped; starting again would end the same way",
    4: "stopped: neither rollbacks nor restarts moved the run; starting again would end the same way",
    143: "told to leave (SIGTERM, `failsoft preempt`): all is saved, the same command goes on",
}
EXITS: Mapping[str, Mapping[int, str]] = {
    "train": {
        **_TRAINING,
        130: "a second Ctrl-C: the last checkpoint stands; with --submit the first one, and the job goes on",
    },
    "gate": {2: "a gate failed or could not be measured: the release must not serve"},
    "release publish": {2: "a gate failed: nothing was published"},
    "release promote": {2: "with --when-gated: a gate failed, nothing was promoted"},
    "simulate": {2: "the policy would trip on the healthy model, or miss the broken one"},
    "verify": {2: "a sample was lost or seen twice, or the record does not say"},
    "ckpt verify": {2: "a checkpoint is damaged"},
    "doctor": {1: "something is bad; its mend stands beside it"},
    "drill": {
        1: "nothing could be tried: without any fault the subject is not well, or the drill itself failed",
        2: "something was lost or undecided",
    },
    "preflight": {1: "a node must not take part, or there is none"},
    "alerts test": {1: "the target can't be reached, or did not take it"},
    "preempt": {143: "it was told, and has not left within --wait"},
    "purge": {2: "a copy of a removed text lies elsewhere in the home, and is named"},
    "events": {0: "done; also Ctrl-C with --follow"},
    "serve": {0: "done; also Ctrl-C, after all of it is stopped; with --address: the app runs on the cluster"},
    "alerts run": {0: "done; also Ctrl-C"},
}
"""What is particular to a command, by its name; where there is nothing, the table of all commands holds."""
_MARKUP = re.compile(r"\[/?(?:dim|bold|red|green|yellow)\]")
_TITLE = """# Commands

Made by `failsoft commands --markdown`; a test keeps it equal to the code. `--json` prints one JSON value (`events` and
`replay`: one a line) to standard output and nothing else there; progress and remarks go to standard error. Run with
`failsoft --install-completion`, a shell completes commands, options, and the names of runs, releases and incidents of
the home (`--home` on the line, else `$FAILSOFT_HOME`); `--show-completion` prints the script instead.

## Exit codes of every command

| code | meaning |
|---|---|
"""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An option or an argument."""

    name: str
    """As it is typed."""
    is_option: bool
    says: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command."""

    name: str
    """With its group, as in ``release gc``."""
    says: str
    parameters: tuple[Parameter, ...]
    exits: Mapping[int, str]
    """All codes that it ends with, the common ones included."""

    @property
    def first_sentence(self) -> str:
        """Of what it says of itself."""
        return " ".join(self.says.split("\n\n")[0].split())

    @property
    def has_json(self) -> bool:
        """Whether it answers programs."""
        return any(parameter.name.split(" ")[0].rstrip(",") == "--json" for parameter in self.parameters)


def all_commands(app: typer.Typer) -> list[Command]:
    """Every command of the application by name, groups last: its own order is that in which modules were loaded."""
    found = [_command(name, one) for name, one in _walk(typer.main.get_command(app), "")]
    return sorted(found, key=lambda one: (" " in one.name, one.name))


def as_json(command: Command) -> dict[str, Any]:
    """The same for programs."""
    return {
        "name": command.name,
        "says": command.says,
        "parameters": [asdict(one) for one in command.parameters],
        "exit_codes": {str(code): says for code, says in command.exits.items()},
    }


def as_markdown(commands: Sequence[Command]) -> str:
    """The page."""
    page = [_TITLE, *(f"| {code} | {says} |\n" for code, says in _EVERYWHERE.items()), "\n## Each command\n"]
    for one in commands:
        page += [f"\n### failsoft {one.name}\n\n", one.says, "\n"]
        if one.parameters:
            page += ["\n| | |\n|---|---|\n"]
            page += [f"| `{_cell(parameter.name)}` | {_cell(parameter.says)} |\n" for parameter in one.parameters]
        own = EXITS.get(one.name, {})
        page += ["\n" if own else "", *(f"Exit code {code}: {says}.\n" for code, says in own.items())]
    return "".join(page)


def _walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, one in inner.items():
        yield from _walk(one, f"{name} {word}".strip())


def _command(name: str, command: Any) -> Command:
    return Command(
        name=name,
        says=inspect.cleandoc(command.help or ""),
        parameters=tuple(_parameter(one) for one in command.params),
        exits=dict(sorted({**_EVERYWHERE, **EXITS.get(name, {})}.items())),
    )


def _parameter(one: Any) -> Parameter:
    is_option = one.param_type_name == "option"
    words = ", ".join([*one.opts, *one.secondary_opts]) if is_option else (one.metavar or one.name.upper())
    return Parameter(name=words, is_option=is_option, says=_says(one, is_option=is_option))


def _says(one: Any, *, is_option: bool) -> str:
    says = _MARKUP.sub("", one.help or "")
    default = one.default
    shown = default is not None and default is not False and default != () and not callable(default)
    if is_option and one.required:
        return f"{says} Required."
    return f"{says} Default: {getattr(default, 'value', default)}." if shown and default not in {"", True} else says


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
