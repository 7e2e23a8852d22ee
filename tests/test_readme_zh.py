"""The Chinese README says what the English one says: the same commands, names, figures and links, block by block.

Words can't be compared; what a reader copies or relies on can. A difference is named by section, block and the English
words that begin it, with what is missing and what is too much.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import pytest

from tests.conftest import ROOT

ENGLISH, CHINESE = "README.md", "README.zh-CN.md"
TITLE = "top"
LANGUAGE_LINKS = {ENGLISH: f"[简体中文]({CHINESE})", CHINESE: f"[English]({ENGLISH})"}
UNITS = {"毫秒": "ms", "微秒": "µs", "μs": "µs", "秒": "s"}
QUANTITY = re.compile(r"(\d+(?:\.\d+)*)(?:\s*(%|ms|[µμ]s|s|M?B|M|毫秒|微秒|秒)(?![A-Za-z]))?")
COMMENT = re.compile(r"(?:^|\s+)#(?=\s)")
HAN = re.compile(r"[\u4e00-\u9fff]")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One heading, paragraph, list item, row of a table, or line of code, joined to one line."""

    kind: str
    text: str
    place: str

    def named(self) -> str:
        """Where it is, and how it begins."""
        return f"{self.place}: {self.kind} {self.text[:60]!r}"


def kind_of(line: str) -> str:
    starts = {"|": "row", "- ": "item", "![": "image"}
    return next((kind for start, kind in starts.items() if line.startswith(start)), "paragraph")


def blocks(document: str) -> Iterator[Block]:
    """In order. A line goes on with the paragraph or item above it unless it begins something itself."""
    place, kind, held, in_code = TITLE, "", "", False
    for line in [*document.splitlines(), ""]:
        heading = not in_code and line.startswith("#")
        fence = line.startswith("```")
        begins = (
            heading or fence or in_code or not line or kind_of(line) != "paragraph" or kind not in {"paragraph", "item"}
        )
        if begins and held:
            yield Block(kind=kind, text=held, place=place)
            held, kind = "", ""
        if heading:
            place = line.lstrip("# ")
            held, kind = line, "heading " + "#" * (len(line) - len(line.lstrip("#")))
        elif fence or in_code:
            held, kind = line, "fence" if fence else "code"
            in_code ^= fence
        elif line:
            held, kind = (f"{held} {line}" if held else line), kind or kind_of(line)


def read(name: str) -> list[Block]:
    """Without the line that leads to the other language."""
    return [block for block in blocks((ROOT / name).read_text("utf-8")) if block.text != LANGUAGE_LINKS[name]]


def halves(block: Block) -> tuple[str, str]:
    """What must be equal byte for byte, and what may be translated: of a line of code its comment, else all of it."""
    if block.kind not in {"code", "fence"}:
        return "", block.text
    found = COMMENT.search(block.text)
    return (block.text[: found.start()], block.text[found.end() :]) if found else (block.text, "")


def spans(block: Block) -> Counter[str]:
    """What stands between backticks outside code."""
    return Counter() if block.kind in {"code", "fence"} else Counter(re.findall(r"`([^`]+)`", block.text))


def links(block: Block) -> Counter[str]:
    """Targets, a picture's with its mark."""
    return Counter("".join(found) for found in re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", halves(block)[1]))


def prose(block: Block) -> str:
    """What may be translated, without spans and targets, digits in their plain form and thousands closed up."""
    text = re.sub(r"`[^`]+`|\]\([^)]+\)", " ", unicodedata.normalize("NFKC", halves(block)[1]))
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)


def figures(block: Block) -> Counter[str]:
    """Digits as written, so 20.60 is not 20.6; those in names (F1, p99, FSDP2) too, and options named in comments."""
    text = prose(block)
    return Counter(number for number, _ in QUANTITY.findall(text)) + Counter(re.findall(r"--[a-z][a-z-]*", text))


def measures(block: Block) -> Counter[str]:
    """Figures that have a unit. Chinese repeats it where English names it once for several: ``40 and 100 %``."""
    return Counter(number + UNITS.get(unit, unit) for number, unit in QUANTITY.findall(prose(block)) if unit)


def emphases(block: Block) -> Counter[str]:
    """How often something is set bold."""
    return Counter({"bold": len(re.findall(r"\*\*[^*]+\*\*", prose(block)))})


def cells(block: Block) -> Counter[str]:
    """Columns of a row of a table."""
    return Counter({"columns": block.text.count("|") - 1}) if block.kind == "row" else Counter()


def difference(english: Block, chinese: Block, judge: Callable[[Block], Counter[str]]) -> str:
    missing, extra = judge(english) - judge(chinese), judge(chinese) - judge(english)
    if judge is measures:
        extra = Counter()
    said = [f"{word} {sorted(what.elements())}" for word, what in (("missing", missing), ("extra", extra)) if what]
    return f"{english.named()}: in Chinese {', '.join(said)}" if said else ""


