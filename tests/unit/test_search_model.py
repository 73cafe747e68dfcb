"""A search compares its model with the one behind the alias before it believes a distance."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from ingest.config import Config
from ingest.embed import embedder_fingerprint
from ingest.errors import PreflightError, StoreRefused
from ingest.index.client import Cluster
from jobs.__main__ import main
from jobs.search import require_same_model


class FakeCluster:
    """One alias over indices that have a ``_meta``; who may not read mappings is refused."""

    def __init__(self, *embedders: str, may_read: bool = True) -> None:
        self.metas = {f"docs-{number}": {"embedder": name} for number, name in enumerate(embedders)}
        self.may_read = may_read

    def find(self, method: str, path: str, **_: Any) -> dict[str, Any] | None:
        assert (method, path) == ("GET", "/_alias/documents")
        if not self.may_read:
            raise StoreRefused("403 security_exception: no permissions")
        return {name: {"aliases": {"documents": {}}} for name in self.metas} or None

    def call(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        assert method == "GET"
        index = path.removeprefix("/").removesuffix("/_mapping")
        if index not in self.metas:
            raise StoreRefused(f"404 index_not_found_exception: no such index [{index}]")
        return {index: {"mappings": {"_meta": self.metas[index]}}}


def config_of(**embed: object) -> Config:
    raw = {
        "source": {"bucket": "b"},
        "artifacts": {"bucket": "a"},
        "ledger": {"url": "sqlite:///ledger.db"},
        "index": {"url": "http://127.0.0.1:9200"},
        "embed": embed,
    }
    return Config.model_validate(raw)


def built(**embed: object) -> str:
    return embedder_fingerprint(config_of(**embed).embed)


def compared(cluster: FakeCluster, **embed: object) -> str:
    return require_same_model(cast("Cluster", cluster), config_of(**embed))


def test_a_search_with_another_model_is_refused_and_says_what_to_do() -> None:
    served, own = built(model="hashing:8:one"), built(model="hashing:8:two")
    with pytest.raises(PreflightError) as caught:
        compared(FakeCluster(served), model="hashing:8:two")
    assert all(word in str(caught.value) for word in (served, own, "--mode lexical", "--promote"))


def test_a_search_with_the_model_that_built_the_index_is_not_disturbed() -> None:
    assert compared(FakeCluster(built(model="hashing:8")), model="hashing:8") == ""


@pytest.mark.parametrize(
    "here",
    [
        {"threads": 3},
        {"actors": 4, "micro_batch": 2},
        {"query_prefix": "query: "},
        {"backend": "torch", "dtype": "float16"},
        {"backend": "torch", "dtype": "bfloat16"},
        {"backend": "openvino", "dtype": "float32"},
    ],
    ids=str,
)
def test_another_backend_dtype_or_thread_count_is_the_same_model(here: dict[str, object]) -> None:
    served = built(device="cpu", backend="torch", dtype="float32")
    assert compared(FakeCluster(served), device="cpu", **here) == ""


def test_the_same_weights_by_another_name_are_the_same_model(tmp_path: Path) -> None:
    from ingest.embed import resolve_model

    renamed = tmp_path / "renamed"
    renamed.symlink_to(resolve_model(config_of().embed), target_is_directory=True)
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in renamed.iterdir():
        (moved / path.name).symlink_to(path, target_is_directory=path.is_dir())
    assert built(model=str(moved)) != built()
    assert compared(FakeCluster(built()), model=str(moved)) == ""


def test_what_can_not_be_told_apart_is_searched_with_a_warning() -> None:
    served, own = built(model="hashing:8", passage_prefix="passage: "), built(model="hashing:8")
    told = compared(FakeCluster(served), model="hashing:8")
    assert served in told
    assert own in told


def test_one_of_several_indices_with_another_model_is_enough_to_refuse() -> None:
    cluster = FakeCluster(built(model="hashing:8"), built(model="hashing:8:other"))
    with pytest.raises(PreflightError):
        compared(cluster, model="hashing:8")


@pytest.mark.parametrize("cluster", [FakeCluster(may_read=False), FakeCluster()], ids=["no right", "no index"])
def test_a_reader_who_may_only_search_is_not_refused(cluster: FakeCluster) -> None:
    assert "was not compared" in compared(cluster, model="hashing:8")


def test_an_index_that_names_no_embedder_is_searched() -> None:
    assert compared(FakeCluster(""), model="hashing:8") == ""


def test_a_search_for_words_alone_needs_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my.yaml"
    raw = config_of(model="package:no_such_package").model_dump(mode="json")
    file.write_text(yaml.safe_dump(raw))
    assert main(["search", "--config", str(file), "--mode", "lexical", "--json", "words"]) == 0  # nobody asks
    assert '"hits": []' in capsys.readouterr().out


@pytest.mark.parametrize("k", ["0", "-1", "10001", "many"])
def test_a_number_of_hits_that_no_query_can_give_is_wrong_usage(k: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["search", "words", "-k", k])
    assert caught.value.code == 2
