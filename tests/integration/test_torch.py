"""The torch backend: models that OpenVINO does not take, threads, and the GPU where there is one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from ingest.config import EmbedConfig
from ingest.embed import open_embedder, resolve_model
from ingest.errors import PreflightError

TEXTS = [
    "The fire door of the north building.",
    "",
    "word " * 10_000,
    *(f"Report {n} of the year." for n in range(200)),
]


def config_of(**options: object) -> EmbedConfig:
    return EmbedConfig.model_validate({"backend": "torch", **options})


def test_model_with_other_pooling_runs_on_torch(tmp_path: Path) -> None:
    folder = tmp_path / "max-pooling"
    shutil.copytree(resolve_model(EmbedConfig()), folder)
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    pooling |= {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    embedder = open_embedder(EmbedConfig(model=str(folder), device="cpu", dtype="float32"))
    mean = open_embedder(config_of(device="cpu", dtype="float32"))
    assert embedder.backend == "torch"
    assert np.abs(np.linalg.norm(embedder.embed(TEXTS[:3]), axis=1) - 1).max() < 1e-5
    assert float(embedder.embed(TEXTS[:1])[0] @ mean.embed(TEXTS[:1])[0]) < 0.99


def test_threads_are_those_of_the_configuration_not_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    open_embedder(config_of(device="cpu", dtype="float32", threads=2))
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_missing_gpu_is_refused() -> None:
    with pytest.raises(PreflightError, match="no GPU"):
        open_embedder(EmbedConfig(), gpus=1.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("dtype", "least"), [("float32", 0.9999), ("float16", 0.995), ("bfloat16", 0.995)])
def test_gpu_gives_the_vectors_of_the_cpu(dtype: str, least: float) -> None:
    on_cpu = open_embedder(config_of(device="cpu", dtype="float32")).embed(TEXTS)
    on_gpu = open_embedder(config_of(dtype=dtype), gpus=1.0).embed(TEXTS)
    assert np.einsum("ij,ij->i", on_cpu, on_gpu).min() >= least
