"""Every setting, read off the source: its class, its type, its default, and what its own docstring says of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_ENDINGS = ("Policy", "Config", "Settings", "Cadence")
_ALSO = frozenset({"LoopPlan", "ValidationPlan"})
_SIDES = {
    "train_jobs": "Training, the job",
    "failsoft.training": "Training",
    "failsoft.serving": "Serving",
    "failsoft.release": "Releases",
    "failsoft.health": "Health, on both sides",
    "failsoft.models": "The example's models",
}
_INTRO = """# Settings

Every class that holds settings, read off the source by `failsoft settings --markdown`. All of them are frozen and
keyword-only, and refuse in a sentence what can't work. `failsoft settings NAME` prints those whose class or field has
that name.
"""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field: its name, its type and default as written, and its docstring in one line."""

    name: str
    type: str
    default: str
    said: str


@dataclass(frozen=True, kw_only=True)
class SettingsClass:
    """A class that holds settings."""

    name: str
    module: str
    said: str
    settings: tuple[Setting, ...]

    @property
    def side(self) -> str:
        """The heading under which it stands."""
        return next(title for package, title in _SIDES.items() if self.module.startswith(package))


def all_settings(sources: Sequence[Path]) -> list[SettingsClass]:
    """Those of the packages in these folders, side by side as :data:`_SIDES` has them, then by module.

    Args:
        sources: folders of packages, like ``…/failsoft`` and ``…/train_jobs``.
    """
    found = [there for source in sources for there in _of_package(source)]
    order = list(_SIDES.values())
    return sorted(found, key=lambda there: (order.index(there.side), there.module, there.name))


def matching(classes: Sequence[SettingsClass], name: str) -> list[SettingsClass]:
    """Those whose class or one of whose fields has the name, whatever its case."""
    wanted = name.casefold()
    return [
        there
        for there in classes
        if wanted in {there.name.casefold(), *(setting.name.casefold() for setting in there.settings)}
    ]


def as_markdown(classes: Sequence[SettingsClass]) -> str:
    """The whole page, with a table for each class."""
    lines, side = [_INTRO.rstrip("\n")], ""
    for there in classes:
        if there.side != side:
            side = there.side
            lines += ["", f"## {side}"]
        lines += ["", f"### {there.name}", "", f"`{there.module}` · {there.said}", ""]
        lines += ["| field | type | default | |", "|---|---|---|---|"]
        for setting in there.settings:
            cells = (f"`{setting.name}`", f"`{setting.type}`", f"`{setting.default}`" if setting.default else "–")
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (*cells, setting.said))} |")
    return "\n".join(lines) + "\n"


def _of_package(folder: Path) -> Iterator[SettingsClass]:
    for path in sorted(folder.rglob("*.py")):
        module = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        if module.startswith(tuple(_SIDES)):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and _holds_settings(node):
                    said = _one_line(ast.get_docstring(node) or "")
                    yield SettingsClass(name=node.name, module=module, said=said, settings=tuple(_fields(node)))


def _holds_settings(node: ast.ClassDef) -> bool:
    named = node.name.endswith(_ENDINGS) or node.name in _ALSO
    return named and not node.name.startswith("_") and any(True for _ in _fields(node))


def _fields(node: ast.ClassDef) -> Iterator[Setting]:
    """Annotated names at the class's level; the string that follows one is its docstring."""
    following = [*node.body[1:], None]
    for statement, after in zip(node.body, following, strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield Setting(
                name=statement.target.id,
                type=ast.unparse(statement.annotation),
                default=_default(statement.value),
                said=_one_line(_string(after)),
            )


def _default(value: ast.expr | None) -> str:
    """As written; of ``field(default_factory=X)`` the call ``X()``, else nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in {"field", "Field"}:
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        if "default_factory" in given:
            return f"{ast.unparse(given['default_factory'])}()"
        first = given.get("default", value.args[0] if value.args else None)
        return "" if first is None else ast.unparse(first)
    return ast.unparse(value)


def _string(statement: ast.stmt | None) -> str:
    holds = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    text = statement.value.value if holds else ""  # type: ignore[union-attr]  # as just asked
    return text if isinstance(text, str) else ""


def _one_line(text: str) -> str:
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())
