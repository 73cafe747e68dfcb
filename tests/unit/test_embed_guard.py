"""Bad vectors, unit length and the canary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from ingest.embed import canary_vector, check_canary, checked
from ingest.embed.guard import unit_rows
from ingest.errors import EmbedError, PreflightError


def test_nan_infinite_and_zero_rows_are_marked_and_emptied() -> None:
    vectors = np.ones((5, 4), np.float32)
    vectors[1, 2], vectors[2, 0], vectors[3] = np.nan, np.inf, 0
    found = checked(vectors, 5)
    assert found.good.tolist() == [True, False, False, False, True]
    assert np.abs(found.vectors[~found.good]).max() == 0


@pytest.mark.parametrize("length", [1.003, 0.997, 1e-6, 3e30])
def test_rows_come_out_at_unit_length(length: float) -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 384))
    vectors *= length / np.linalg.norm(vectors, axis=1, keepdims=True)
    for found in (checked(vectors.astype(np.float32), 50).vectors, unit_rows(vectors.astype(np.float32))):
        assert found.dtype == np.float32
        assert np.abs(np.linalg.norm(found.astype(np.float64), axis=1) - 1).max() < 1e-5


def test_missing_row_is_an_error_not_a_shift() -> None:
    with pytest.raises(EmbedError, match="96 texts"):
        checked(np.ones((95, 4), np.float32), 96)


@dataclass
class Turned:
    """Gives a vector at ``cosine`` to the first axis."""

    cosine: float
    dimension: int = 3
    fingerprint: str = "turned-0"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        vector = np.zeros(self.dimension, np.float32)
        vector[:2] = self.cosine, np.sqrt(1 - self.cosine**2)
        return np.tile(vector, (len(texts), 1))


def test_model_of_yesterday_passes() -> None:
    check_canary(Turned(0.9995), canary_vector(Turned(1.0)))


@pytest.mark.parametrize("now", [Turned(0.98), Turned(-1.0), Turned(1.0, dimension=4), Turned(float("nan"))])
def test_changed_model_is_refused(now: Turned) -> None:
    with pytest.raises(PreflightError, match="turned-0"):
        check_canary(now, canary_vector(Turned(1.0)))
