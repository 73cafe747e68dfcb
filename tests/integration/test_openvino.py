"""Converting a model for OpenVINO, and what the process that embeds imports."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingest.config import EmbedConfig
from ingest.embed import convert, resolve_model
from ingest.embed.choice import choose
from ingest.embed.openvino_backend import compiled
from ingest.errors import PreflightError

_EMBED = """
import sys
from ingest.config import EmbedConfig
from ingest.embed import open_embedder
embedder = open_embedder(EmbedConfig(backend="openvino", cache_dir=sys.argv[1]))
assert abs(float((embedder.embed(["a text"]) ** 2).sum()) - 1) < 1e-5
print([name for name in ("torch", "transformers", "sentence_transformers") if name in sys.modules])
"""


def test_two_processes_may_convert_at_once_and_neither_imports_torch(tmp_path: Path) -> None:
    def run(_: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _EMBED, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(run, range(2)):
            assert done.returncode == 0, done.stderr
            assert done.stdout.strip() == "[]"
    made = sorted(path.name for path in tmp_path.iterdir())
    assert len(made) == 1, made
    assert sorted(path.name for path in (tmp_path / made[0]).iterdir()) == ["model.bin", "model.xml"]


_AT_ONCE = """
import sys
sys.setswitchinterval(1e-6)
from ingest.config import EmbedConfig
from ingest.embed import open_embedder
embedder = open_embedder(EmbedConfig(backend="openvino", threads=2, cache_dir=sys.argv[1]))
print(len(embedder.embed(["a text"] * 16)))
"""


def test_first_inferences_of_a_process_may_come_from_two_threads_at_once(models: Path) -> None:
    for _ in range(3):  # without the inference in the constructor five of six hang
        command = [sys.executable, "-c", _AT_ONCE, str(models)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.strip() == "16", done.stderr


def test_converted_model_is_taken_from_the_cache(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = resolve_model(EmbedConfig())
    there = convert.converted(folder, models)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("converted again"))
    assert convert.converted(folder, models) == there


def test_threads_and_streams_of_the_network_are_those_of_the_configuration(models: Path) -> None:
    config = EmbedConfig(cache_dir=str(models), backend="openvino", threads=2, streams=1)
    network = compiled(convert.converted(resolve_model(config), models), choose(config, 0))
    assert network.get_property("INFERENCE_NUM_THREADS") == 2
    assert network.get_property("NUM_STREAMS") == 1


def test_broken_weights_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    folder, cache = tmp_path / "broken", tmp_path / "cache"
    folder.mkdir()
    for path in resolve_model(EmbedConfig()).glob("*.json"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "model.safetensors").write_bytes(b"no weights at all")
    with pytest.raises(PreflightError, match="can't be converted"):
        convert.converted(folder, cache)
    assert list(cache.iterdir()) == []
