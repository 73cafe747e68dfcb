"""Search for people and notebooks: dense, lexical, or both fused; nobody sees what they may not read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ingest.index.client import Cluster
from ingest.index.mapping import VECTOR

RANK_CONSTANT = 60  # of reciprocal rank fusion, as in the paper and in OpenSearch
CANDIDATES = 100  # of the vector search at least
FUSION_DEPTH = 50  # hits of each leg at least
FIELDS = ["doc_key", "doc_version", "document_id", "chunk_index", "page_from", "page_to", "text", "header", "title"]

Mode = Literal["dense", "lexical", "hybrid"]


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked, and by whom: an empty ``principals`` may read nothing. ``vector`` has unit length."""

    principals: tuple[str, ...]
    tenant: str = ""
    text: str = ""
    vector: npt.NDArray[np.float32] | None = None
    k: int = 10
    mode: Mode = "hybrid"


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk found. ``score`` compares hits of one search only."""

    chunk_id: str
    score: float
    doc_key: str
    doc_version: str
    document_id: str
    chunk_index: int
    page_from: int
    page_to: int
    text: str
    header: str
    title: str


def search(cluster: Cluster, alias: str, query: Query) -> list[Hit]:
    """The best ``query.k`` chunks behind ``alias`` that the principals may read, best first."""
    if not query.principals:
        return []
    legs = {"dense": (dense,), "lexical": (lexical,), "hybrid": (dense, lexical)}[query.mode]
    if len(legs) == 1:
        return _run(cluster, alias, legs[0](query))
    deep = replace(query, k=max(query.k, FUSION_DEPTH))
    return fuse([_run(cluster, alias, leg(deep)) for leg in legs], query.k)


def access(query: Query) -> dict[str, Any]:
    """The filter that every leg carries: tenant and principals equal, none denied."""
    names = list(query.principals)
    return {
        "bool": {
            "filter": [{"term": {"tenant": query.tenant}}, {"terms": {"principals": names}}],
            "must_not": [{"terms": {"principals_deny": names}}],
        }
    }


def dense(query: Query) -> dict[str, Any]:
    """The search by vector; the filter stands inside the knn clause, behind it fewer than k would be left."""
    if query.vector is None:
        raise ValueError(f"a {query.mode} search needs a vector")
    vector = np.asarray(query.vector, dtype=np.float32).tolist()
    # Lucene walks the graph with as many candidates as k: with k = 5 a best hit was missed.
    k = max(query.k, CANDIDATES)
    return _body(query, {"knn": {VECTOR: {"vector": vector, "k": k, "filter": access(query)}}})


def lexical(query: Query) -> dict[str, Any]:
    """The search by words."""
    words = {"multi_match": {"query": query.text, "fields": ["text", "header", "headings", "title"]}}
    return _body(query, {"bool": {"must": [words], "filter": [access(query)]}})


def fuse(legs: Sequence[Sequence[Hit]], k: int) -> list[Hit]:
    """Reciprocal rank fusion: a hit scores the sum of 1 / (60 + rank) over the legs; equal scores by chunk id."""
    scores: dict[str, float] = {}
    hits: dict[str, Hit] = {}
    for leg in legs:
        for rank, hit in enumerate(leg, start=1):
            scores[hit.chunk_id] = scores.get(hit.chunk_id, 0.0) + 1 / (RANK_CONSTANT + rank)
            hits[hit.chunk_id] = hit
    best = sorted(scores, key=lambda chunk_id: (-scores[chunk_id], chunk_id))[:k]
    return [replace(hits[chunk_id], score=scores[chunk_id]) for chunk_id in best]


def _body(query: Query, clause: dict[str, Any]) -> dict[str, Any]:
    return {"size": query.k, "query": clause, "_source": FIELDS}


def _run(cluster: Cluster, alias: str, body: dict[str, Any]) -> list[Hit]:
    hits = cluster.search(alias, body)["hits"]["hits"]
    return [Hit(chunk_id=hit["_id"], score=hit["_score"], **hit["_source"]) for hit in hits]
