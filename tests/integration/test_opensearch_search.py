"""Search on a real node finds what is near, and shows nobody what they may not read."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from ingest.config import IndexConfig
from ingest.index import generations
from ingest.index.client import Cluster, connect
from ingest.index.mapping import WriteMeta, index_body
from ingest.index.search import Mode, Query, search
from ingest.index.sink import open_sink
from ingest.index.throttle import Throttle
from ingest.model import Chunk, Document, IndexChunk, chunk_id, content_hash, document_id

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
OWNERS = (("alice",), ("bob",), ("alice", "bob"), (), ("staff",), ("alice",))
TENANTS = ("t", "t", "t", "t", "t", "other")
VECTORS = np.eye(8, dtype=np.float32)
INDEX, ALIAS = "search-1", "search"


def index_chunk(n: int) -> IndexChunk:
    key = f"{n}.pdf"
    document = Document(document_id("b", key, "v"), "b", key, "v", "v", 1, 10, TENANTS[n], OWNERS[n])
    text = f"the {WORDS[n]} chapter"
    chunk = Chunk(0, 0, len(text), text, n + 1, n + 2, ("Head",), "Head of all", 5)
    return IndexChunk(chunk_id("b", key, "v", 0), document, chunk, 1, content_hash("", text), "Title", "en")


@pytest.fixture(scope="module")
def cluster(opensearch_url: str) -> Iterator[Cluster]:
    config = IndexConfig(url=opensearch_url)
    found = connect(config)
    generations.create(found, INDEX, index_body(config, 8, {}))
    generations.ensure_alias(found, ALIAS, INDEX)
    sink = open_sink(config, INDEX, Throttle(1))
    sink.write([index_chunk(n) for n in range(len(WORDS))], VECTORS[: len(WORDS)], WriteMeta("p", "c", "e", "r", 1.0))
    sink.refresh()
    sink.close()
    yield found
    found.call("DELETE", f"/{INDEX}")
    found.close()


def near(n: int) -> npt.NDArray[np.float32]:
    vector: npt.NDArray[np.float32] = VECTORS[n] * np.float32(0.9) + np.float32(0.05)
    vector /= np.linalg.norm(vector)
    return vector


def keys(cluster: Cluster, query: Query) -> list[str]:
    return [hit.doc_key for hit in search(cluster, ALIAS, query)]


def test_the_nearest_chunk_comes_first_with_its_pages(cluster: Cluster) -> None:
    query = Query(("alice", "bob", "staff"), "t", vector=near(2), mode="dense")
    hit = search(cluster, ALIAS, query)[0]
    assert (hit.doc_key, hit.page_from, hit.page_to) == ("2.pdf", 3, 4)
    assert (hit.text, hit.header) == ("the gamma chapter", "Head of all")


def test_the_words_find_their_chunk(cluster: Cluster) -> None:
    assert keys(cluster, Query(("bob",), "t", text="beta", mode="lexical")) == ["1.pdf"]


def test_both_together_find_both(cluster: Cluster) -> None:
    found = keys(cluster, Query(("alice", "bob"), "t", text="beta", vector=near(2), mode="hybrid", k=2))
    assert set(found) == {"1.pdf", "2.pdf"}


@pytest.mark.skipif(os.environ.get("OPENSEARCH") == "3", reason="neural-search is not published as a zip for that line")
def test_the_servers_own_hybrid_query_ranks_what_the_engine_wrote(cluster: Cluster) -> None:
    normalized = {"normalization": {"technique": "min_max"}, "combination": {"technique": "arithmetic_mean"}}
    pipeline = {"phase_results_processors": [{"normalization-processor": normalized}]}
    cluster.call("PUT", "/_search/pipeline/search-both", pipeline)
    knn = {"knn": {"vector": {"vector": near(2).tolist(), "k": 3}}}
    body = {"size": 2, "query": {"hybrid": {"queries": [{"match": {"text": "beta"}}, knn]}}}
    found = cluster.call("POST", f"/{ALIAS}/_search", body, search_pipeline="search-both")
    cluster.call("DELETE", "/_search/pipeline/search-both")
    assert {hit["_source"]["doc_key"] for hit in found["hits"]["hits"]} == {"1.pdf", "2.pdf"}


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
@pytest.mark.parametrize(
    ("principals", "tenant", "readable"),
    [
        (("alice",), "t", {"0.pdf", "2.pdf"}),
        (("bob",), "t", {"1.pdf", "2.pdf"}),
        (("staff", "bob"), "t", {"1.pdf", "2.pdf", "4.pdf"}),
        (("alice",), "other", {"5.pdf"}),
        (("alice",), "", set()),
        (("nobody",), "t", set()),
        ((), "t", set()),
    ],
)
def test_a_search_shows_all_that_is_readable_and_nothing_else(
    cluster: Cluster, mode: Mode, principals: tuple[str, ...], tenant: str, readable: set[str]
) -> None:
    query = Query(principals, tenant, text="chapter", vector=near(3), mode=mode, k=6)
    assert set(keys(cluster, query)) == readable


def test_a_denied_principal_does_not_see_what_another_of_theirs_may(cluster: Cluster) -> None:
    denied = index_chunk(0).chunk_id
    change = {"doc": {"principals_deny": ["intern"]}}
    cluster.call("POST", f"/{INDEX}/_update/{denied}", change, refresh=True)
    both = Query(("alice", "intern"), "t", text="chapter", vector=near(0), mode="hybrid", k=6)
    assert set(keys(cluster, both)) == {"2.pdf"}
    cluster.call("POST", f"/{INDEX}/_update/{denied}", {"doc": {"principals_deny": []}}, refresh=True)


def test_the_filter_leaves_k_hits_where_there_are_k(cluster: Cluster) -> None:
    """A filter behind the knn clause would leave none: the nearest chunks are not readable."""
    assert keys(cluster, Query(("staff",), "t", vector=near(0), mode="dense", k=1)) == ["4.pdf"]
