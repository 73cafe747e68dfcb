"""A deterministic embedder without a model, for tests: texts that share words are near, on every machine alike."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from ingest.embed.choice import Choice, Description
from ingest.embed.guard import unit_rows

_WORD = re.compile(r"\w+")
_ENTRIES = 8  # places of the vector that a word touches


def open_hashing(folder: Path, choice: Choice, description: Description) -> HashingEmbedder:
    """The hashing embedder; ``folder`` is not looked at."""
    return HashingEmbedder(description)


class HashingEmbedder:
    """Sum of one sparse ±1 vector per word, at unit length."""

    def __init__(self, description: Description) -> None:
        self.fingerprint = description.fingerprint
        self.dimension = description.dimension
        self.max_tokens = description.max_tokens
        self.backend = description.backend
        self._seed = description.model  # dimension and seed are in its name
        self._places = lru_cache(1 << 16)(self._hashed)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (n, dimension), unit length; a text without a word gets a vector of its own."""
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            for word in _WORD.findall(text.casefold()) or ["", text]:
                places, signs = self._places(word)
                np.add.at(vectors[row], places, signs)
            if not vectors[row].any():  # the words cancelled out
                vectors[row, self._places(text)[0][0]] = 1.0
        return unit_rows(vectors)

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Always 0: every word counts."""
        return 0

    def _hashed(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        raw = hashlib.blake2b(f"{self._seed}\0{word}".encode(), digest_size=_ENTRIES * 4).digest()
        numbers = np.frombuffer(raw, dtype="<u4")
        return (numbers >> 1) % self.dimension, np.where(numbers & 1, 1.0, -1.0).astype(np.float32)
