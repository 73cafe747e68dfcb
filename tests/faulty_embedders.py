"""Embedders that fail in the ways real ones do; ``ingest.embed.BACKENDS`` names them in a test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ingest.embed import CANARY
from ingest.embed.choice import Choice, Description
from ingest.embed.hashing import HashingEmbedder

POISON = "POISONMARK"


class Nan(HashingEmbedder):
    """Gives NaN for a text with the mark in it."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        vectors = super().embed(texts)
        vectors[[POISON in text for text in texts]] = np.nan
        return vectors


class Dead(HashingEmbedder):
    """Answers the canary, then nothing any more."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if list(texts) != [CANARY]:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return super().embed(texts)


class Fragile(HashingEmbedder):
    """Fails on a call that holds a text with the mark."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if any(POISON in text for text in texts):
            raise RuntimeError("index out of range in self")
        return super().embed(texts)


def open_fragile(folder: Path, choice: Choice, description: Description) -> Fragile:
    return Fragile(description)


def open_nan(folder: Path, choice: Choice, description: Description) -> Nan:
    return Nan(description)


def open_dead(folder: Path, choice: Choice, description: Description) -> Dead:
    return Dead(description)
