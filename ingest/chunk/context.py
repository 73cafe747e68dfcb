"""The contextual header: what a chunk's reader and its vector should know of where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from ingest.chunk.graphemes import last_border
from ingest.chunk.tokens import Tokenizer
from ingest.model import Assembled

ARROW = " › "
BETWEEN = "\n\n"


def embed_text(header: str, text: str) -> str:
    """What is embedded for a chunk: its header, an empty line, its text."""
    return f"{header}{BETWEEN}{text}" if header else text


def title_of(assembled: Assembled) -> str:
    """The document's title, or its file name without folder and extension, on one line."""
    return one_line(assembled.title) or one_line(PurePosixPath(assembled.document.key).stem)


def one_line(text: str) -> str:
    """``text`` with whitespace runs as one space."""
    return " ".join(text.split())


class Headers:
    """Headers of one document's chunks, ``title › heading › heading``, each at most ``budget`` tokens."""

    def __init__(self, title: str, budget: int, tokenizer: Tokenizer) -> None:
        self._title = title
        self._budget = budget
        self._tokenizer = tokenizer
        self._known: dict[tuple[str, ...], str] = {}

    def of(self, path: Sequence[str]) -> str:
        """The header for a heading path; the headings between title and the last one go first when it is too long."""
        key = tuple(path)
        if key not in self._known:
            self._known[key] = self._build(key) if self._budget else ""
        return self._known[key]

    def _build(self, path: tuple[str, ...]) -> str:
        parts = [part for n, part in enumerate(path) if part and part != self._title and part not in path[:n]]
        for first in range(len(parts)):
            header = ARROW.join([self._title, *parts[first:]])
            if self._tokenizer.count(header) <= self._budget:
                return header
        title = shorten(self._title, self._budget // 2 if parts else self._budget, self._tokenizer)
        rest = shorten(parts[-1], self._budget - self._tokenizer.count(title + ARROW), self._tokenizer) if parts else ""
        if title and rest:
            return f"{title}{ARROW}{rest}"
        return shorten(self._title, self._budget, self._tokenizer)


def shorten(text: str, budget: int, tokenizer: Tokenizer) -> str:
    """The longest beginning of ``text`` of at most ``budget`` tokens, in whole words if one fits; may be empty."""
    while text and tokenizer.count(text) > budget:
        limit = tokenizer.map(text).after(0, max(0, budget), len(text))
        space = text.rfind(" ", 0, limit + 1)
        cut = space if space > 0 else last_border(text, 0, limit)
        text = text[:cut].rstrip() if 0 < cut < len(text) else ""
    return text
