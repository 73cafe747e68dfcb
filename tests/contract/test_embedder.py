"""What every embedder promises, on every backend that runs here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from ingest.config import EmbedConfig
from ingest.embed import Embedder, describe_embedder, open_embedder, resolve_model
from ingest.embed.openvino_backend import dtypes

_HALF = [("openvino", dtype) for dtype in dtypes() if dtype != "float32"]
_MODELS = [("openvino", "float32"), ("torch", "float32"), ("torch", "bfloat16"), *_HALF]
_ALL = [("hashing", "float32"), *_MODELS]

_SENTENCES = [
    "The fire door of the north building opens to the yard.",
    "Invoice 2024-117: 1,234.56 EUR, due within 30 days.",
    "def add(a: int, b: int) -> int:\n    return a + b",
    "Der Prüfbericht liegt im Archiv; Größe 12,5 MB.",
    "این نسخه از سند در کتابخانه است.",
    "日本語の文書は図書館にあります。",
    "ภาษาไทยไม่มีช่องว่าง",
    "Ωμέγα, naïve café, e\u0301 and 👩‍🚀.",
    "a",
    "|---|---|\n| p01 | 5,121 |",
    "^" * 60,
    "Why? Because! …",
]
TEXTS = [
    "",
    "   \n",
    *_SENTENCES,
    *(f"{one} {other}" for one, other in zip(_SENTENCES, reversed(_SENTENCES), strict=True)),
    *(" ".join(_SENTENCES[:n] * n) for n in range(1, 12)),
    *(f"Section {n}. " + "The quiet letter repairs the harbour near the workshop. " * n for n in range(1, 24)),
    "word " * 10_000,
]


def config_of(backend: str, dtype: str, **options: object) -> EmbedConfig:
    return EmbedConfig.model_validate({"backend": backend, "dtype": dtype, "device": "cpu", "threads": 1, **options})


@cache
def opened(backend: str, dtype: str) -> Embedder:
    return open_embedder(config_of(backend, dtype))


@cache
def vectors_of(backend: str, dtype: str) -> np.ndarray:
    return opened(backend, dtype).embed(TEXTS)


@cache
def reference() -> np.ndarray:
    """The same texts by sentence-transformers itself in fp32."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(resolve_model(EmbedConfig())), device="cpu", local_files_only=True)
    return np.asarray(model.encode(TEXTS, batch_size=8, normalize_embeddings=True))


@pytest.mark.parametrize(("backend", "dtype"), _MODELS)
def test_vectors_are_those_of_sentence_transformers(backend: str, dtype: str) -> None:
    cosines = np.einsum("ij,ij->i", vectors_of(backend, dtype), reference())
    assert cosines.min() >= (0.9999 if dtype == "float32" else 0.995)


@pytest.mark.parametrize(("backend", "dtype"), _ALL)
def test_shape_type_and_unit_length(backend: str, dtype: str) -> None:
    vectors = vectors_of(backend, dtype)
    assert vectors.shape == (len(TEXTS), opened(backend, dtype).dimension)
    assert vectors.dtype == np.float32
    assert np.abs(np.linalg.norm(vectors.astype(np.float64), axis=1) - 1).max() < 1e-5


@pytest.mark.parametrize(("backend", "dtype"), _ALL)
def test_order_is_that_of_the_texts(backend: str, dtype: str) -> None:
    back = opened(backend, dtype).embed(TEXTS[:24][::-1])[::-1]
    assert np.einsum("ij,ij->i", back, vectors_of(backend, dtype)[:24]).min() > 0.999


@pytest.mark.parametrize(("backend", "dtype"), _ALL)
def test_no_texts_give_no_vectors(backend: str, dtype: str) -> None:
    assert opened(backend, dtype).embed([]).shape == (0, opened(backend, dtype).dimension)


@pytest.mark.parametrize(("backend", "dtype"), _ALL)
def test_threads_do_not_disturb_each_other(backend: str, dtype: str) -> None:
    parts = [TEXTS[:24][n::4] for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(opened(backend, dtype).embed, parts))
    for n, vectors in enumerate(found):
        assert np.einsum("ij,ij->i", vectors, vectors_of(backend, dtype)[:24][n::4]).min() > 0.999


@pytest.mark.parametrize(("backend", "dtype"), _MODELS)
def test_texts_over_the_limit_are_counted(backend: str, dtype: str) -> None:
    embedder = opened(backend, dtype)
    room = embedder.max_tokens - 2
    assert embedder.count_truncated(["word " * room, "word " * (room + 1), "", "word " * 10_000]) == 2


@pytest.mark.parametrize(("backend", "dtype"), _MODELS)
def test_control_token_in_a_text_is_ordinary_text(backend: str, dtype: str) -> None:
    room = opened(backend, dtype).max_tokens - 2
    spelled = "[SEP] " * (room // 3)  # three tokens each as text, one each as control tokens
    assert opened(backend, dtype).count_truncated([spelled, spelled + "[SEP]"]) == 1


@pytest.mark.parametrize(("backend", "dtype"), _ALL)
def test_description_is_that_of_the_opened_embedder(backend: str, dtype: str) -> None:
    described, embedder = describe_embedder(config_of(backend, dtype)), opened(backend, dtype)
    assert (described.fingerprint, described.dimension) == (embedder.fingerprint, embedder.dimension)
    assert (described.max_tokens, described.backend) == (embedder.max_tokens, embedder.backend)
