"""The measured parts of the bench, each alone on the machine."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ingest.chunk import embed_text
from ingest.config import EmbedConfig
from ingest.embed import describe_embedder, resolve_model
from tests.bench import cpu
from tests.bench.services import Services
from tests.harness import Site

COSINE_SAMPLE = 2000  # all of the small corpus
PARTIAL = 3  # a page or a document is not served: the loops would not even tell


@dataclass(frozen=True, slots=True)
class Timed:
    """One way to fill an index. ``cpu_s`` are its processes' seconds, ``store_cpu_s`` those of OpenSearch."""

    name: str
    wall_s: float
    chunks: int
    tokens: int
    cpu_s: float
    store_cpu_s: float
    dtype: str
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The pipeline's run: time, its own report, the CPU by process, and when the index held a first chunk."""

    timed: Timed
    report: dict[str, Any]
    rows: list[cpu.Row]
    first_chunk_s: float
    machine_s: float


def loop(kind: str, services: Services, documents: Path) -> Timed:
    """One hand loop as a process of its own, from its start to its end."""
    command = [sys.executable, "-m", "tests.bench.loops", kind, "--documents", str(documents)]
    command += ["--index", f"loop-{kind}", "--opensearch", services.stack.opensearch_url]
    command += ["--model-xml", str(services.model_xml)]
    store, own = cpu.cpu_s(services.opensearch.pid), _children_s()
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall = time.monotonic() - started
    if done.returncode:
        raise SystemExit(f"the {kind} loop ended with {done.returncode}:\n{done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    store = cpu.cpu_s(services.opensearch.pid) - store
    return Timed(kind, wall, told["chunks"], told["tokens"], _children_s() - own, store, told["dtype"], told["seconds"])


def pipeline(name: str, services: Services, site: Site, *options: str) -> Pipeline:
    """``submit -- backfill`` from the command to its exit; Ray's head and the services run already."""
    watch = cpu.Watch(list(services.pids), lambda: _written(site) > 0)
    with watch.watching():
        started = time.monotonic()
        process = site.start(*options)
        watch.add_root(process.pid)
        output, _ = process.communicate()
        wall = time.monotonic() - started
    if process.returncode not in (0, PARTIAL):
        raise SystemExit(f"the pipeline ended with {process.returncode}:\n{output[-4000:]}")
    (site.folder / "output.txt").write_text(output)
    report = json.loads(site.report.read_text())
    rows = watch.rows()
    store = sum(row.cpu_s for row in rows if row.role == cpu.STORE)
    own = sum(row.cpu_s for row in rows) - store
    busy = {stage: row["seconds"] for stage, row in report["stages"].items()}
    dtype = describe_embedder(EmbedConfig()).dtype
    timed = Timed(name, wall, report["chunks"]["written"], _tokens(site), own, store, dtype, busy)
    return Pipeline(timed, report, rows, watch.probed_s, watch.machine_s)


def cosine(site: Site) -> dict[str, float]:
    """Cosine of stored vectors to sentence-transformers in fp32 over a seeded sample: chunks, min, mean."""
    from sentence_transformers import SentenceTransformer

    site.search.indices.refresh(index=site.alias)
    query = {"function_score": {"random_score": {"seed": 1, "field": "_seq_no"}}}
    body = {"size": COSINE_SAMPLE, "query": query, "_source": ["header", "text", "vector"]}
    hits = site.search.search(index=site.alias, body=body, request_timeout=60)["hits"]["hits"]
    found = [hit["_source"] for hit in hits]
    model = SentenceTransformer(str(resolve_model(EmbedConfig())), device="cpu")
    passages = [embed_text(fields["header"], fields["text"]) for fields in found]
    exact = np.asarray(model.encode(passages, batch_size=16, normalize_embeddings=True), np.float32)
    stored = np.array([fields["vector"] for fields in found], np.float32)
    near = np.einsum("ij,ij->i", exact, stored)
    return {"chunks": float(len(found)), "min": float(near.min()), "mean": float(near.mean())}


def _written(site: Site) -> int:
    """Chunks written behind the alias so far, refreshed or not; 0 while there is no index."""
    path = f"/{site.alias}/_stats/indexing?filter_path=_all.primaries.indexing.index_total"
    try:
        with urllib.request.urlopen(site.stack.opensearch_url + path, timeout=5) as answer:  # noqa: S310 - loopback
            told = json.load(answer)
    except (urllib.error.URLError, OSError):
        return 0
    return int(told.get("_all", {}).get("primaries", {}).get("indexing", {}).get("index_total", 0))


def _tokens(site: Site) -> int:
    """Tokens of all chunks, headers included, as the ledger has them."""
    with closing(sqlite3.connect(site.folder / "ledger.db")) as ledger:
        return int(ledger.execute("SELECT sum(tokens) FROM jobs").fetchone()[0] or 0)


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
