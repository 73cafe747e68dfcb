"""Every answer of a real node that can be provoked, and that all that can land lands."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import pytest

from ingest.config import IndexConfig
from ingest.errors import StoreRefused
from ingest.failure import Backoff
from ingest.index import generations
from ingest.index.bulk import Bulk, BulkItem, BulkLimits, Outcome, ndjson
from ingest.index.client import Cluster, Reply, connect
from ingest.index.mapping import index_body
from ingest.index.throttle import Throttle
from ingest.index.verdict import Verdict, classify, classify_request, never_fits
from local import opensearch

DIMENSION = 384
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(opensearch_url: str) -> Iterator[Cluster]:
    found = connect(IndexConfig(url=opensearch_url))
    yield found
    found.close()


@pytest.fixture(scope="module")
def small_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node that refuses bulks above 1 MB with 429 and any request above 2 MB with 413."""
    home: Path = tmp_path_factory.mktemp("small-node")
    limits = {"indexing_pressure.memory.limit": "1mb", "http.max_content_length": "2mb"}
    service = opensearch.start(home, settings=limits)
    found = connect(IndexConfig(url=service.url))
    yield found
    found.close()
    service.stop()


def new_index(cluster: Cluster) -> str:
    name = f"bulk-{next(_numbers)}"
    generations.create(cluster, name, index_body(IndexConfig(url=cluster.url), DIMENSION, {}))
    return name


def writer(cluster: Cluster, index: str, gate: Throttle | None = None) -> Bulk:
    alias = generations.write_alias(index)
    limits = BulkLimits(max_bytes=9 << 20, max_chunks=2000, backoff=Backoff(base_s=0.05, cap_s=0.2, budget_s=20))
    return Bulk(lambda body: cluster.bulk(alias, body), limits, gate or Throttle(4))


