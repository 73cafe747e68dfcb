"""Token positions of a text in the embedder's own tokenizer; the only importer of ``tokenizers`` in this package."""

from __future__ import annotations

import hashlib
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.errors import PreflightError

if TYPE_CHECKING:
    import tokenizers

# Code points encoded in one piece, and pieces in one call: a million '^' in one call took 0.6 GB, in pieces 0.05 GB.
PIECE = 4096
PIECES = 32

# These never join two words, so the tokens on both sides of a cut at whitespace are those of the uncut text.
_WORD_SPLITTING = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}


@dataclass(frozen=True, slots=True)
class TokenMap:
    """Where the tokens of a text start, in code points, ascending; ``unknown`` those that the vocabulary lacks.

    ``rough`` are the places where a run without whitespace was cut for encoding: counts across them are estimates.
    """

    starts: array[int]
    unknown: array[int]
    rough: array[int]

    def count(self, start: int, end: int) -> int:
        """Tokens that start in ``[start, end)``."""
        return bisect_left(self.starts, end) - bisect_left(self.starts, start)

    def unknowns(self, start: int, end: int) -> int:
        """Unknown tokens that start in ``[start, end)``."""
        return bisect_left(self.unknown, end) - bisect_left(self.unknown, start)

    def after(self, start: int, tokens: int, end: int) -> int:
        """Start of the first token that does not fit when ``tokens`` are taken from ``start`` on; at most ``end``."""
        index = bisect_left(self.starts, start) + tokens
        return min(self.starts[index], end) if index < len(self.starts) else end

    def before(self, end: int, tokens: int) -> int:
        """Start of the earliest of the last ``tokens`` tokens before ``end``."""
        index = bisect_left(self.starts, end)
        return self.starts[max(0, index - tokens)] if tokens and index else end

    def is_rough(self, start: int, end: int) -> bool:
        """Whether an estimate lies strictly inside ``(start, end)``."""
        index = bisect_left(self.rough, start + 1)
        return index < len(self.rough) and self.rough[index] < end


class Tokenizer:
    """Counts as the model does, but without its truncation and padding, and a control token in a text is just text.

    ``specials`` is the number of tokens that the model puts around every text; ``name`` changes with the vocabulary.
    ``is_additive``: words never share a token, so counts may be summed over whitespace.
    """

    def __init__(self, backend: tokenizers.Tokenizer, name: str) -> None:
        backend.no_truncation()  # MiniLM's file truncates at 128 and pads to 128
        backend.no_padding()
        backend.encode_special_tokens = True
        self._backend = backend
        self.name = name
        self.specials: int = backend.num_special_tokens_to_add(False)
        self.is_additive = type(backend.pre_tokenizer).__name__ in _WORD_SPLITTING
        self._unknown = _unknown_id(backend)

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer of the model in ``folder``. Raises PreflightError."""
        # One actor, one thread: a pool of threads in every actor would only fight over the same cores.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        from tokenizers import Tokenizer as Backend

        path = Path(folder) / "tokenizer.json"
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise PreflightError(f"{path}: {error.strerror}; the model needs a tokenizer.json") from error
        return cls(Backend.from_buffer(raw), hashlib.sha256(raw).hexdigest()[:12])

    def count(self, text: str) -> int:
        """Tokens of ``text`` alone, without special tokens."""
        return sum(len(encoding) for group, _ in self._encoded(text) for encoding in group)

    def map(self, text: str) -> TokenMap:
        """Positions of all tokens of ``text``; linear in its length."""
        found = TokenMap(array("I"), array("I"), array("I"))
        for group, offsets in self._encoded(text):
            for encoding, offset in zip(group, offsets, strict=True):
                starts = [start + offset for start, _ in encoding.offsets]
                if self._unknown is not None:
                    ids = encoding.ids
                    found.unknown.extend(s for s, token in zip(starts, ids, strict=True) if token == self._unknown)
                starts.sort()
                found.starts.extend(starts)
        found.rough.extend(start for start, _ in _pieces(text) if start and not text[start - 1].isspace())
        return found

    def _encoded(self, text: str) -> Iterator[tuple[list[tokenizers.Encoding], list[int]]]:
        pieces = list(_pieces(text))
        for first in range(0, len(pieces), PIECES):
            group = pieces[first : first + PIECES]
            encoded = self._backend.encode_batch([text[a:b] for a, b in group], add_special_tokens=False)
            yield encoded, [a for a, _ in group]


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Cuts behind whitespace, or after ``PIECE`` code points where there is none."""
    start = 0
    while len(text) - start > PIECE:
        end = _behind_space(text, start, start + PIECE)
        yield start, end
        start = end
    if start < len(text):
        yield start, len(text)


def _behind_space(text: str, start: int, limit: int) -> int:
    found = max(text.rfind("\n", start, limit), text.rfind(" ", limit - PIECE // 4, limit))
    return found + 1 if found > start else limit


def _unknown_id(backend: tokenizers.Tokenizer) -> int | None:
    token = getattr(backend.model, "unk_token", None)
    if token is None:  # Unigram keeps its number to itself
        token = next((t for t in ("<unk>", "[UNK]") if backend.token_to_id(t) is not None), None)
    return None if token is None else backend.token_to_id(token)
