"""Texts to the token ids that a model reads, cut to its limit, in micro-batches of similar length."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ingest.embed.model_files import ModelFiles


@dataclass(frozen=True, slots=True)
class Batch:
    """``rows`` (b,) are positions in the call; ``ids`` and ``mask`` int64 (b, longest)."""

    rows: np.ndarray
    ids: np.ndarray
    mask: np.ndarray


class TokenRows:
    """The model's tokenizer; a control token spelled in a text is ordinary text. Safe to call from several threads."""

    def __init__(self, files: ModelFiles) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        from tokenizers import Tokenizer

        self._backend = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
        self._backend.no_truncation()  # cut by hand below: setting it per call is not thread-safe
        self._backend.no_padding()
        self._backend.encode_special_tokens = True
        self._files = files
        around = self._backend.encode("a", add_special_tokens=True)
        body = [n for n, special in enumerate(around.special_tokens_mask) if not special]
        self._before = list(around.ids[: body[0]])
        self._behind = list(around.ids[body[-1] + 1 :])
        self._room = files.max_tokens - len(self._before) - len(self._behind)

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Number of texts with more tokens than the model reads."""
        return sum(len(body) > self._room for body in self._bodies(texts))

    def batches(self, texts: Sequence[str], rows: int) -> Iterator[Batch]:
        """All texts, longest first, so that each micro-batch of ``rows`` is padded little."""
        ids = [[*self._before, *body[: self._room], *self._behind] for body in self._bodies(texts)]
        order = sorted(range(len(ids)), key=lambda n: -len(ids[n]))
        for first in range(0, len(order), rows):
            yield self._batch(ids, order[first : first + rows])

    def _batch(self, ids: Sequence[Sequence[int]], rows: Sequence[int]) -> Batch:
        longest = max(len(ids[row]) for row in rows)
        padded = np.full((len(rows), longest), self._files.pad_id, np.int64)
        mask = np.zeros((len(rows), longest), np.int64)
        for n, row in enumerate(rows):
            padded[n, : len(ids[row])] = ids[row]
            mask[n, : len(ids[row])] = 1
        return Batch(np.asarray(rows), padded, mask)

    def _bodies(self, texts: Sequence[str]) -> list[list[int]]:
        clean = [text.strip().lower() if self._files.lower_case else text.strip() for text in texts]
        return [encoding.ids for encoding in self._backend.encode_batch(clean, add_special_tokens=False)]
