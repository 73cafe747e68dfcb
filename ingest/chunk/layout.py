"""Where an assembled document may be cut, strongest first: section, block, row or line, sentence, word."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import regex

from ingest.chunk.context import one_line
from ingest.chunk.graphemes import last_border, skip_space, splits
from ingest.model import Assembled, Span

LINED = frozenset({"list", "code"})  # a line is a unit there; in running text it is only where the page ended

# A full stop ends a sentence only before something that can begin one; CJK marks need no space behind them.
_SENTENCE = regex.compile(
    r"""[.!?…؟۔।][\p{Pe}\p{Pf}"']*\s+(?=[\p{Lu}\p{Lt}\p{Lo}\p{N}\p{Ps}\p{Pi}"'])|[。！？｡]+[\p{Pe}\p{Pf}"']*\s*"""
)
_MARK = 4  # code points that the mark, a closing quote and spaces before a sentence start usually take
_WORD = regex.compile(r"\s+")
_RULE = regex.compile(r"[\s|:+=-]*-[\s|:+=-]*")  # the line under a markdown table's header
# Written without spaces between words, so a cut between two of these is no cut inside a word.
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]{2}")


@dataclass(frozen=True, slots=True)
class Table:
    """A table block: ``rows`` are the starts of its lines, ``body`` is where its first data row starts."""

    start: int
    end: int
    rows: tuple[int, ...]
    body: int
    header: str


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of ``level`` at ``start``."""

    start: int
    level: int
    title: str


class Layout:
    """Borders of one document, found once. ``max_level``: headings up to it start a section."""

    def __init__(self, assembled: Assembled, max_level: int) -> None:
        self._text = text = assembled.text
        self._blocks = [block for span in assembled.spans if (block := _whole(text, span)) is not None]
        self._starts = [skip_space(text, block.start, block.end) for block in self._blocks]
        runs = list(_heading_runs(self._blocks))
        self.sections = [self._starts[a] for a, b in runs if min(s.level for s in self._blocks[a:b]) <= max_level]
        behind_heading = {b for _, b in runs if b < len(self._blocks)}
        inside_run = {n for a, b in runs for n in range(a + 1, b)}
        self._run_of = {
            self._starts[n]: self._starts[a] for a, b in runs for n in range(a, min(b + 1, len(self._starts)))
        }
        led = behind_heading | inside_run
        self.blocks = [at for n, at in enumerate(self._starts) if n not in led]
        self._tables = [_table(text, block) for block in self._blocks if block.kind == "table"]
        self._table_starts = [table.start for table in self._tables]
        self._headings = [
            Heading(s, b.level or 1, one_line(text[b.start : b.end]))
            for s, b in zip(self._starts, self._blocks, strict=True)
            if b.kind == "heading"
        ]
        self._heading_starts = [heading.start for heading in self._headings]
        self._paths = list(_paths(self._headings))

    # ------------------------------------------------------------ what stands where

    def table_at(self, at: int) -> Table | None:
        """The table that a cut at ``at`` would divide."""
        index = bisect_left(self._table_starts, at) - 1
        return self._tables[index] if index >= 0 and at < self._tables[index].end else None

    def path_before(self, start: int) -> tuple[str, ...]:
        """Titles of the headings above the text at ``start``, those that begin there left out."""
        index = bisect_left(self._heading_starts, start)
        above = self._paths[index - 1] if index else ()
        if index < len(self._headings) and self._headings[index].start == start:
            level = self._headings[index].level
            above = tuple(heading for heading in above if heading.level < level)
        return tuple(heading.title for heading in above)

    def titles_within(self, start: int, end: int) -> tuple[str, ...]:
        """Titles of the headings that begin in ``[start, end)``."""
        within = slice(bisect_left(self._heading_starts, start), bisect_left(self._heading_starts, end))
        return tuple(heading.title for heading in self._headings[within])

    def run_start(self, at: int) -> int:
        """Where the headings begin that belong to the text at ``at``; ``at`` itself without such."""
        return self._run_of.get(at, at)

    def overlap_floor(self, at: int) -> int:
        """How far back a chunk that starts at ``at`` may repeat text: not into or behind a heading or table."""
        if not self._starts:
            return 0
        index = bisect_left(self._starts, at) - 1
        is_border = index + 1 < len(self._starts) and self._starts[index + 1] == at
        if is_border and self._blocks[index + 1].kind in ("heading", "table"):
            return at
        while index >= 0 and self._blocks[index].kind not in ("heading", "table"):
            index -= 1
        return min(at, self._starts[index + 1]) if index + 1 < len(self._starts) else at

    # ------------------------------------------------------------ weaker borders

    def line_before(self, floor: int, limit: int) -> int | None:
        """Last line start in ``[floor, limit]`` inside a list or code block."""
        block = self._block_at(limit)
        if block is None or block.kind not in LINED:
            return None
        at = self._text.rfind("\n", max(block.start, floor - 1), limit) + 1
        return at if floor <= at and not splits(self._text, at) and at > block.start else None

    def sentence_before(self, floor: int, limit: int) -> int | None:
        """Last sentence start in ``[floor, limit]``, not inside a heading or table and not right behind a heading."""
        ends = [found.end() for found in _SENTENCE.finditer(self._text, max(0, floor - _MARK), limit + 1)]
        return next((at for at in reversed(ends) if floor <= at <= limit and self._is_free(at)), None)

    def sentence_after(self, low: int, end: int) -> int | None:
        """First sentence start in ``[low, end)``."""
        found = (match.end() for match in _SENTENCE.finditer(self._text, max(0, low - _MARK), end))
        return next((at for at in found if low <= at < end and not splits(self._text, at)), None)

    def word_before(self, floor: int, limit: int) -> int | None:
        """Last word start in ``[floor, limit]``."""
        at = limit
        while at >= floor:
            if at > 0 and self._text[at - 1].isspace() and not splits(self._text, at):
                return at
            at -= 1
        return None

    def word_after(self, low: int, end: int) -> int | None:
        """First word start in ``[low, end)``."""
        found = (match.end() for match in _WORD.finditer(self._text, max(0, low - 1), end))
        return next((at for at in found if low <= at < end and not splits(self._text, at)), None)

    def is_unspaced(self, at: int) -> bool:
        """Whether the script around ``at`` has no spaces between words."""
        return _UNSPACED.match(self._text, max(0, at - 1)) is not None

    def _block_at(self, at: int) -> Span | None:
        index = bisect_right(self._starts, at) - 1
        return self._blocks[index] if index >= 0 and at <= self._blocks[index].end else None

    def _is_free(self, at: int) -> bool:
        block = self._block_at(at)
        divides = block is not None and block.kind in ("heading", "table") and at > block.start
        return not divides and self.run_start(at) == at and not splits(self._text, at)


