"""Texts to unit vectors, on the backend and device that the configuration and this machine allow.

An embedder is an ``Embedder``; what every one promises is ``tests/contract/test_embedder.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from ingest.config import EmbedConfig
from ingest.embed.choice import Choice, Description, choose, describe
from ingest.embed.guard import CANARY, Checked, canary_vector, check_canary, checked
from ingest.embed.model_files import resolve_model

__all__ = [
    "BACKENDS",
    "CANARY",
    "Checked",
    "Description",
    "Embedder",
    "canary_vector",
    "check_canary",
    "checked",
    "describe_embedder",
    "embedder_fingerprint",
    "open_embedder",
    "resolve_model",
]


class Embedder(Protocol):
    """A loaded model. ``embed`` and ``count_truncated`` may be called from several threads at once."""

    fingerprint: str
    dimension: int
    max_tokens: int  # of one text, special tokens included; what is longer is cut
    backend: str

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (n, dimension), each row of length 1, in the order of ``texts``; prefixes are the caller's."""

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Number of texts whose end the model does not read."""


Opener = Callable[[Path, Choice, Description], Embedder]

BACKENDS: dict[str, str] = {
    "torch": "ingest.embed.torch_backend:open_torch",  # anything that sentence-transformers loads; GPU and CPU
    "openvino": "ingest.embed.openvino_backend:open_openvino",  # encoder + mean or CLS pooling; the fastest on CPU
    "hashing": "ingest.embed.hashing:open_hashing",  # for tests: no model, no weights
}


def describe_embedder(config: EmbedConfig, gpus: float | None = None) -> Description:
    """What ``open_embedder`` would open here with the same arguments; loads no weights. Raises PreflightError."""
    return describe(config, choose(config, config.gpus if gpus is None else gpus))


def embedder_fingerprint(config: EmbedConfig, gpus: float | None = None) -> str:
    """Name of everything that decides the vectors: weights, dimension, dtype, backend, passage prefix, token limit."""
    return describe_embedder(config, gpus).fingerprint


def open_embedder(config: EmbedConfig, gpus: float | None = None, nodes: int = 1) -> Embedder:
    """The loaded embedder; ``gpus`` is the share of GPUs this process holds, ``nodes`` share the pool's actors.

    Raises PreflightError.
    """
    choice = choose(config, config.gpus if gpus is None else gpus, nodes)
    module, _, function = BACKENDS[choice.backend].partition(":")
    opener = cast(Opener, getattr(import_module(module), function))
    return opener(resolve_model(config), choice, describe(config, choice))