def shape(document: list[Block]) -> list[tuple[str, list[Block]]]:
    """Sections in order, each with its blocks; a section begins at its heading."""
    sections: list[tuple[str, list[Block]]] = []
    for block in document:
        if block.kind.startswith("heading") or not sections:
            sections.append((block.place, []))
        sections[-1][1].append(block)
    return sections


def first_that_differs(english: list[Block], chinese: list[Block]) -> str:
    for ours, theirs in zip_longest(english, chinese):
        if ours is None or theirs is None or ours.kind != theirs.kind:
            return (
                f"{ours.named() if ours else 'nothing more'} stands against {theirs.named() if theirs else 'nothing'}"
            )
    return ""


def pairs() -> list[tuple[Block, Block]]:
    """Blocks side by side, of sections of one shape: in the others each would be held against a stranger."""
    sections = zip(shape(read(ENGLISH)), shape(read(CHINESE)), strict=False)
    alike = [(ours, theirs) for (_, ours), (_, theirs) in sections if not first_that_differs(ours, theirs)]
    return [pair for ours, theirs in alike for pair in zip(ours, theirs, strict=True)]


def test_each_readme_leads_to_the_other_before_anything_else() -> None:
    for name, link in LANGUAGE_LINKS.items():
        assert (ROOT / name).read_text("utf-8").splitlines()[2] == link, f"line 3 of {name} is to be {link}"


def test_sections_have_the_same_headings_paragraphs_items_rows_and_lines_of_code() -> None:
    english, chinese = shape(read(ENGLISH)), shape(read(CHINESE))
    both = zip(english, chinese, strict=False)
    wrong = [said for (_, ours), (_, theirs) in both if (said := first_that_differs(ours, theirs))]
    assert not wrong, "\n".join(["", *wrong])
    assert len(english) == len(chinese), f"sections: {[name for name, _ in english]}, {[name for name, _ in chinese]}"


def test_code_is_the_same_byte_for_byte_up_to_its_comments() -> None:
    code = [(ours, theirs) for ours, theirs in pairs() if ours.kind in {"code", "fence"}]
    assert code
    assert [ours.named() for ours, theirs in code if halves(ours)[0] != halves(theirs)[0]] == []
    assert [ours.named() for ours, theirs in code if bool(halves(ours)[1]) != bool(halves(theirs)[1])] == []


@pytest.mark.parametrize("judge", [spans, links, figures, measures, emphases, cells], ids=lambda judge: judge.__name__)
def test_each_block_has_the_same(judge: Callable[[Block], Counter[str]]) -> None:
    assert any(judge(ours) for ours, _ in pairs()), "nothing was compared"
    wrong = [said for ours, theirs in pairs() if (said := difference(ours, theirs, judge))]
    assert not wrong, "\n".join(["", *wrong])


def test_no_block_is_left_in_english() -> None:
    rules = re.compile(r"[|\-]+")
    written = [block for block in read(CHINESE) if block.text != "# failsoft" and not rules.fullmatch(block.text)]
    assert [
        block.named() for block in written if re.search("[a-z]", prose(block)) and not HAN.search(prose(block))
    ] == []


def test_chinese_is_set_with_its_own_punctuation_and_space_around_latin_words() -> None:
    text = "\n".join(prose(block) for block in map(as_written, read(CHINESE)))
    assert re.findall(r".{0,12}[\u4e00-\u9fff] ?[,;:?()].{0,12}", text) == []
    assert re.findall(r".{0,12}(?:[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9%][\u4e00-\u9fff]).{0,12}", text) == []


def as_written(block: Block) -> Block:
    """Full-width marks kept apart from half-width ones, which the plain form of digits makes equal."""
    return Block(kind=block.kind, text=re.sub("[\uff00-\uffef]", " ", block.text), place=block.place)


def one(text: str) -> Block:
    return next(blocks(text))


def test_a_figure_is_found_whatever_its_thousands_sign_width_or_unit() -> None:
    assert figures(one("0 of 3,262 in 20.60 % by 10, 30, 90 s")) == figures(
        one("10、30、90 秒 ３２６２ 中 0 个，20.60%")
    )
    assert figures(one("20.60 %")) != figures(one("20.6%"))


def test_a_unit_that_was_changed_is_named() -> None:
    assert difference(one("in 644 ms"), one("644 毫秒"), measures) == ""
    assert (
        difference(one("in 644 ms"), one("644 秒"), measures)
        == "top: paragraph 'in 644 ms': in Chinese missing ['644ms']"
    )


def test_a_figure_of_one_row_does_not_stand_for_that_of_another() -> None:
    english, chinese = blocks("| a | 1 |\n| b | 2 |"), blocks("| 甲 | 2 |\n| 乙 | 1 |")
    wrong = [difference(ours, theirs, figures) for ours, theirs in zip(english, chinese, strict=True)]
    assert wrong[0] == "top: row '| a | 1 |': in Chinese missing ['1'], extra ['2']"


def test_a_paragraph_that_only_one_has_is_named() -> None:
    assert first_that_differs(list(blocks("a\n\nb")), list(blocks("甲"))) == "top: paragraph 'b' stands against nothing"
