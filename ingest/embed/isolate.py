"""A call that fails: is it the model, or one of the texts?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ingest.embed.guard import CANARY, Checked, checked
from ingest.errors import EmbedError, StoreUnavailable


class _Embeds(Protocol):
    dimension: int

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors of a call; ``refused`` (n,) marks the texts on which the model failed, each alone."""

    vectors: Checked
    refused: np.ndarray


def embed(embedder: _Embeds, texts: Sequence[str]) -> Embedded:
    """Vectors of ``texts``; a text that breaks its call is found by halving. Raises StoreUnavailable.

    That is raised where the model does not answer for a harmless text either, or for none of several texts.
    """
    if not texts:
        return Embedded(Checked(np.zeros((0, embedder.dimension), np.float32), np.zeros(0, bool)), np.zeros(0, bool))
    found = _halved(embedder, texts)
    if len(texts) > 1 and found.refused.all():
        raise StoreUnavailable(
            f"the model failed on each of {len(texts)} texts alone; nothing is wrong with one of them"
        )
    return found


def _halved(embedder: _Embeds, texts: Sequence[str]) -> Embedded:
    try:
        return Embedded(checked(embedder.embed(texts), len(texts)), np.zeros(len(texts), bool))
    except Exception as error:  # noqa: BLE001 - every backend raises its own
        _require_answer(embedder, error)
    if len(texts) == 1:
        return Embedded(Checked(np.zeros((1, embedder.dimension), np.float32), np.zeros(1, bool)), np.ones(1, bool))
    middle = len(texts) // 2
    return _joined(_halved(embedder, texts[:middle]), _halved(embedder, texts[middle:]))


def _require_answer(embedder: _Embeds, error: Exception) -> None:
    if isinstance(error, EmbedError):  # an answer of the wrong shape says nothing about the texts
        raise StoreUnavailable(f"the embedder: {error}") from error
    try:
        embedder.embed([CANARY])
    except Exception as down:
        raise StoreUnavailable(f"the embedder does not answer: {type(error).__name__}: {error}") from down


def _joined(one: Embedded, other: Embedded) -> Embedded:
    vectors = np.concatenate([one.vectors.vectors, other.vectors.vectors])
    good = np.concatenate([one.vectors.good, other.vectors.good])
    return Embedded(Checked(vectors, good), np.concatenate([one.refused, other.refused]))
