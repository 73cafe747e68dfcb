"""What a run would cost before it is started: the bucket is listed, a sample really read; nothing is written."""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from ingest import failure
from ingest.assemble import assemble
from ingest.chunk import chunk as cut
from ingest.chunk.context import embed_text
from ingest.chunk.tokens import Tokenizer
from ingest.config import Config
from ingest.embed import open_embedder, resolve_model
from ingest.errors import StoreError, StoreRefused, UnitError
from ingest.estimate import Drawn, Item, Strata, Total, total
from ingest.index.client import connect
from ingest.model import Document, ObjectVersion, ParsedSegment
from ingest.observe import duration
from ingest.parse.sandbox import Sandbox
from ingest.runs import fingerprints_of
from ingest.source import s3
from ingest.source.fetch import VersionCache
from ingest.source.listing import selected
from ingest.state import Generation, Ledger, Operator
from ingest.triage import plan as cut_pages

HNSW = 1.3  # of a vector's bytes, for the graph beside it
COMPRESSED = 0.6  # of a text's bytes in stored fields and postings
CALLS = 2  # of the embedder, to know its rate


@dataclass(frozen=True, slots=True)
class Read:
    """What one document of the sample gave; a ``reason`` where it would not be served."""

    name: str
    size: int
    pages: int = 0
    chunks: int = 0
    tokens: int = 0
    text_bytes: int = 0
    parse_s: float = 0.0
    reason: str = ""
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimate. Hours are wall clock on the configured pools; ``None`` where nothing was there to measure."""

    documents: int  # that are to be worked on
    bytes: int
    already_done: int
    skipped: dict[str, int]
    kinds: dict[str, int]
    sampled: int
    pages: Total
    chunks: Total
    tokens: Total
    failures: dict[str, float]
    hours: dict[str, float | None]
    rates: dict[str, float | None]  # pages, chunks, chunks per second of one actor
    slowest_stage: str
    index_gb: float
    index_gb_from: str
    costs: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


def make(config: Config, sample: int, seed: int, say: Callable[[str], None]) -> Forecast:
    """Lists the bucket, reads a sample of ``sample`` documents, and reckons up."""
    with Known(config) as known:
        strata, versions, skipped = _listed(config, known, sample, seed)
        drawn = strata.draw(sample)
        say(f"{_number(strata):,} documents to work on, {known.done:,} done already; reading a sample …")
        with Reader(config) as reader:
            read = {name: [reader.read(versions[item.name]) for item in items] for name, items in sorted(drawn.items())}
            chunks_a_second = reader.embed_rate([text for rows in read.values() for one in rows for text in one.texts])
        return _reckoned(config, strata, read, _Facts(known, skipped, chunks_a_second))


# ---------------------------------------------------------------- what is known already


class Known:
    """What the ledger knows, if there is one; it is opened without a word being written."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._ledger: Ledger | None = None
        self._generation: Generation | None = None
        self.done = 0

    def __enter__(self) -> Self:
        url = self._config.ledger.url
        if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
            return self  # opening it would make it
        self._ledger = Ledger(url)
        try:
            self._generation = self._ledger.generation(self._config.index.alias, fingerprints_of(self._config))
        except StoreError:  # no schema yet
            self._generation = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._ledger:
            self._ledger.close()

    @property
    def index(self) -> str:
        """The generation's index, or an empty string."""
        return self._generation.name if self._generation else ""

    def without_done(self, batch: Sequence[ObjectVersion]) -> list[ObjectVersion]:
        """Those of a batch that are to be worked on."""
        if not (self._ledger and self._generation):
            return list(batch)
        served = Operator(self._ledger).served(self._generation.name, [row.document_id for row in batch])
        self.done += len(served)
        return [row for row in batch if row.document_id not in served]

    def index_rate(self) -> float | None:
        """Chunks per busy second of index in the last run that wrote some, or None."""
        reports = [
            run.report for run in (self._ledger.runs() if self._generation and self._ledger else ()) if run.report
        ]
        rates = [report["stages"]["index"]["per_busy_second"] for report in reports if report.get("stages")]
        return next((float(rate) for rate in reversed(rates) if rate), None)


def _listed(
    config: Config, known: Known, keep: int, seed: int
) -> tuple[Strata, dict[str, ObjectVersion], Counter[str]]:
    """Strata of what is to be worked on, the versions that may be drawn, and what the listing left out."""
    strata, skipped = Strata(keep, seed), Counter[str]()
    versions: dict[str, ObjectVersion] = {}
    for batch in selected(s3.connect(config.source.listing_threads), config.source, skipped):
        for row in known.without_done([row for row in batch if not row.is_delete_marker]):
            strata.add(Item(row.key, row.size))
            versions[row.key] = row
        if len(versions) > 50 * keep:  # only those that are drawn are needed
            kept = {item.name for one in strata.by_name.values() for item in one.sample(keep)}
            versions = {key: row for key, row in versions.items() if key in kept}
    return strata, versions, skipped


