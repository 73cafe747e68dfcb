"""Backend, device and dtype, decided once for what is run and for what the fingerprint says."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ingest.config import EmbedConfig
from ingest.embed.model_files import HASHING, read_model, resolve_model, weights_hash
from ingest.embed.probe import has_fast_bf16
from ingest.errors import ConfigError, PreflightError
from ingest.model import fingerprint

MAX_TOKENS_HASHING = 256
DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Choice:
    """What will run here; ``cache_dir`` is where a backend keeps a converted model."""

    backend: str
    device: str
    dtype: str
    threads: int
    streams: int
    micro_batch: int
    cache_dir: Path


@dataclass(frozen=True, slots=True)
class Description:
    """An embedder from outside. ``tokenizer`` names the vocabulary, ``model`` is short enough for an index name."""

    fingerprint: str
    model: str
    dimension: int
    max_tokens: int
    tokenizer: str
    backend: str
    device: str
    dtype: str


def choose(config: EmbedConfig, gpus: float, nodes: int = 1) -> Choice:
    """Resolves every ``auto``; ``nodes`` share the actors.

    Raises ConfigError on what can't be combined, PreflightError on a missing model.
    """
    is_hashing = _is_hashing(config)
    device = config.device if config.device != "auto" else ("cuda" if gpus > 0 else "cpu")
    device = "cpu" if is_hashing else device
    backend = HASHING if is_hashing else _backend(config, device)
    if backend == "openvino" and device != "cpu":
        raise ConfigError(f"embed.backend: openvino runs on the CPU, embed.device is {device}; use torch")
    threads = config.threads or max(1, _cpus() // math.ceil(config.actors / nodes))
    return Choice(
        backend=backend,
        device=device,
        dtype=_dtype(config.dtype, backend, device),
        threads=threads,
        streams=config.streams or threads,
        micro_batch=config.micro_batch or (96 if device == "cuda" else 8),
        cache_dir=Path(config.cache_dir).expanduser().absolute(),
    )


def describe(config: EmbedConfig, choice: Choice) -> Description:
    """The embedder that ``choice`` opens, described from the files of its model."""
    folder = resolve_model(config)
    name, weights = _short(config.model), _weights(config)
    return Description(
        fingerprint=_fingerprint(name, weights, config.passage_prefix, choice.backend, choice.dtype),
        model=name,
        dimension=weights.dimension,
        max_tokens=weights.max_tokens,
        tokenizer=_tokenizer_name(folder),
        backend=choice.backend,
        device=choice.device,
        dtype=choice.dtype,
    )


def is_same_model(config: EmbedConfig, built_with: str) -> bool:
    """Whether the embedder of that fingerprint has the weights and passage prefix of ``config``.

    Its vectors are then near those of ``config``, on whatever backend and in whatever dtype they were computed, and
    by whatever name the model was called.
    """
    name, weights = model_name(built_with), _weights(config)
    pairs = [(HASHING, "float32")] if _is_hashing(config) else product(("torch", "openvino"), DTYPES)
    return any(_fingerprint(name, weights, config.passage_prefix, *pair) == built_with for pair in pairs)


def model_name(embedder: str) -> str:
    """The short name of the model in an embedder's fingerprint."""
    return embedder.rpartition("-")[0]


def hashing_options(model: str) -> tuple[int, str]:
    """(dimension, seed) of ``hashing[:DIMENSION[:SEED]]``; another seed gives other vectors. Raises ConfigError."""
    kind, _, rest = model.partition(":")
    size, _, seed = rest.partition(":") if kind == HASHING else ("", "", model)
    if size and not (size.isdigit() and int(size) > 0):
        raise ConfigError(f"embed.model: {model}: hashing:DIMENSION or hashing:DIMENSION:SEED is expected")
    return int(size or 384), seed


@dataclass(frozen=True, slots=True)
class _Weights:
    dimension: int
    revision: str
    max_tokens: int


def _weights(config: EmbedConfig) -> _Weights:
    if _is_hashing(config):
        return _Weights(hashing_options(config.model)[0], config.model, MAX_TOKENS_HASHING)
    folder = resolve_model(config)
    files = read_model(folder)
    return _Weights(files.dimension, weights_hash(folder), files.max_tokens)


def _fingerprint(name: str, weights: _Weights, passage_prefix: str, backend: str, dtype: str) -> str:
    options = {
        "dimension": weights.dimension,
        "dtype": dtype,
        "backend": backend,
        "passage_prefix": passage_prefix,
        "max_tokens": weights.max_tokens,
    }
    return fingerprint(name, weights.revision, options)


def _is_hashing(config: EmbedConfig) -> bool:
    return config.backend == HASHING or config.model.partition(":")[0] == HASHING


def _backend(config: EmbedConfig, device: str) -> str:
    if config.backend == "torch" or (config.backend == "auto" and device == "cuda"):
        return "torch"
    files = read_model(resolve_model(config))
    if files.is_plain:
        return "openvino"
    if config.backend == "openvino":
        raise ConfigError(
            f"embed.backend: openvino computes an encoder with mean or CLS pooling; {config.model} is "
            f"{files.architecture}: {' + '.join(files.modules)} with {files.pooling} pooling; use torch or auto"
        )
    return "torch"


def _dtype(wanted: str, backend: str, device: str) -> str:
    if backend == HASHING:
        return "float32"
    if device == "cuda":
        return "float16" if wanted == "auto" else wanted
    if backend == "openvino":
        from ingest.embed.openvino_backend import dtypes

        there = list(dtypes())
    else:
        there = ["float32", "float16", *(["bfloat16"] if _has_bf16() or wanted == "bfloat16" else [])]
    if wanted == "auto":
        return "bfloat16" if "bfloat16" in there and has_fast_bf16() else "float32"
    if wanted not in there:
        raise ConfigError(f"embed.dtype: {backend} on this CPU computes {' or '.join(there)}, not {wanted}; use auto")
    return wanted


def _has_bf16() -> bool:
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:  # not Linux
        return False
    return bool(flags & {"avx512_bf16", "amx_bf16"})


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _short(model: str) -> str:
    return model.removeprefix("package:").rstrip("/").rpartition("/")[2].replace(":", "-")


def _tokenizer_name(folder: Path) -> str:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise PreflightError(f"{path} is missing; the model needs a fast tokenizer's file")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