def last_in(borders: Sequence[int], floor: int, limit: int) -> int | None:
    """Last of the ascending ``borders`` in ``[floor, limit]``."""
    index = bisect_right(borders, limit) - 1
    return borders[index] if index >= 0 and borders[index] >= floor else None


def first_in(borders: Sequence[int], floor: int, limit: int) -> int | None:
    """First of the ascending ``borders`` in ``[floor, limit]``."""
    index = bisect_left(borders, floor)
    return borders[index] if index < len(borders) and borders[index] <= limit else None


def _whole(text: str, span: Span) -> Span | None:
    """The span from its first whole cluster on: a combining mark at its start belongs to the space before it."""
    start = last_border(text, span.start - 1, span.start - 1) if splits(text, span.start) else span.start
    return replace(span, start=start) if text[start : span.end].strip() else None


def _heading_runs(blocks: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Ranges of blocks that are headings one behind the other."""
    first = None
    for index, block in enumerate(blocks):
        if block.kind == "heading":
            first = index if first is None else first
        elif first is not None:
            yield first, index
            first = None
    if first is not None:
        yield first, len(blocks)


def _paths(headings: Sequence[Heading]) -> Iterator[tuple[Heading, ...]]:
    stack: tuple[Heading, ...] = ()
    for heading in headings:
        stack = (*(above for above in stack if above.level < heading.level), heading)
        yield stack


def _table(text: str, block: Span) -> Table:
    rows = [block.start]
    while (at := text.find("\n", rows[-1], block.end) + 1) and at < block.end:
        rows.append(at)
    rows = [at for at in rows if not splits(text, at)]
    has_rule = len(rows) > 1 and _RULE.fullmatch(text[rows[1] : rows[2] if len(rows) > 2 else block.end]) is not None
    body = 2 if has_rule else 1
    header = one_line(text[rows[0] : rows[1]]) if len(rows) > body else ""
    return Table(block.start, block.end, tuple(rows), rows[body] if len(rows) > body else block.end, header)