def _number(strata: Strata) -> int:
    return sum(one.documents for one in strata.by_name.values())


# ---------------------------------------------------------------- the sample


class Reader:
    """Reads documents as a run does, with its engines, chunker and embedder, in this process."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._folder = tempfile.TemporaryDirectory(prefix="ingest-plan-")
        self._files = VersionCache(s3.connect(), self._folder.name, config.parse.cache_mb << 20)
        self._sandbox = Sandbox(config.parse.timeout_s, config.parse.memory_mb)
        self._tokenizer = Tokenizer.load(resolve_model(config.embed))

    def __enter__(self) -> Self:
        self._sandbox.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._sandbox.close()
        self._folder.cleanup()

    def read(self, row: ObjectVersion) -> Read:
        """What the document would give."""
        document = Document(row.document_id, row.bucket, row.key, row.version, row.version_id, 1, row.size)
        began = time.monotonic()
        try:
            if not row.size:
                raise UnitError("empty_file")
            if row.size > self._config.source.max_object_mb << 20:
                raise UnitError("too_large")
            parts = list(self._parts(document))
        except StoreRefused:
            raise
        except Exception as error:  # noqa: BLE001 - as in a run: it is this document's fate
            return Read(row.key, row.size, reason=failure.classify(error).reason, parse_s=time.monotonic() - began)
        return self._cut(document, parts, began)

    def _parts(self, document: Document) -> Iterator[ParsedSegment]:
        found = self._files.read(document, lambda path: self._sandbox.inspect(path, document.key))
        for number, (low, high) in enumerate(cut_pages(found.pages, self._config.segments.pages)):
            asked = partial(self._sandbox.parse, kind=found.format, page_from=low, page_to=high)
            read = self._files.read(document, asked)
            yield ParsedSegment(
                document_id=document.document_id,
                number=number,
                page_from=low,
                page_to=high,
                pages=read.pages,
                engine=read.engine,
                parser="",
                title=found.title,
                outline=read.outline,
                failed_pages=read.failed_pages,
                repairs=read.repairs,
            )

    def _cut(self, document: Document, parts: Sequence[ParsedSegment], began: float) -> Read:
        pages = max((part.page_to for part in parts), default=0)
        assembled = assemble(document, parts, pages)
        chunks = cut(assembled, self._config.chunk, self._tokenizer)
        failed = [what.reason for part in parts for _, what in part.failed_pages]
        return Read(
            document.key,
            document.size,
            pages=pages,
            chunks=len(chunks),
            tokens=sum(piece.tokens for piece in chunks),
            text_bytes=sum(len(piece.text.encode()) for piece in chunks),
            parse_s=time.monotonic() - began,
            reason="" if chunks else next(iter(failed), "no_text"),
            texts=tuple(embed_text(piece.header, piece.text) for piece in chunks[: self._config.embed.batch]),
        )

    def embed_rate(self, texts: Sequence[str]) -> float | None:
        """Chunks per second of one embed actor, from a few calls; None without a text."""
        batch = self._config.embed.batch
        calls = [texts[low : low + batch] for low in range(0, len(texts), batch)][:CALLS]
        if not calls:
            return None
        embedder = open_embedder(self._config.embed, self._config.embed.gpus, self._config.run.nodes)
        embedder.embed(calls[0][:8])  # the first call compiles
        began = time.monotonic()
        for call in calls:
            embedder.embed([self._config.embed.passage_prefix + text for text in call])
        return sum(map(len, calls)) / (time.monotonic() - began)


# ---------------------------------------------------------------- reckoning


@dataclass(frozen=True, slots=True)
class _Facts:
    known: Known
    skipped: Counter[str]
    chunks_a_second: float | None


def _reckoned(config: Config, strata: Strata, read: Mapping[str, Sequence[Read]], facts: _Facts) -> Forecast:
    def over(value: Callable[[Read], float]) -> Total:
        return total(
            Drawn(one.documents, one.size, [(row.size, value(row)) for row in read[name]])
            for name, one in strata.by_name.items()
        )

    rows = [row for part in read.values() for row in part]
    chunks, seconds, pages = over(lambda row: row.chunks), over(lambda row: row.parse_s), over(lambda row: row.pages)
    rates = {
        "parse": pages.value / seconds.value if seconds.value else None,
        "embed": facts.chunks_a_second,
        "index": facts.known.index_rate(),
    }
    hours = {
        "parse": seconds.value / config.parse.actors / 3600,
        "embed": _hours(chunks.value, rates["embed"], config.embed.actors),
        "index": _hours(chunks.value, rates["index"], config.index.actors),
    }
    slowest = max(hours, key=lambda stage: hours[stage] or 0.0)
    gigabytes, source = _index_gb(config, facts.known.index, chunks, over(lambda row: row.text_bytes))
    reasons = {row.reason for row in rows} - {""}
    return Forecast(
        documents=_number(strata),
        bytes=sum(one.size for one in strata.by_name.values()),
        already_done=facts.known.done,
        skipped={reason: number for reason, number in facts.skipped.items() if number},
        kinds=_kinds(strata),
        sampled=len(rows),
        pages=pages,
        chunks=chunks,
        tokens=over(lambda row: row.tokens),
        failures={reason: round(_documents(strata, read, reason), 1) for reason in sorted(reasons)},
        hours=hours,
        rates=rates,
        slowest_stage=slowest,
        index_gb=gigabytes,
        index_gb_from=source,
        costs=_costs(config, hours[slowest] or 0.0, gigabytes),
    )


def _hours(units: float, rate: float | None, actors: int) -> float | None:
    return units / rate / actors / 3600 if rate else None


def _kinds(strata: Strata) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for name, one in sorted(strata.by_name.items()):
        found[name.split(",")[0]] += one.documents
    return dict(found)


def _documents(strata: Strata, read: Mapping[str, Sequence[Read]], reason: str) -> float:
    """Documents that would end for this reason: of each stratum its share of the sample."""
    shares = {name: sum(row.reason == reason for row in rows) / len(rows) for name, rows in read.items() if rows}
    return sum(share * strata.by_name[name].documents for name, share in shares.items())


def _index_gb(config: Config, index: str, chunks: Total, text: Total) -> tuple[float, str]:
    """Gigabytes of the chunks, replicas included, and where the number comes from."""
    copies = 1 + config.index.replicas
    if index:
        cluster = connect(config.index)
        found = cluster.find("GET", f"/{index}/_stats/store,docs")
        facts = found["_all"]["primaries"] if found else {"docs": {"count": 0}}
        if facts["docs"]["count"]:
            each = facts["store"]["size_in_bytes"] / facts["docs"]["count"]
            return each * chunks.value * copies / 1e9, f"{each:,.0f} bytes a chunk in {index}"
    from ingest.embed import describe_embedder

    vector = 4 * describe_embedder(config.embed).dimension
    return (HNSW * vector * chunks.value + (COMPRESSED + 0.4) * text.value) * copies / 1e9, "computed: no index yet"


def _costs(config: Config, hours: float, gigabytes: float) -> dict[str, float]:
    prices, gpus = config.prices, config.embed.actors * config.embed.gpus
    found = {
        "cpus": prices.cpu_hour * (config.pool_cpus + 1) * hours,
        "gpus": prices.gpu_hour * gpus * hours,
        "index_per_month": prices.index_gb_month * gigabytes,
    }
    return {name: round(value, 2) for name, value in found.items() if value}


# ---------------------------------------------------------------- text


def text(p: Forecast) -> str:
    """The plan for a person."""
    return "\n".join(_lines(p))


def _lines(p: Forecast) -> Iterator[str]:
    yield f"to do       {p.documents:,} documents, {p.bytes / 1e6:,.1f} MB ({_pairs(p.kinds) or 'none'})"
    yield f"done        {p.already_done:,} documents need nothing"
    yield f"left out    {_pairs(p.skipped) or 'none'}"
    yield f"sample      {p.sampled:,} documents were read; intervals hold with 95 %"
    for name, found in (("pages", p.pages), ("chunks", p.chunks), ("tokens", p.tokens)):
        yield f"{name:<12}{found.value:,.0f}  ({found.low:,.0f} to {found.high:,.0f})"
    if p.failures:
        yield f"not served  about {_pairs(p.failures)}"
    for stage, hours in p.hours.items():
        yield f"{stage:<12}{_stage(hours, p.rates[stage])}{'  ← the wall' if stage == p.slowest_stage else ''}"
    yield f"index       {p.index_gb:,.3f} GB with replicas ({p.index_gb_from})"
    if p.costs:
        yield f"cost        {', '.join(f'{name} {value:,.2f}' for name, value in p.costs.items())}"
    yield "nothing was written"


def _stage(hours: float | None, rate: float | None) -> str:
    if hours is None:
        return "unknown: no run has measured it yet"
    return f"{duration(hours * 3600)} on the configured pool" + (f", {rate:,.1f}/s one actor" if rate else "")


def _pairs(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,.0f}" for name, value in counts.items())