def vectors(count: int, dimension: int = DIMENSION) -> npt.NDArray[np.float32]:
    made = np.random.default_rng(3).normal(size=(count, dimension)).astype(np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made


def items(count: int, revision: int = 1, prefix: str = "c") -> list[BulkItem]:
    made = vectors(count)
    return [
        BulkItem("index", f"{prefix}{n}", revision, orjson.dumps({"text": f"chunk {n}", "chunk_index": n}), made[n])
        for n in range(count)
    ]


def verdicts(outcomes: tuple[Outcome, ...]) -> set[Verdict]:
    return {outcome.verdict for outcome in outcomes}


def count(cluster: Cluster, index: str) -> int:
    cluster.call("POST", f"/{index}/_refresh")
    return int(cluster.call("GET", f"/{index}/_count")["count"])


def raw(cluster: Cluster, index: str, *lines: bytes) -> Reply:
    return cluster.bulk(generations.write_alias(index), b"".join(lines))


def test_a_rewrite_changes_nothing(cluster: Cluster) -> None:
    index = new_index(cluster)
    for _ in range(2):
        assert verdicts(writer(cluster, index).write(items(20)).outcomes) == {Verdict.SUCCESS}
    assert count(cluster, index) == 20


def test_an_older_revision_is_superseded(cluster: Cluster) -> None:
    index = new_index(cluster)
    writer(cluster, index).write(items(3, revision=5))
    assert verdicts(writer(cluster, index).write(items(3, revision=4)).outcomes) == {Verdict.SUPERSEDED}
    assert verdicts(writer(cluster, index).write(items(3, revision=6)).outcomes) == {Verdict.SUCCESS}


def test_deleting_what_is_not_there_is_a_success_and_blocks_older_writes(cluster: Cluster) -> None:
    index = new_index(cluster)
    assert verdicts(writer(cluster, index).write([BulkItem("delete", "c0", 9)]).outcomes) == {Verdict.SUCCESS}
    assert verdicts(writer(cluster, index).write(items(1, revision=8)).outcomes) == {Verdict.SUPERSEDED}


def with_fields(fields: dict[str, object], vector: npt.NDArray[np.float32] | None = None) -> BulkItem:
    return BulkItem("index", "bad", 1, orjson.dumps(fields), vectors(1)[0] if vector is None else vector)


BAD = {
    "Vector dimension mismatch": with_fields({}, vectors(1, 2)[0]),
    "dynamic introduction": with_fields({"nobody_mapped_this": 1}),
    "immense term": with_fields({"doc_key": "x" * 40_000}),
    "failed to parse field": with_fields({"revision": "many"}),
    "VALUE_NULL": with_fields({}, np.full(DIMENSION, np.nan, dtype=np.float32)),
    "Unexpected character": BulkItem("index", "bad", 1, b'{"text": }'),
}


@pytest.mark.parametrize("text", BAD)
def test_a_chunk_that_the_mapping_refuses_costs_only_itself(cluster: Cluster, text: str) -> None:
    index = new_index(cluster)
    load = items(4)
    load[2:2] = [BAD[text]]
    outcomes = writer(cluster, index).write(load).outcomes
    assert [outcome.verdict for outcome in outcomes].count(Verdict.SUCCESS) == 4
    assert outcomes[2].verdict is Verdict.PERMANENT_DOC
    assert outcomes[2].failure is not None
    assert outcomes[2].failure.reason == "mapping_rejected"
    assert text in outcomes[2].failure.sentence
    assert count(cluster, index) == 4


def test_an_id_that_spoils_the_whole_request_is_bisected_out(cluster: Cluster) -> None:
    index = new_index(cluster)
    load = items(20)
    load[13] = BulkItem("index", "x" * 600, 1, b"{}", vectors(1)[0])
    reply = raw(cluster, index, *ndjson(load))
    assert classify_request(reply, alone=True) is Verdict.MALFORMED
    assert count(cluster, index) == 0
    outcomes = writer(cluster, index).write(load).outcomes
    assert [n for n, outcome in enumerate(outcomes) if outcome.verdict is not Verdict.SUCCESS] == [13]
    assert count(cluster, index) == 19


MALFORMED = {
    "negative version": b'{"index":{"_id":"a","version":-3,"version_type":"external_gte"}}\n{}\n',
    "version without type": b'{"index":{"_id":"a","version":3}}\n{}\n',
    "create with a version": b'{"create":{"_id":"a","version":3,"version_type":"external_gte"}}\n{}\n',
    "unknown action": b'{"frobnicate":{"_id":"a"}}\n{}\n',
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_line_refuses_the_whole_request(cluster: Cluster, name: str) -> None:
    index = new_index(cluster)
    reply = raw(cluster, index, *ndjson(items(1)), MALFORMED[name])
    assert reply.status == 400
    assert classify_request(reply, alone=True) is Verdict.MALFORMED
    assert count(cluster, index) == 0


def test_a_deleted_index_stops_the_run_and_is_not_made_anew(cluster: Cluster) -> None:
    index = new_index(cluster)
    cluster.call("DELETE", f"/{index}")
    auto = {"persistent": {"action.auto_create_index": "true"}}
    cluster.call("PUT", "/_cluster/settings", auto)
    try:
        with pytest.raises(StoreRefused, match="not an alias"):
            writer(cluster, index).write(items(2))
        assert cluster.find("GET", f"/{index}") is None
        assert cluster.find("GET", f"/{generations.write_alias(index)}") is None
    finally:
        cluster.call("PUT", "/_cluster/settings", {"persistent": {"action.auto_create_index": None}})


@pytest.mark.parametrize("block", ["write", "read_only", "read_only_allow_delete"])
def test_a_blocked_index_stops_the_run(cluster: Cluster, block: str) -> None:
    index = new_index(cluster)
    cluster.call("PUT", f"/{index}/_settings", {f"index.blocks.{block}": True})
    with pytest.raises(StoreRefused, match="cluster_block_exception"):
        writer(cluster, index).write(items(2))
    cluster.call("PUT", f"/{index}/_settings", {f"index.blocks.{block}": None})
    assert verdicts(writer(cluster, index).write(items(2)).outcomes) == {Verdict.SUCCESS}


def test_a_closed_index_stops_the_run(cluster: Cluster) -> None:
    index = new_index(cluster)
    cluster.call("POST", f"/{index}/_close")
    with pytest.raises(StoreRefused, match="index_closed_exception"):
        writer(cluster, index).write(items(2))


def test_an_alias_over_two_indices_without_a_write_index_stops_the_run(cluster: Cluster) -> None:
    indices = [new_index(cluster), new_index(cluster)]
    cluster.call("POST", "/_aliases", {"actions": [{"add": {"indices": indices, "alias": "two"}}]})
    told = cluster.bulk("two", b"".join(ndjson(items(1)))).body["items"][0]["index"]
    assert classify(told["status"], told["error"]["type"], told["error"]["reason"], "index") is Verdict.PERMANENT_SETUP


# ---------------------------------------------------------------- a node with little room


def test_the_small_node_refuses_a_large_bulk_with_429_and_a_larger_one_with_413(small_cluster: Cluster) -> None:
    index = new_index(small_cluster)
    refused = raw(small_cluster, index, *ndjson(items(300)))
    assert refused.status == 429
    assert never_fits(refused.reason)
    assert classify_request(refused, alone=False) is Verdict.PAYLOAD
    assert raw(small_cluster, index, *ndjson(items(600))).status == 413
    assert count(small_cluster, index) == 0


@pytest.mark.parametrize("size", [300, 600])
def test_a_bulk_above_the_limit_is_split_until_all_lands(small_cluster: Cluster, size: int) -> None:
    index = new_index(small_cluster)
    written = writer(small_cluster, index).write(items(size))
    assert verdicts(written.outcomes) == {Verdict.SUCCESS}
    assert written.stats.splits > 0
    assert count(small_cluster, index) == size


def test_a_chunk_larger_than_the_node_takes_costs_only_itself(small_cluster: Cluster) -> None:
    index = new_index(small_cluster)
    load = items(3)
    load[1] = BulkItem("index", "huge", 1, orjson.dumps({"text": "word " * 300_000}), vectors(1)[0])
    outcomes = writer(small_cluster, index).write(load).outcomes
    assert [outcome.verdict for outcome in outcomes] == [Verdict.SUCCESS, Verdict.PERMANENT_DOC, Verdict.SUCCESS]
    assert outcomes[1].failure is not None
    assert outcomes[1].failure.reason == "chunk_too_large"
    assert count(small_cluster, index) == 2


def test_many_writers_at_a_full_node_lose_nothing_and_narrow_the_window(small_cluster: Cluster) -> None:
    index, gate, found = new_index(small_cluster), Throttle(4), []
    bulk = writer(small_cluster, index, gate)

    def work(prefix: str) -> None:
        found.append(bulk.write(items(150, prefix=prefix)))

    threads = [threading.Thread(target=work, args=(f"w{n}-",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert {verdict for written in found for verdict in verdicts(written.outcomes)} == {Verdict.SUCCESS}
    assert count(small_cluster, index) == 900
    assert gate.report().peak_in_flight >= 2
    assert gate.report().in_flight == 0
