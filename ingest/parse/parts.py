"""Formats without pages are cut into parts of bounded size, which count as pages everywhere after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ingest.errors import ParseError
from ingest.model import Block, Page
from ingest.parse.result import Inspection, ParsedPages

# Twenty parts make a segment: 400,000 characters are then the unit of retry.
PART_CHARS = 20_000

Read = Callable[[bytes], "Whole"]


@dataclass(frozen=True, slots=True)
class Whole:
    """All blocks of a file that has no pages."""

    blocks: tuple[Block, ...]
    title: str = ""
    repairs: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """The blocks of a file in parts of at most ``PART_CHARS``; repairs are counted on the first part."""

    pages: tuple[Page, ...]
    title: str
    repairs: int


def inspect_parts(path: str, kind: str, read: Read) -> Inspection:
    """Inspection of a file whose pages are parts; raises ParseError ``no_text`` for one without a word."""
    parts = _open(path, kind, read)
    if not parts.pages[0].blocks:
        raise ParseError("no_text", "the file holds no words")
    return Inspection(kind, len(parts.pages), parts.title)


def parse_parts(path: str, kind: str, read: Read, pages: tuple[int, int]) -> ParsedPages:
    """The parts ``pages`` (first, last; from 1) of a file."""
    first, last = pages
    parts = _open(path, kind, read)
    if last > len(parts.pages):
        raise ParseError("pages_missing", f"page {last} of {len(parts.pages)}")
    repairs = parts.repairs if first == 1 else 0
    return ParsedPages(parts.pages[first - 1 : last], f"{kind}-1", parts.title, repairs=repairs)


def cut(blocks: Iterable[Block], limit: int = PART_CHARS) -> Iterator[tuple[tuple[Block, ...], bool]]:
    """Blocks in parts of at most ``limit`` characters, and whether a part begins inside of a paragraph.

    They are cut between blocks where that can be, else at line ends or spaces. A run without any space stays whole: a
    part may be larger than the limit for it.
    """
    part: list[Block] = []
    size, continues = 0, False
    for block in blocks:
        for index, piece in enumerate(_pieces(block, limit)):
            if part and size + len(piece.text) > limit:
                yield tuple(part), continues
                part, size, continues = [], 0, index > 0 and block.kind != "table"
            part.append(piece)
            size += len(piece.text)
    if part:
        yield tuple(part), continues


def _pieces(block: Block, limit: int) -> Iterator[Block]:
    text = block.text
    header = text[: text.find("\n") + 1] if block.kind == "table" else ""
    start = 0
    while len(text) - start > limit:
        end = _cut_at(text, start, start + limit)
        if end >= len(text):
            break
        yield replace(block, text=(header if start else "") + text[start:end].strip("\n"))
        start = end + 1
    yield replace(block, text=(header if start else "") + text[start:]) if start else block


def _cut_at(text: str, start: int, end: int) -> int:
    for sign in ("\n", " "):
        found = text.rfind(sign, start + 1, end)
        if found > 0:
            return found
    beyond = [found for sign in ("\n", " ") if (found := text.find(sign, end)) >= 0]
    return min(beyond, default=len(text))


def _open(path: str, kind: str, read: Read) -> Parts:
    stat = Path(path).stat()
    return _read(path, kind, read, (stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=1)
def _read(path: str, kind: str, read: Read, stamp: tuple[int, int]) -> Parts:
    del stamp  # part of the cache's key: a new file under the old name is read again
    whole = read(Path(path).read_bytes())
    parts = tuple(cut(whole.blocks)) or (((), False),)
    pages = tuple(
        Page(number, blocks, notes=("continues",) if continues else ())
        for number, (blocks, continues) in enumerate(parts, 1)
    )
    return Parts(pages, whole.title, whole.repairs)
