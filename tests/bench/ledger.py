"""How many segments a second the ledger can carry: ``python -m tests.bench.ledger``.

Several processes do what parse, construct, embed and index do with it for blocks of 8 segments, and nothing else.
The rate that is wanted (200/s on SQLite, 2,000/s on PostgreSQL) is what a pipeline of that size would ask of it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from ingest.model import Document
from ingest.state import Batch, ConstructRecord, Ledger, Settlement, Verified
from local import postgres
from tests.ledger_steps import GEN, LATEST, PARSER, add_generation, plan_of, version

SEGMENTS = 16  # of a document
BLOCK = 8
CHUNKS = 96  # of a document
WANTED = {"sqlite": 200, "postgresql": 2000}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser("ledger", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", type=int, default=200, help="of 16 segments each")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ledger-bench-") as name:
        folder = Path(name)
        server = postgres.start(folder / "pg")
        try:
            for url in (f"sqlite:///{folder}/ledger.db", server.url):
                for processes in (1, 2, 4):
                    _tell(url, processes, measured(url, processes, args.documents))
        finally:
            server.stop()


def measured(url: str, processes: int, documents: int) -> float:
    """Segments a second, all processes together, from triage to the end of their documents."""
    ledger = Ledger(url)
    ledger.migrate()
    add_generation(ledger)
    run_id = f"run-{time.time_ns()}"
    ledger.start_run(run_id, "bench", "host:1:1", "config")
    ledger.admit(GEN, [version(f"{run_id}/{n}.pdf", 1) for n in range(documents)], LATEST)
    taken = ledger.take(GEN, run_id, documents, 3600)
    shares = [taken[n::processes] for n in range(processes)]
    with ProcessPoolExecutor(processes) as pool:
        list(pool.map(_ready, [url] * processes))
        began = time.perf_counter()
        list(pool.map(partial(_carry, url, run_id), shares))
        seconds = time.perf_counter() - began
    assert len(ledger.counts(GEN, run_id)) == 1
    ledger.close()
    return documents * SEGMENTS / seconds


def _ready(url: str) -> None:
    Ledger(url).close()


def _carry(url: str, run_id: str, documents: Sequence[Document]) -> None:
    """What the stages do, document by document, in blocks."""
    ledger = Ledger(url)
    for document in documents:
        name = document.document_id
        ledger.plan(GEN, PARSER, [plan_of(name, SEGMENTS)])
        for low in range(0, SEGMENTS, BLOCK):
            units = [f"parse:{name}:{number}" for number in range(low, low + BLOCK)]
            ledger.planned(PARSER, [name])
            ledger.begin(run_id, units)
            settled = [
                Settlement(name, number, engine="pymupdf", artifact="a" * 90) for number in range(low, low + BLOCK)
            ]
            ledger.settle(GEN, PARSER, settled)
            ledger.came_through(run_id, units)
            ledger.add_stats(run_id, {"parse.pages": 160.0, "parse.seconds": 1.0, "parse.calls": 1.0})
        ledger.record_chunks(GEN, ConstructRecord(name, CHUNKS), run_id=run_id)
        batch = Batch(f"{name[:32]}", {name: CHUNKS})
        ledger.embedded(GEN, run_id, [batch])
        ledger.superseded(GEN, [name])
        ledger.indexed(GEN, [name])
        ledger.superseded(GEN, [name])
        ledger.settle_batches(GEN, [batch])
        ledger.verified(GEN, [Verified(name, CHUNKS)])
    ledger.close()


def _tell(url: str, processes: int, rate: float) -> None:
    kind = url.split(":", maxsplit=1)[0].split("+", maxsplit=1)[0]
    share = WANTED[kind] / rate
    print(
        f"{kind:<11}{processes} processes {rate:9,.0f} segments/s; {WANTED[kind]:,}/s take {share:.0%} of what it can",
        flush=True,
    )


if __name__ == "__main__":
    main()
