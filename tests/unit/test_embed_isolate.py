"""A call that fails: the guilty text is found, and a model that is down blames none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ingest.embed import CANARY
from ingest.embed.isolate import embed
from ingest.errors import StoreUnavailable


class Fragile:
    """Raises when it gets one of the ``bad`` texts, or more than ``at_once``; counts its calls."""

    dimension = 2

    def __init__(self, bad: Sequence[str] = (), at_once: int = 1000) -> None:
        self.bad = set(bad)
        self.at_once = at_once
        self.calls = 0

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.calls += 1
        if self.bad & set(texts) or len(texts) > self.at_once:
            raise RuntimeError("it broke")
        return np.array([[1.0, 0.0 if text == CANARY else float(text)] for text in texts])


TEXTS = [str(number) for number in range(96)]


def test_a_call_that_works_is_one_call() -> None:
    model = Fragile()
    found = embed(model, TEXTS)
    assert model.calls == 1
    assert found.vectors.good.all()
    assert not found.refused.any()


@pytest.mark.parametrize("bad", [["0"], ["95"], ["17", "18"], ["3", "50", "94"]])
def test_guilty_texts_are_found_and_the_others_get_their_vectors(bad: list[str]) -> None:
    found = embed(Fragile(bad), TEXTS)
    assert [text for text, refused in zip(TEXTS, found.refused, strict=True) if refused] == bad
    assert found.vectors.good.tolist() == [text not in bad for text in TEXTS]
    slopes = found.vectors.vectors[:, 1] / np.where(found.vectors.good, found.vectors.vectors[:, 0], 1)
    assert np.allclose(slopes[found.vectors.good], [float(t) for t in TEXTS if t not in bad], rtol=1e-4)


def test_a_model_that_has_no_room_for_a_whole_call_gets_smaller_ones() -> None:
    assert embed(Fragile(at_once=10), TEXTS).vectors.good.all()


def test_a_model_that_does_not_answer_at_all_blames_no_text() -> None:
    with pytest.raises(StoreUnavailable, match="does not answer: RuntimeError: it broke"):
        embed(Fragile([*TEXTS, CANARY]), TEXTS)


def test_a_model_that_fails_on_every_text_but_the_harmless_one_blames_none() -> None:
    with pytest.raises(StoreUnavailable, match="each of 96 texts alone"):
        embed(Fragile(TEXTS), TEXTS)


def test_one_text_alone_can_be_guilty() -> None:
    assert embed(Fragile(["7"]), ["7"]).refused.tolist() == [True]


def test_a_missing_row_is_the_models_fault() -> None:
    class Short(Fragile):
        def embed(self, texts: Sequence[str]) -> np.ndarray:
            return super().embed(texts)[1:]

    with pytest.raises(StoreUnavailable, match="96 texts went in"):
        embed(Short(), TEXTS)
