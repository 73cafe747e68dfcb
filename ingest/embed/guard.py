"""What stands between a model and the index: no NaN, no zero vector, unit length, the model of yesterday."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ingest.errors import EmbedError, PreflightError

CANARY = "The quick brown fox jumps over the lazy dog near the river bank."
MIN_COSINE = 0.999  # half precision stays above it from one CPU to the next, a changed model does not


class _Embeds(Protocol):
    fingerprint: str

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Checked:
    """``vectors`` float32 (n, d) of length 1; rows that are not ``good`` (n,) are zeros and must not be stored."""

    vectors: np.ndarray
    good: np.ndarray


def checked(vectors: np.ndarray, rows: int) -> Checked:
    """Vectors at unit length in fp32; NaN, infinite and zero rows marked. Raises EmbedError on a missing row."""
    if vectors.ndim != 2 or len(vectors) != rows:
        raise EmbedError("embed_unavailable", f"{rows} texts went in, an array of shape {vectors.shape} came back")
    wide = vectors.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    good = np.isfinite(norms) & (norms > 1e-12)
    unit = np.zeros(vectors.shape, np.float32)
    unit[good] = wide[good] / norms[good, None]
    return Checked(unit, good)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows at unit length in float32: half precision leaves them 0.3 % off. Bad rows stay as they are."""
    wide = vectors.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
        return np.where(norms > 0, wide / norms, wide).astype(np.float32)


def canary_vector(embedder: _Embeds) -> list[float]:
    """Vector of a fixed text, kept with a generation."""
    return [float(value) for value in embedder.embed([CANARY])[0]]


def check_canary(embedder: _Embeds, stored: Sequence[float]) -> None:
    """Raises PreflightError when the embedder no longer gives the vector that was kept with the generation."""
    now, then = np.asarray(canary_vector(embedder)), np.asarray(stored, np.float64)
    if now.shape != then.shape:
        raise PreflightError(f"{embedder.fingerprint}: {now.size} dimensions, the generation has {then.size}")
    cosine = float(now @ then / (np.linalg.norm(now) * np.linalg.norm(then)))
    if not cosine >= MIN_COSINE:  # NaN must not pass
        raise PreflightError(
            f"{embedder.fingerprint} embeds a known text at cosine {cosine:.4f} to when the generation was made, below "
            f"{MIN_COSINE}: a library or the model changed; go back to the old versions or build a new generation"
        )
