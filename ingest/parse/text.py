"""Plain text: paragraphs between blank lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

from charset_normalizer import from_bytes

from ingest.model import Block
from ingest.parse.clean import clean
from ingest.parse.parts import Whole, inspect_parts, parse_parts
from ingest.parse.result import Inspection, ParsedPages

_SAMPLE_BYTES = 1 << 16
_BLANK = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
_SHORT_LINE = 50  # characters: prose that was wrapped by hand has longer lines than lists and addresses


def inspect(path: str) -> Inspection:
    """Number of parts of a text."""
    return inspect_parts(path, "text", read)


def parse(path: str, page_from: int, page_to: int) -> ParsedPages:
    """Paragraphs of some parts of a text."""
    return parse_parts(path, "text", read, (page_from, page_to))


def read(data: bytes) -> Whole:
    """All paragraphs of a text."""
    text, repairs = decode(data)
    return Whole(tuple(paragraphs(text)), repairs=repairs)


def paragraphs(text: str) -> Iterator[Block]:
    """The pieces between blank lines; one with several short lines is a ``list``, whose line breaks mean something."""
    for raw in _BLANK.split(text):
        piece = raw.strip("\n").rstrip()
        if piece.strip():
            lines = piece.split("\n")
            short = len(lines) > 2 and median(map(len, lines)) < _SHORT_LINE
            yield Block("list" if short else "text", piece)


def decode(data: bytes) -> tuple[str, int]:
    """The text of some bytes, cleaned, and the number of repairs: by byte order mark, as UTF-8, else by guess."""
    text, broken = _decode(data)
    text, repairs = clean(text.removeprefix("\ufeff"))
    return text, repairs + broken


def _decode(data: bytes) -> tuple[str, int]:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "surrogatepass" if len(data) % 2 == 0 else "ignore"), 0
    try:
        return data.decode("utf-8"), 0
    except UnicodeDecodeError:
        pass
    kept = data.decode("utf-8", "ignore")
    lost = len(data) - len(kept.encode())
    if lost * 50 < sum(byte > 127 for byte in data[:_SAMPLE_BYTES]):  # UTF-8 with a few broken bytes, no other charset
        return kept, lost
    return data.decode(_guess(data[:_SAMPLE_BYTES]), "ignore"), 0


def _guess(sample: bytes) -> str:
    best = from_bytes(sample).best()
    name = best.encoding if best is not None else "cp1252"
    return "cp1252" if name in ("ascii", "latin_1", "utf_8") else name
