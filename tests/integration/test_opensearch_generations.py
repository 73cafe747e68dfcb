"""Indices, aliases and settings on a real node; and the questions that the doctor asks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ingest.config import IndexConfig
from ingest.errors import PreflightError, StoreRefused
from ingest.index import generations, preflight
from ingest.index.client import Cluster, connect
from ingest.index.mapping import index_body
from ingest.index.sink import open_sink
from ingest.index.throttle import Throttle
from local import opensearch

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(opensearch_url: str) -> Iterator[Cluster]:
    found = connect(IndexConfig(url=opensearch_url, retry_budget_s=0))
    yield found
    found.close()


@pytest.fixture
def alias(cluster: Cluster) -> Iterator[str]:
    name = f"docs{next(_numbers)}"
    yield name
    cluster.call("DELETE", f"/{name}*")


def config(cluster: Cluster, **values: Any) -> IndexConfig:
    return IndexConfig(url=cluster.url, retry_budget_s=0, **values)


def create(cluster: Cluster, name: str, **values: Any) -> str:
    return generations.create(cluster, name, index_body(config(cluster, **values), 4, {"parser": "p"}))


@pytest.mark.parametrize("strategy", ["recursive", "my.module:Strategy", "ÄÖ", "a" * 400])
def test_every_name_is_legal(cluster: Cluster, alias: str, strategy: str) -> None:
    name = generations.index_name(alias, strategy, "BAAI/bge-Large_en", 1_800_000_000.0)
    assert name.startswith(alias)
    assert name.endswith("20270115-080000")
    assert create(cluster, name)


def test_a_name_is_not_given_twice(cluster: Cluster, alias: str) -> None:
    create(cluster, f"{alias}-1")
    with pytest.raises(StoreRefused, match="resource_already_exists_exception"):
        create(cluster, f"{alias}-1")


def test_an_index_made_anew_under_the_same_name_is_noticed(cluster: Cluster, alias: str) -> None:
    name = f"{alias}-1"
    first = create(cluster, name)
    generations.require(cluster, name, first)
    cluster.call("DELETE", f"/{name}")
    with pytest.raises(StoreRefused, match="does not exist"):
        generations.require(cluster, name, first)
    create(cluster, name)
    with pytest.raises(StoreRefused, match="made anew"):
        open_sink(config(cluster), name, Throttle(1), first)


def test_an_index_without_its_write_alias_is_not_written_to(cluster: Cluster, alias: str) -> None:
    name = f"{alias}-1"
    create(cluster, name)
    cluster.call("DELETE", f"/{name}/_alias/{generations.write_alias(name)}")
    with pytest.raises(StoreRefused, match="add it again"):
        open_sink(config(cluster), name, Throttle(1))


def test_the_fingerprints_can_be_read_back(cluster: Cluster, alias: str) -> None:
    create(cluster, f"{alias}-1")
    assert generations.meta(cluster, f"{alias}-1")["parser"] == "p"
    assert generations.meta(cluster, f"{alias}-1")["dimension"] == 4


def test_the_alias_is_set_once_and_then_left_alone(cluster: Cluster, alias: str) -> None:
    for number in (1, 2):
        create(cluster, f"{alias}-{number}")
    assert generations.serving(cluster, alias) is None
    assert generations.ensure_alias(cluster, alias, f"{alias}-1") == f"{alias}-1"
    assert generations.ensure_alias(cluster, alias, f"{alias}-2") == f"{alias}-1"


def test_promoting_may_be_repeated(cluster: Cluster, alias: str) -> None:
    for number in (1, 2):
        create(cluster, f"{alias}-{number}")
    generations.ensure_alias(cluster, alias, f"{alias}-1")
    for _ in range(2):
        generations.promote(cluster, alias, f"{alias}-2")
        assert generations.targets(cluster, alias) == [f"{alias}-2"]


def test_runs_that_make_the_same_index_at_once_all_get_it(cluster: Cluster, alias: str) -> None:
    body = index_body(IndexConfig(url="http://unused"), 8, {"generation": alias})
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: generations.create_or_adopt(cluster, alias, body), range(4)))
    assert len(set(made)) == 1


def test_an_index_that_a_killed_run_made_is_adopted_and_a_foreign_one_refused(cluster: Cluster, alias: str) -> None:
    body = index_body(IndexConfig(url="http://unused"), 8, {"generation": alias})
    made = generations.create_or_adopt(cluster, alias, body)
    assert generations.create_or_adopt(cluster, alias, body) == made
    with pytest.raises(StoreRefused, match="not ours"):
        generations.create_or_adopt(cluster, alias, index_body(IndexConfig(url="http://x"), 8, {"generation": "x"}))


def test_an_alias_over_two_indices_is_refused(cluster: Cluster, alias: str) -> None:
    for number in (1, 2):
        create(cluster, f"{alias}-{number}")
        cluster.call("PUT", f"/{alias}-{number}/_alias/{alias}")
    with pytest.raises(StoreRefused, match="twice"):
        generations.serving(cluster, alias)


def test_an_index_under_the_name_of_the_alias_is_never_deleted(cluster: Cluster, alias: str) -> None:
    create(cluster, alias)
    create(cluster, f"{alias}-1")
    with pytest.raises(StoreRefused, match="Nothing was deleted"):
        generations.ensure_alias(cluster, alias, f"{alias}-1")
    assert cluster.find("GET", f"/{alias}") is not None


@pytest.mark.parametrize("values", [{"replicas": 1, "refresh_interval": "30s"}, {"replicas": 0}])
def test_settings_come_back_exactly_as_they_were(cluster: Cluster, alias: str, values: dict[str, Any]) -> None:
    name = f"{alias}-1"
    create(cluster, name, **values)
    before = generations.settings(cluster, name)
    saved = generations.bulk_settings_on(cluster, name)
    assert saved == before
    assert generations.settings(cluster, name) == dict(generations.LOAD_SETTINGS)
    for _ in range(2):
        generations.restore_settings(cluster, name, saved)
        assert generations.settings(cluster, name) == before


def test_a_setting_that_was_not_set_is_not_set_afterwards(cluster: Cluster, alias: str) -> None:
    cluster.call("PUT", f"/{alias}")
    saved = generations.bulk_settings_on(cluster, alias)
    assert saved["index.refresh_interval"] is None
    generations.restore_settings(cluster, alias, saved)
    assert generations.settings(cluster, alias) == saved


# ---------------------------------------------------------------- preflight


def failed(found: list[preflight.Check]) -> dict[str, str]:
    return {check.name: check.sentence for check in found if not check.is_ok}


def test_a_good_cluster_passes_and_no_trace_is_left(cluster: Cluster, alias: str) -> None:
    found = preflight.checks(cluster, config(cluster, alias=alias), 4)
    preflight.require(found)
    assert found[0].name == "index_reachable"
    assert len(found) == 7
    assert cluster.call("GET", f"/{alias}-preflight-*") == {}


def test_another_dimension_means_a_new_index_beside(cluster: Cluster, alias: str) -> None:
    create(cluster, f"{alias}-1")
    generations.ensure_alias(cluster, alias, f"{alias}-1")
    (told,) = [c for c in preflight.checks(cluster, config(cluster, alias=alias), 8) if c.name == "index_dimension"]
    assert told.is_ok
    assert "takes vectors of 4, the model gives 8: a new index is built beside it" in told.sentence


def test_a_block_is_told(cluster: Cluster, alias: str) -> None:
    create(cluster, f"{alias}-1")
    generations.ensure_alias(cluster, alias, f"{alias}-1")
    cluster.call("PUT", f"/{alias}-1/_settings", {"index.blocks.write": True})
    sentences = failed(preflight.checks(cluster, config(cluster, alias=alias), 4))
    cluster.call("PUT", f"/{alias}-1/_settings", {"index.blocks.write": None})
    assert list(sentences) == ["index_blocks"]
    assert f"{alias}-1 (index.blocks.write)" in sentences["index_blocks"]


def test_a_full_disk_is_told_unless_the_cluster_does_not_care(
    cluster: Cluster, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watermarks = "cluster.routing.allocation.disk.threshold_enabled"
    monkeypatch.setattr(preflight, "FULL", 0.0)
    assert not failed(preflight.checks(cluster, config(cluster, alias=alias), 4))
    cluster.call("PUT", "/_cluster/settings", {"persistent": {watermarks: True}})
    sentences = failed(preflight.checks(cluster, config(cluster, alias=alias), 4))
    cluster.call("PUT", "/_cluster/settings", {"persistent": {watermarks: None}})
    assert list(sentences) == ["index_disk"]


def test_an_index_in_place_of_the_alias_is_told(cluster: Cluster, alias: str) -> None:
    create(cluster, alias)
    with pytest.raises(PreflightError, match=r"index_alias: \w+ is an index"):
        preflight.require(preflight.checks(cluster, config(cluster, alias=alias), 4))


def test_a_cluster_that_is_not_there_is_one_sentence(cluster: Cluster) -> None:
    gone = connect(IndexConfig(url="http://127.0.0.1:9", retry_budget_s=0))
    found = preflight.checks(gone, config(gone), 4)
    assert [check.name for check in found] == ["index_reachable"]
    assert "can not be reached" in found[0].sentence
    gone.close()


def test_serverless_is_recognised_by_its_host_and_refused() -> None:
    serverless = connect(IndexConfig(url="https://abc.eu-central-1.aoss.amazonaws.com"))
    found = preflight.checks(serverless, IndexConfig(url=serverless.url), 4)
    assert "take no document ids" in failed(found)["index_reachable"]
    serverless.close()


def test_an_engine_without_its_libraries_is_found_out_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node of the laptop stack has no faiss: it takes index and vector, and never answers the refresh."""
    service = opensearch.start(tmp_path)
    monkeypatch.setattr(preflight, "ENGINE_TIMEOUT_S", 5.0)
    ruined = connect(IndexConfig(url=service.url))
    try:
        sentences = failed(preflight.checks(ruined, config(ruined, engine="faiss"), 4))
    finally:
        ruined.close()
        service.stop()
    assert list(sentences) == ["index_engine"]
    assert "set index.engine to another" in sentences["index_engine"]
