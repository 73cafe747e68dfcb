"""Cheap decisions before the parse: which lane a document takes, and where its segments begin and end."""

from __future__ import annotations

LANES = {"pdf": "plain", "text": "plain", "markdown": "plain", "html": "plain"}


def plan(pages: int, pages_per_segment: int) -> tuple[tuple[int, int], ...]:
    """Page ranges (first, last; both read, from 1) of a document's segments; their lengths add up to ``pages``."""
    return tuple((first, min(first + pages_per_segment - 1, pages)) for first in range(1, pages + 1, pages_per_segment))


def lane(kind: str) -> str:
    """The lane of a format that the inspection let through."""
    return LANES[kind]
