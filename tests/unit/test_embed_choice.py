"""Which embedder a configuration means, and what its fingerprint hangs on. Loads no weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ingest.config import EmbedConfig
from ingest.embed import choice, describe_embedder, embedder_fingerprint, open_embedder, openvino_backend, resolve_model
from ingest.embed.choice import choose
from ingest.embed.model_files import read_model
from ingest.embed.probe import bf16_gain
from ingest.errors import ConfigError, PreflightError
from tests.documents import bert


def config_of(**options: object) -> EmbedConfig:
    return EmbedConfig.model_validate(options)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The default model's settings with weights of 8 bytes."""
    folder = tmp_path / "tiny"
    shutil.copytree(resolve_model(EmbedConfig()), folder, ignore=shutil.ignore_patterns("model.safetensors", "*.txt"))
    (folder / "model.safetensors").write_bytes(b"weights1")
    return folder


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_default_model_is_described_from_its_files() -> None:
    found = read_model(resolve_model(EmbedConfig()))
    assert (found.dimension, found.max_tokens, found.pooling, found.is_plain) == (384, 256, "mean", True)


def test_auto_means_openvino_on_cpu_and_torch_on_gpu() -> None:
    assert choose(EmbedConfig(), gpus=0).backend == "openvino"
    on_gpu = choose(EmbedConfig(), gpus=0.5)
    assert (on_gpu.backend, on_gpu.device, on_gpu.dtype, on_gpu.micro_batch) == ("torch", "cuda", "float16", 96)


@pytest.mark.parametrize("backend", ["openvino", "torch"])
@pytest.mark.parametrize(("is_fast", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_auto_means_bfloat16_only_on_a_cpu_that_gains_by_it(
    monkeypatch: pytest.MonkeyPatch, backend: str, is_fast: bool, dtype: str
) -> None:
    monkeypatch.setattr(openvino_backend, "dtypes", lambda: ("float32", "bfloat16"))
    monkeypatch.setattr(choice, "_has_bf16", lambda: True)
    monkeypatch.setattr(choice, "has_fast_bf16", lambda: is_fast)
    assert choose(config_of(backend=backend), 0).dtype == dtype
    assert choose(config_of(backend=backend, dtype="bfloat16"), 0).dtype == "bfloat16"  # whoever asks for it gets it


def test_what_bfloat16_gains_is_measured_on_this_cpu() -> None:
    assert 0.05 < bf16_gain() < 50  # as a factor; which one it is hangs on the machine


def test_threads_are_shared_out_between_the_actors() -> None:
    alone, many = choose(EmbedConfig(), 0).threads, choose(config_of(actors=1000), 0).threads
    assert alone >= many == 1
    assert choose(config_of(threads=3), 0).threads == 3


def test_streams_are_as_many_as_threads_unless_set() -> None:
    assert choose(config_of(threads=4), 0).streams == 4
    assert choose(config_of(threads=4, streams=2), 0).streams == 2


@pytest.mark.parametrize(("nodes", "threads"), [(12, 16), (5, 5), (1, 1)])
def test_threads_are_those_of_a_node_and_not_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch, nodes: int, threads: int
) -> None:
    monkeypatch.setattr("ingest.embed.choice._cpus", lambda: 16)
    assert choose(config_of(actors=12), 0, nodes).threads == threads


@pytest.mark.parametrize("pooling", ["max", "weightedmean", "lasttoken"])
def test_model_that_openvino_does_not_take_goes_to_torch(copied: Path, pooling: str) -> None:
    config = {"word_embedding_dimension": 384, "pooling_mode": pooling}
    (copied / "1_Pooling" / "config.json").write_text(json.dumps(config))
    read_model.cache_clear()
    assert choose(config_of(model=str(copied)), 0).backend == "torch"
    with pytest.raises(ConfigError, match="torch"):
        choose(config_of(model=str(copied), backend="openvino"), 0)


@pytest.mark.parametrize(
    "changed",
    [
        {"passage_prefix": "passage: "},
        {"backend": "torch"},
        {"backend": "torch", "dtype": "float16"},
        {"model": "hashing"},
    ],
)
def test_fingerprint_changes_with_what_decides_the_vectors(changed: dict[str, object]) -> None:
    plain = embedder_fingerprint(config_of(dtype="float32"))
    assert embedder_fingerprint(config_of(**{"dtype": "float32", **changed})) != plain


@pytest.mark.parametrize(
    "changed",
    [
        {"query_prefix": "query: "},
        {"actors": 2},
        {"threads": 1},
        {"streams": 1},
        {"micro_batch": 4},
        {"cache_dir": "elsewhere"},
    ],
)
def test_fingerprint_ignores_what_does_not(changed: dict[str, object]) -> None:
    assert embedder_fingerprint(config_of(**changed)) == embedder_fingerprint(EmbedConfig())


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "sentence_bert_config.json", "tokenizer.json"])
def test_fingerprint_changes_with_the_files(copied: Path, tmp_path: Path, file: str) -> None:
    other = tmp_path / "other" / "tiny"
    shutil.copytree(copied, other)
    assert embedder_fingerprint(config_of(model=str(other))) == embedder_fingerprint(config_of(model=str(copied)))
    edited = tmp_path / "edited" / "tiny"
    shutil.copytree(copied, edited)
    with (edited / file).open("ab") as target:
        target.write(b" ")
    assert embedder_fingerprint(config_of(model=str(edited))) != embedder_fingerprint(config_of(model=str(copied)))


def test_tokenizer_is_named_as_the_chunker_names_it() -> None:
    assert describe_embedder(EmbedConfig()).tokenizer == bert().name


def test_name_for_an_index_holds_no_path_and_no_colon(copied: Path) -> None:
    assert describe_embedder(config_of(model=str(copied))).model == "tiny"
    assert describe_embedder(config_of(model="hashing:64")).model == "hashing-64"


@pytest.mark.parametrize(("model", "dimension"), [("hashing", 384), ("hashing:768", 768), ("hashing:16:other", 16)])
def test_hashing_dimension_and_seed(model: str, dimension: int) -> None:
    vectors = open_embedder(config_of(model=model)).embed(["one text"])
    assert vectors.shape == (1, dimension)


def test_another_seed_gives_other_vectors() -> None:
    one, other = (open_embedder(config_of(model=f"hashing:384:{seed}")).embed(["one text"])[0] for seed in "ab")
    assert abs(float(one @ other)) < 0.5


def test_hashing_vectors_are_the_same_on_every_machine() -> None:
    vector = open_embedder(config_of(model="hashing:8")).embed(["the same words"])[0]
    assert [round(float(value), 3) for value in vector] == [0.0, -0.236, 0.0, 0.471, 0.0, 0.0, -0.707, 0.471]


def test_texts_that_share_words_are_near() -> None:
    a, b, c = open_embedder(config_of(model="hashing")).embed(["fire door in the wall", "fire door", "annual report"])
    assert a @ b > 0.5 > abs(a @ c) + 0.2


@pytest.mark.parametrize("model", ["hashing:0", "hashing:x", "hashing:-1:seed"])
def test_bad_hashing_model_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="DIMENSION"):
        describe_embedder(config_of(model=model))


def test_missing_package_says_how_to_get_it() -> None:
    with pytest.raises(PreflightError, match="pip install no_such_package"):
        resolve_model(config_of(model="package:no_such_package"))


def test_hub_model_that_can_not_be_had_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(PreflightError, match="give a folder"):
        resolve_model(config_of(model="someone/no-such-model"))


def test_folder_without_weights_is_refused(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    with pytest.raises(PreflightError, match="no weights"):
        describe_embedder(config_of(model=str(copied)))
