"""Messages between the sandbox and its child: a length, then JSON.

JSON and not pickle: the child reads hostile files, and what it sends must not be able to run code in the parent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import orjson

from ingest.failure import failure
from ingest.model import Block, Failure, Page
from ingest.parse.result import ParsedPages

LENGTH = struct.Struct("<I")


def pack(message: dict[str, Any]) -> bytes:
    """A message with its length in front."""
    body = orjson.dumps(message)
    return LENGTH.pack(len(body)) + body


def unpack(read: Callable[[int], bytes]) -> dict[str, Any] | None:
    """The next message of a stream, or nothing at its end; ``read(n)`` gives n bytes, or fewer only at the end."""
    head = read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    length = LENGTH.unpack(head)[0]
    body = read(length)
    if len(body) < length:
        return None
    message: dict[str, Any] = orjson.loads(body)
    return message


def encode_pages(parsed: ParsedPages) -> dict[str, Any]:
    """Plain lists of parsed pages."""
    return {
        "pages": [
            (
                p.number,
                [(b.kind, b.text, b.level, b.bbox, b.hidden) for b in p.blocks],
                p.width,
                p.height,
                p.quality,
                p.notes,
            )
            for p in parsed.pages
        ],
        "engine": parsed.engine,
        "title": parsed.title,
        "outline": parsed.outline,
        "failed": [(number, f.reason, f.sentence) for number, f in parsed.failed_pages],
        "repairs": parsed.repairs,
    }


def decode_pages(plain: dict[str, Any]) -> ParsedPages:
    """Parsed pages from plain lists."""
    return ParsedPages(
        pages=tuple(_page(*row) for row in plain["pages"]),
        engine=plain["engine"],
        title=plain["title"],
        outline=tuple((level, title, page) for level, title, page in plain["outline"]),
        failed_pages=tuple((number, _failure(reason, sentence)) for number, reason, sentence in plain["failed"]),
        repairs=plain["repairs"],
    )


def _page(number: int, blocks: list[list[Any]], width: float, height: float, *rest: Any) -> Page:
    quality, notes = rest
    made = tuple(
        Block(kind, text, level, tuple(bbox) if bbox else None, hidden) for kind, text, level, bbox, hidden in blocks
    )
    return Page(number, made, width, height, quality, tuple(notes))


def _failure(reason: str, sentence: str) -> Failure:
    return Failure(failure(reason).branch, reason, sentence)
