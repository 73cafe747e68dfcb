"""A report of which each number is another one, and the samples of its run."""

from __future__ import annotations

from typing import Any

from ingest.config import parse
from ingest.report import unopened
from ingest.state import Sample

CONFIG = {
    "source": {"bucket": "b"},
    "artifacts": {"bucket": "a"},
    "ledger": {"url": "sqlite:///never-opened.db"},
    "index": {"url": "http://127.0.0.1:9"},
    "embed": {"model": "hashing:8"},
}
STAGE = {"calls": 3, "seconds": 4.5, "per_busy_second": 6.7, "per_wall_second": 8.9}
EVIL = "a<script>alert(1)</script>&.pdf"


def failure(reason: str, branch: str, unit: str = "document", **more: Any) -> dict[str, Any]:
    row = {"unit": unit, "document_id": "d", "key": EVIL, "version": "v1", "page_from": 0, "page_to": 0, "chunk_id": ""}
    return {**row, "reason": reason, "branch": branch, "sentence": f"About {reason}. (detail)", **more}


def empty() -> dict[str, Any]:
    """Of a run that did nothing."""
    return unopened(parse(CONFIG), "backfill", "run-1").as_json()


def full() -> dict[str, Any]:
    base = empty()
    return base | {
        "outcome": "partial",
        "generation": "documents-1",
        "documents": {"ready": 1001, "partial": 12, "failed": 3, "queued": 7},
        "segments": {"pymupdf": {"parsed": 2002, "failed": 13}},
        "pages": 40004,
        "chunks": {**base["chunks"], "expected": 50005, "written": 49990},
        "stages": {**base["stages"], "parse": {**STAGE, "pages": 40004}},
        "slowest": [{"document_id": "d", "key": EVIL, "seconds": 61.5, "pages": 2415, "chunks": 9999}],
        "branches": {"degrade": 12},
        "failures": [
            *(failure("timeout", "degrade", "page", page_from=n, page_to=n) for n in range(11, 19)),
            failure("password_required", "poison"),
            failure("no_text", "human"),
            failure("bad_vector", "degrade", "chunk", chunk_id="c" * 64),
        ],
        "warnings": ["the model does not know <this>"],
        "error": "",
        "exit_code": 3,
    }


SAMPLES = [
    Sample(100.0 + 10 * n, {"parse.pages": 50.0 * n, "embed.chunks": 96.0 * n, "index.chunks": 90.0 * n,
                            "now.index.window": 2.0, "index.retries.throttled": 3.0 * n})
    for n in range(6)
]  # fmt: skip
