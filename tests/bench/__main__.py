"""How fast the engine is beside what a person would write by hand: ``python -m tests.bench`` (``make bench``).

Everything on the same documents and cores, in turn, in one run. No time is a test: what counts are the ratios within
a run, printed and written to ``.local/bench.json``. BENCH=small (the default, 487 pages) or large (20,000 chunks).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from local.corpus import say
from tests.bench import corpus, measure, tables
from tests.bench.services import Services, running

STATE = Path(__file__).resolve().parents[2] / ".local"
PARTS = {
    "small": ("plain", "torch", "openvino", "pipeline", "unverified", "memory", "cosine"),
    "large": ("torch", "openvino", "pipeline", "cosine"),  # the plain loop takes a quarter of an hour
}
LOOPS = ("plain", "torch", "openvino")


def main() -> None:
    """Measures, prints, and writes the numbers."""
    args = _arguments()
    documents = corpus.lay_out(args.size, STATE / "bench" / "documents")
    found = tables.Results(args.size, len(list(documents.rglob("*.pdf"))), corpus.pages(documents))
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        with running(folder, STATE / "models") as services:
            for part in args.parts or PARTS[args.size]:
                say(f"  {part} … (load {os.getloadavg()[0]:.1f})")
                _measure(part, services, documents, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        print("\n".join(tables.text(found)))  # what was measured before a part failed, too
        tables.write(found, STATE / "bench.json")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=tuple(PARTS), default=os.environ.get("BENCH") or "small")
    parser.add_argument("--parts", nargs="*", choices=PARTS["small"], help="only these, in this order")
    return parser.parse_args()


def _measure(part: str, services: Services, documents: Path, found: tables.Results) -> None:
    if part in LOOPS:
        found.loops.append(measure.loop(part, services, documents))
    elif part == "pipeline":
        found.site = services.site("pipeline", documents)
        found.pipeline = measure.pipeline("pipeline", services, found.site)
    elif part == "unverified":  # verifies once, at the end, instead of every few seconds
        site = services.site("unverified", documents, 1, **{"verify.every_s": 1e6})
        found.unverified = measure.pipeline("unverified", services, site)
    elif part == "memory":
        for copies in (1, 4):
            site = services.site(f"copies-{copies}", documents, copies, **{"embed.model": "hashing:384"})
            found.memory[copies] = measure.pipeline(f"hashing x{copies}", services, site).report
    elif found.site is not None:
        found.cosine = measure.cosine(found.site)


if __name__ == "__main__":
    main()
