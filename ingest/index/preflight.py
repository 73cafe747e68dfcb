"""Is the cluster what a run needs? Asked by ``doctor`` and before a backfill; each answer tells what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from ingest.config import IndexConfig
from ingest.errors import PreflightError, StoreError, StoreRefused
from ingest.failure import Backoff, with_retries
from ingest.index import generations
from ingest.index.client import Cluster, Reply, translate
from ingest.index.mapping import VECTOR, index_body

SERVERLESS_HOST = "aoss.amazonaws.com"
SERVERLESS = (
    "this is OpenSearch Serverless. Its vector collections take no document ids from the client, so a chunk written "
    "twice would be there twice: use an OpenSearch Service domain or a cluster of your own"
)
ENGINE_TIMEOUT_S = 30.0
ASKING = Backoff(budget_s=20.0)  # each question; a cluster that others load answers 429 for a moment
BUSY = (429, 502, 503, 504)
FULL = 0.90  # the default high watermark; above it shards move away, at 95 % indices turn read-only
_DISK = "cluster.routing.allocation.disk"


@dataclass(frozen=True, slots=True)
class Check:
    """One question: its stable name, whether all is well, and a sentence that says what was found or what to do."""

    name: str
    is_ok: bool
    sentence: str


def checks(cluster: Cluster, config: IndexConfig, dimension: int) -> list[Check]:
    """All checks in order; those behind a failed first one are left out, for they would all say the same."""
    first = _guarded("index_reachable", lambda: _reachable(cluster))
    if not first.is_ok:
        return [first]
    return [first, *(_guarded(name, ask) for name, ask in _questions(cluster, config, dimension))]


def require(found: Sequence[Check]) -> None:
    """Raises PreflightError with the sentences of all failed checks."""
    failed = [f"{check.name}: {check.sentence}" for check in found if not check.is_ok]
    if failed:
        raise PreflightError("\n".join(failed))


Answer = tuple[bool, str]


def _questions(cluster: Cluster, config: IndexConfig, dimension: int) -> Iterator[tuple[str, Callable[[], Answer]]]:
    yield "index_knn", lambda: _knn(cluster)
    yield "index_disk", lambda: _disk(cluster)
    yield "index_alias", lambda: _alias(cluster, config.alias)
    yield "index_dimension", lambda: _dimension(cluster, config.alias, dimension)
    yield "index_blocks", lambda: _blocks(cluster, config.alias)
    yield "index_engine", lambda: _engine(cluster, config, dimension)


def _guarded(name: str, ask: Callable[[], Answer]) -> Check:
    try:
        is_ok, sentence = with_retries(ask, ASKING, time.sleep)
    except StoreError as error:
        return Check(name, False, f"the question could not be answered: {error}")
    return Check(name, is_ok, sentence)


def _sent(cluster: Cluster, method: str, path: str, body: Any = None, **params: Any) -> Reply:
    """The reply, good or bad; a cluster that is only busy is raised as an error that the question is repeated for."""
    reply = cluster.send(method, path, body, **params)
    if reply.status in BUSY and not isinstance(busy := translate(reply), StoreRefused):
        raise busy
    return reply


def _reachable(cluster: Cluster) -> Answer:
    if (urlsplit(cluster.url).hostname or "").endswith(SERVERLESS_HOST):
        return False, SERVERLESS
    reply = _sent(cluster, "GET", "/", request_timeout=10)
    if reply.status == 404:  # Serverless behind a name of one's own does not answer on /
        return False, f"{cluster.url} answers 404 on /: {SERVERLESS}"
    if reply.status in (401, 403):
        return False, f"{cluster.url} does not let us in ({reply}); check index.auth and the credentials"
    if not reply.is_ok:
        return False, f"{cluster.url} can not be reached ({reply}); start it or correct index.url"
    return _version(reply.body)


def _version(body: Mapping[str, Any]) -> Answer:
    version = body.get("version", {})
    name, number = version.get("distribution", "elasticsearch"), str(version.get("number", "?"))
    if name != "opensearch":
        return False, f"this is {name} {number}; OpenSearch 2.19 or newer is needed"
    major, minor = (int(part) for part in number.split(".")[:2])
    return (major, minor) >= (2, 19), f"{name} {number}" + ("" if (major, minor) >= (2, 19) else "; 2.19 is needed")


def _knn(cluster: Cluster) -> Answer:
    reply = _sent(cluster, "GET", "/_plugins/_knn/stats/circuit_breaker_triggered")
    if not reply.is_ok:
        return False, f"the k-NN plugin does not answer ({reply}); install opensearch-knn on every node"
    if reply.body.get("circuit_breaker_triggered"):
        return False, "the k-NN circuit breaker is open: vectors are refused until memory is freed or nodes are added"
    return True, "the k-NN plugin answers"


def _disk(cluster: Cluster) -> Answer:
    path = f"*.{_DISK}.threshold_enabled"
    settings = _sent(cluster, "GET", "/_cluster/settings", include_defaults=True, filter_path=path)
    stats = _sent(cluster, "GET", "/_nodes/stats/fs", filter_path="nodes.*.name,nodes.*.fs.total")
    if not settings.is_ok or not stats.is_ok:
        return True, "the cluster does not show its disks to us"
    full = sorted(name for name, used in _used(stats.body) if used >= FULL)
    if not full:
        return True, "disks have room"
    told = f"disks over {FULL:.0%}: {', '.join(full)}"
    if _watches_disks(settings.body):
        return False, f"{told}; free space, or the cluster will block writes"
    return True, f"{told}; watermarks are off, so nothing blocks writes"


def _watches_disks(settings: Mapping[str, Any]) -> bool:
    for layer in ("transient", "persistent", "defaults"):
        found: Any = settings.get(layer)
        for name in f"{_DISK}.threshold_enabled".split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is not None:
            return bool(found == "true")
    return True


def _used(stats: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for node_id, node in stats.get("nodes", {}).items():
        total = node["fs"]["total"]
        if total.get("total_in_bytes"):
            yield node.get("name", node_id), 1 - total["available_in_bytes"] / total["total_in_bytes"]


def _alias(cluster: Cluster, alias: str) -> Answer:
    try:
        index = generations.serving(cluster, alias)
    except StoreRefused as error:
        return False, str(error)
    return True, f"alias {alias} serves {index}" if index else f"alias {alias} is free"


def _dimension(cluster: Cluster, alias: str, dimension: int) -> Answer:
    index = next(iter(generations.targets(cluster, alias)), None)
    if index is None:
        return True, f"the model gives {dimension}, no index is there yet"
    fields = cluster.call("GET", f"/{index}/_mapping")[index]["mappings"].get("properties", {})
    found = fields.get(VECTOR, {}).get("dimension")
    if found != dimension:
        return True, f"{index} takes vectors of {found}, the model gives {dimension}: a new index is built beside it"
    return True, f"{index} and the model agree on {dimension}"


def _blocks(cluster: Cluster, alias: str) -> Answer:
    answer = cluster.find("GET", f"/{alias}/_settings", flat_settings=True) or {}
    blocked = sorted(
        f"{index} ({name})"
        for index, found in answer.items()
        for name, value in found["settings"].items()
        if name.startswith("index.blocks.") and value == "true"
    )
    if blocked:
        return False, f"writes are blocked on {', '.join(blocked)}; free disk space and set the block to null"
    return True, "no index is blocked"


def _engine(cluster: Cluster, config: IndexConfig, dimension: int) -> Answer:
    """Writes, refreshes and finds one vector: a node without the engine's libraries accepts all but the refresh."""
    name = f"{config.alias}-preflight-{time.time_ns()}"
    body = index_body(config, dimension, {})
    body["settings"]["index"] |= {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"}
    try:
        for method, path, content in _trial(name, body, dimension):
            reply = _sent(cluster, method, path, content, request_timeout=ENGINE_TIMEOUT_S)
            if not reply.is_ok:
                return False, f"engine {config.engine} fails at {method} {path}: {reply}; set index.engine to another"
        return _self_hit(config.engine, reply.body)
    finally:
        cluster.send("DELETE", f"/{name}", request_timeout=ENGINE_TIMEOUT_S)


def _trial(name: str, body: dict[str, Any], dimension: int) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    vector = np.full(dimension, dimension**-0.5, dtype=np.float32).tolist()
    yield "PUT", f"/{name}", body
    yield "PUT", f"/{name}/_doc/1", {VECTOR: vector}
    yield "POST", f"/{name}/_refresh", None
    yield "POST", f"/{name}/_search", {"query": {"knn": {VECTOR: {"vector": vector, "k": 1}}}}


def _self_hit(engine: str, answer: Mapping[str, Any]) -> Answer:
    if not answer["hits"]["hits"]:
        return False, f"engine {engine} does not find a vector that it took; see the log of the node"
    return True, f"engine {engine} writes and finds vectors"
