"""Places between user-perceived characters (extended grapheme clusters, ``\\X``)."""

from __future__ import annotations

import regex

_CLUSTER = regex.compile(r"\X")


def splits(text: str, at: int) -> bool:
    """Whether a cut at ``at`` would split a cluster, judged from the character before it.

    Exact when that character is whitespace or punctuation, because no cluster rule looks further back past these.
    """
    if at <= 0 or at >= len(text):
        return False
    if text[at] < "\x80" and text[at - 1] < "\x80":
        return text[at - 1] == "\r" and text[at] == "\n"
    found = _CLUSTER.match(text, at - 1)
    return found is not None and found.end() > at


def last_border(text: str, start: int, limit: int) -> int:
    """Last cluster border in ``(start, limit]``, or the end of the first cluster if none; ``start`` is a border."""
    if start + 1 < limit < len(text) and text[limit - 1] < "\x80" and text[limit] < "\x80" and not splits(text, limit):
        return limit
    best = start
    for found in _CLUSTER.finditer(text, start):
        if found.end() > limit:
            return best if best > start else found.end()
        best = found.end()
    return best


def first_border(text: str, start: int, low: int) -> int:
    """First cluster border at or after ``low``; ``start`` is a border at or before it."""
    for found in _CLUSTER.finditer(text, start):
        if found.start() >= low:
            return found.start()
    return len(text)


def is_one(text: str, start: int, end: int) -> bool:
    """Whether ``text[start:end]`` is a single cluster."""
    found = _CLUSTER.match(text, start)
    return found is not None and found.end() >= end


def skip_space(text: str, start: int, end: int) -> int:
    """First place at or after ``start`` that is not whitespace, without stopping inside a cluster."""
    while start < end and text[start].isspace():
        after = start + (2 if text.startswith("\r\n", start) else 1)
        if splits(text, after):  # a space that carries a combining mark is text
            return start
        start = after
    return start


def strip_space(text: str, start: int, end: int) -> int:
    """End of ``text[start:end]`` without trailing whitespace, without stopping inside a cluster."""
    while end > start and text[end - 1].isspace():
        before = end - (2 if text.startswith("\r\n", end - 2) and end - 2 >= start else 1)
        if splits(text, before):
            return end
        end = before
    return end
