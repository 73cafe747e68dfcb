"""Lines on a page become paragraphs, headings and code; knows nothing of the engine they came from."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.model import Block
from ingest.parse.clean import clean

Box = tuple[float, float, float, float]

_HEADING_RATIO = 1.12  # of the body's size; below it lie the differences between fonts of one text
_LEVELS = ((1.75, 1), (1.4, 2), (1.2, 3))  # by ratio and not by rank, so that all segments of a document agree
_HEADING_CHARS = 250
_NUMBERED = re.compile(r"(?:\d+|[A-Z])(?:\.\d+)*\.?\s+\S|(?:chapter|section|part|appendix)\s", re.I)
_LETTERS = re.compile(r"[^\W\d_].*[^\W\d_]", re.S)
_LEADER = re.compile(r"(?:\.\s?){4}")  # dots that lead to a page number: a line of a table of contents
_NOT_WORD = re.compile(r"[\W_]+")
_TINY = 0.5  # points: nobody reads it
_TEXT, _CODE = ("text", 0, False), ("code", 0, False)  # kind, level, hidden
_MONO_ADVANCE = 0.6  # width of a monospaced letter by its size, nearly the same in all such fonts


@dataclass(frozen=True, slots=True)
class Line:
    """Style and place of a line; ``bbox`` and the height of its baseline in points."""

    bold: bool
    mono: bool
    bbox: Box
    base: float
    hidden: bool = False


Item = tuple[str, float, Line]  # a line's text, its size in points, its style and place


@dataclass(slots=True)
class RawBlock:
    """A block as the engine gave it, line by line; blank lines are left out."""

    lines: list[Item] = field(default_factory=list)
    repairs: int = 0
    unmapped: int = 0

    def add(self, text: str, size: float, line: Line) -> None:
        """One more line, cleaned; U+FFFD, the sign of a glyph without a letter, is counted and taken out."""
        text, repairs = clean(text)
        lost = text.count("\ufffd")
        if lost:
            text = text.replace("\ufffd", "")
        self.repairs += repairs + lost
        self.unmapped += lost
        text = text.strip()
        if text:
            self.lines.append((text.replace("\n", " "), size, line))


def body_size(blocks: Iterable[RawBlock]) -> float:
    """The size in points that most characters have; 0 without text."""
    count: Counter[float] = Counter()
    for block in blocks:
        for text, size, _ in block.lines:
            count[round(size, 1)] += len(text)
    return count.most_common(1)[0][0] if count else 0.0


def outline_titles(outline: Iterable[tuple[int, str, int]]) -> Mapping[int, Sequence[tuple[str, int]]]:
    """Page → (title reduced to letters and digits, level) of a table of contents."""
    titles: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for level, title, page in outline:
        if reduced := _reduce(title):
            titles[page].append((reduced, level))
    return titles


def build_blocks(raws: Sequence[RawBlock], body: float, titles: Sequence[tuple[str, int]]) -> tuple[Block, ...]:
    """Blocks of one page; ``body`` is the size of ordinary text, ``titles`` what the outline says of this page."""
    heads = _outline_heads(raws, titles) if titles else {}
    return tuple(block for index, raw in enumerate(raws) for block in _split(raw.lines, body, heads.get(index)))


def _split(lines: Sequence[Item], body: float, head: tuple[int, int] | None) -> Iterator[Block]:
    if head:
        yield _make("heading", lines[: head[0]], head[1])
        lines = lines[head[0] :]
    if len(lines) > 1 and all(_key(item, body) == _CODE for item in lines):
        yield _make("code", lines)
        return
    run: list[Item] = []
    run_key = _TEXT
    for item in lines:
        key = _key(item, body)
        key = _TEXT if key == _CODE else key  # prose that only begins in the font of code
        if run and key != run_key:
            yield _finish(run_key, run)
            run = []
        run_key = key
        run.append(item)
    if run:
        yield _finish(run_key, run)


def _key(item: Item, body: float) -> tuple[str, int, bool]:
    text, size, line = item
    if line.hidden or size < _TINY:
        return "text", 0, True
    if body and size >= body * _HEADING_RATIO:
        return "heading", next((level for ratio, level in _LEVELS if size >= body * ratio), 4), False
    if line.mono:
        return _CODE
    if line.bold and len(text) <= 80 and text[-1] not in ".:;," and _NUMBERED.match(text):
        return "heading", 4, False
    return _TEXT


def _finish(key: tuple[str, int, bool], run: Sequence[Item]) -> Block:
    kind, level, is_hidden = key
    if kind == "heading" and not _may_head(run):
        kind, level = "text", 0
    return _make(kind, run, level, is_hidden)


def _may_head(run: Sequence[Item]) -> bool:
    text = " ".join(item[0] for item in run)
    return len(text) <= _HEADING_CHARS and _LETTERS.search(text) is not None and _LEADER.search(text) is None


def _make(kind: str, run: Sequence[Item], level: int = 0, is_hidden: bool = False) -> Block:
    boxes = [item[2].bbox for item in run]
    box = (
        round(min([b[0] for b in boxes]), 1),
        round(min([b[1] for b in boxes]), 1),
        round(max([b[2] for b in boxes]), 1),
        round(max([b[3] for b in boxes]), 1),
    )
    rows = _rows(run, box[0] if kind == "code" else None)
    if kind == "text" and len(rows) > 1 and 2 * (len(run) - len(rows)) >= len(rows):
        kind = "list"  # a table or a table of contents: its rows are lines that must not run into each other
    return Block(kind, "\n".join(rows), level, box, is_hidden)


def _rows(run: Sequence[Item], left: float | None) -> list[str]:
    """Texts of a run row by row: cells on one baseline in one; lines of code with the spaces their place stands for."""
    rows: list[str] = []
    before = -1e9
    for text, size, line in run:
        if abs(line.base - before) < 0.2 * size:
            rows[-1] += " " + text
        elif left is not None and size:
            columns = round((line.bbox[0] - left) / (size * _MONO_ADVANCE))
            rows.append(" " * min(40, max(0, columns)) + text)
        else:
            rows.append(text)
        before = line.base
    return rows


def _outline_heads(raws: Sequence[RawBlock], titles: Sequence[tuple[str, int]]) -> dict[int, tuple[int, int]]:
    """Index of a block → (lines that make the title, level). Of a title that stands twice, the larger one."""
    best: dict[str, tuple[float, int, int, int]] = {}
    for index, raw in enumerate(raws):
        for title, level, count in _outline_match(raw.lines, titles):
            best[title] = max(best.get(title, (0.0, 0, 0, 0)), (raw.lines[0][1], index, count, level))
    return {index: (count, level) for _, index, count, level in best.values()}


def _outline_match(lines: Sequence[Item], titles: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int, int]]:
    joined = ""
    for count, item in enumerate(lines[:3], 1):
        joined += _reduce(item[0])
        for title, level in titles:
            if joined == title or (joined.endswith(title) and _is_number(joined[: -len(title)])):
                yield title, level, count
                return


def _is_number(prefix: str) -> bool:
    return prefix.isdecimal() or prefix in ("chapter", "section") or (len(prefix) <= 8 and prefix[-1:].isdecimal())


def _reduce(text: str) -> str:
    return _NOT_WORD.sub("", unicodedata.normalize("NFKC", text).casefold())
