"""Who may read is part of every search; two rankings become one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from ingest.index.client import Cluster
from ingest.index.search import Hit, Query, dense, fuse, lexical, search

QUERY = Query(principals=("alice", "staff"), tenant="t", text="words", vector=np.ones(2, dtype=np.float32), k=3)


def hit(chunk_id: str, score: float = 1.0) -> Hit:
    return Hit(chunk_id, score, "key", "v1", "d", 0, 1, 1, "text", "header", "title")


def filters(clause: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", clause["bool"])


def test_the_access_filter_stands_inside_the_knn_clause() -> None:
    access = filters(dense(QUERY)["query"]["knn"]["vector"]["filter"])
    assert {"terms": {"principals": ["alice", "staff"]}} in access["filter"]
    assert {"term": {"tenant": "t"}} in access["filter"]
    assert access["must_not"] == [{"terms": {"principals_deny": ["alice", "staff"]}}]


def test_the_lexical_search_carries_the_same_filter() -> None:
    assert lexical(QUERY)["query"]["bool"]["filter"] == [dense(QUERY)["query"]["knn"]["vector"]["filter"]]


def test_nobody_finds_nothing_and_nothing_is_asked() -> None:
    class Untouched:
        def search(self, *_: Any) -> Any:
            raise AssertionError("asked")

    assert search(cast("Cluster", Untouched()), "documents", replace(QUERY, principals=())) == []


def test_a_dense_search_without_a_vector_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs a vector"):
        dense(replace(QUERY, vector=None))


def test_a_chunk_that_both_searches_find_comes_first() -> None:
    fused = fuse([[hit("a"), hit("b")], [hit("c"), hit("b")]], k=3)
    assert [found.chunk_id for found in fused] == ["b", "a", "c"]
    assert fused[0].score == pytest.approx(2 / 62)


def test_fusion_keeps_k_and_orders_ties_by_id() -> None:
    assert [found.chunk_id for found in fuse([[hit("b")], [hit("a")], [hit("c")]], k=2)] == ["a", "b"]


def test_a_search_without_words_or_hits_fuses_to_nothing() -> None:
    assert fuse([[], []], k=5) == []
