"""What was measured, as tables for a person and as JSON: name → value, unit, baseline, ratio."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.measure import Pipeline, Timed
from tests.harness import Site

TARGETS = {  # of the pipeline's wall to a loop's
    "small": {"plain": 0.5},
    "large": {"openvino": 1.25, "torch": 1.0},
}
ROWS_SHOWN = 24


@dataclass(slots=True)
class Results:
    """Everything one bench measured."""

    size: str
    documents: int
    pages: int
    loops: list[Timed] = field(default_factory=list)
    pipeline: Pipeline | None = None
    unverified: Pipeline | None = None  # with the verify windows left to the end
    memory: dict[int, dict[str, Any]] = field(default_factory=dict)  # copies of the corpus → report
    cosine: dict[str, float] = field(default_factory=dict)
    site: Site | None = None

    @property
    def all(self) -> list[Timed]:
        """The loops and the pipeline."""
        return [*self.loops, *([self.pipeline.timed] if self.pipeline else [])]

    def wall(self, name: str) -> float:
        """Seconds of one of them, 0 if it was not measured."""
        return next((timed.wall_s for timed in self.all if timed.name == name), 0.0)


# ---------------------------------------------------------------- text


def text(found: Results) -> Iterator[str]:
    """All tables."""
    yield f"{found.size}: {found.documents} PDFs, {found.pages:,} pages; loops read files, the pipeline reads S3 (moto)"
    yield "start-up is in every wall; OpenSearch, moto and Ray's head ran already, the model was converted before"
    yield ""
    yield from _walls(found)
    if found.pipeline:
        yield from _inside(found.pipeline)
    yield from _verify(found)
    yield from _memory(found)
    if found.cosine:
        at = found.cosine
        yield f"cosine to fp32 over {at['chunks']:,.0f} chunks: min {at['min']:.5f}, mean {at['mean']:.5f}"


def _walls(found: Results) -> Iterator[str]:
    plain, fast = found.wall("plain"), found.wall("openvino")
    heads = ("wall s", "chunks", "tokens", "chunks/s", "to plain", "to openvino", "CPU s", "store CPU s")
    yield f"{'':<12}" + "".join(f"{head:>13}" for head in heads)
    for t in found.all:
        to_plain, to_fast = (f"{t.wall_s / base:.2f}" if base else "-" for base in (plain, fast))
        rate = t.chunks / t.wall_s
        work = f"{t.wall_s:13.1f}{t.chunks:13,}{t.tokens:13,}{rate:13.1f}"
        yield f"{t.name:<12}{work}{to_plain:>13}{to_fast:>13}{t.cpu_s:13.1f}{t.store_cpu_s:13.1f}"
    for loop in found.loops:
        yield f"  {loop.name} ({loop.dtype}): " + ", ".join(
            f"{step} {seconds:.1f} s" for step, seconds in loop.seconds.items()
        )
    yield from _targets(found)
    yield ""


def _targets(found: Results) -> Iterator[str]:
    for base, most in TARGETS[found.size].items():
        if found.pipeline and found.wall(base):
            ratio = found.pipeline.timed.wall_s / found.wall(base)
            yield f"  pipeline to {base}: {ratio:.2f}, wanted at most {most} ({'met' if ratio <= most else 'missed'})"


def _inside(found: Pipeline) -> Iterator[str]:
    wall, first = found.timed.wall_s, found.first_chunk_s
    if found.report["outcome"] != "ready":
        yield f"pipeline: {found.report['outcome']}, {found.report['documents']}"
    yield f"pipeline: first chunk in the index after {first:.1f} s, {first / wall:.0%} of the wall"
    yield f"  {'stage':<12}{'calls':>7}{'busy s':>9}{'per busy s':>12}"
    for stage, row in found.report["stages"].items():
        yield f"  {stage:<12}{row['calls']:7.0f}{row['seconds']:9.1f}{row['per_busy_second']:12.1f}"
    yield f"  Ray tasks {found.report['blocks']}; per 1,000 segments {blocks_per_1000(found.report):,.0f}"
    yield ""
    total = sum(row.cpu_s for row in found.rows)
    yield f"  {'process':<28}{'n':>4}{'CPU s':>9}{'share':>7}{'RSS MiB':>9}{'from s':>8}{'to s':>8}"
    for row in found.rows[:ROWS_SHOWN]:
        used = f"{row.processes:4}{row.cpu_s:9.2f}{row.cpu_s / total:7.0%}{row.rss_mb:9.0f}"
        yield f"  {row.role:<28}{used}{row.first_s:8.1f}{row.last_s:8.1f}"
    yield f"  all of them {total:.1f} s; the whole machine was busy for {found.machine_s:.1f} s of its cores"
    yield ""


def _verify(found: Results) -> Iterator[str]:
    if found.pipeline and found.unverified:
        own, without = found.wall("pipeline"), found.unverified.timed.wall_s
        yield (
            f"verify windows while the run goes on: {own:.1f} s with them, {without:.1f} s with one at the end, "
            f"ratio {own / without:.2f}, wanted at most 1.05"
        )


def _memory(found: Results) -> Iterator[str]:
    for copies, report in found.memory.items():
        peaks = report["peaks"]
        yield (
            f"{copies}x the corpus, hashing embedder: {report['chunks']['written']:,} chunks, "
            f"object store peak {peaks['object_store_mb']:.1f} MiB, driver peak {peaks['driver_rss_mb']:.0f} MiB, "
            f"{blocks_per_1000(report):,.0f} tasks per 1,000 segments"
        )


def blocks_per_1000(report: dict[str, Any]) -> float:
    """Ray tasks of all stages per 1,000 segments."""
    segments = sum(number for states in report["segments"].values() for number in states.values())
    tasks = sum(number for name, number in report["blocks"].items() if "per" not in name)
    return float(1000 * tasks / max(1, segments))


# ---------------------------------------------------------------- JSON


def write(found: Results, path: Path) -> None:
    """Adds this bench's numbers to the file, in place of older ones of the same name."""
    numbers = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(numbers | dict(_numbers(found)), indent=1) + "\n")


def _numbers(found: Results) -> Iterator[tuple[str, dict[str, Any]]]:
    bases = [base for base in ("plain", "torch", "openvino") if found.wall(base)]
    for timed in found.all:
        yield _entry(found, f"{timed.name}.wall_s", timed.wall_s, "s")
        yield _entry(found, f"{timed.name}.rate", timed.chunks / timed.wall_s, "chunks/s")
        yield _entry(found, f"{timed.name}.cpu_s", timed.cpu_s + timed.store_cpu_s, "s")
    for base in bases if found.pipeline else ():
        own = found.wall("pipeline")
        yield _entry(found, f"pipeline.to_{base}", own, "s", found.wall(base))
    if found.pipeline:
        yield _entry(found, "pipeline.first_chunk_s", found.pipeline.first_chunk_s, "s", found.wall("pipeline"))
        yield _entry(found, "pipeline.tasks_per_1000_segments", blocks_per_1000(found.pipeline.report), "tasks")
    if found.pipeline and found.unverified:
        without = found.unverified.timed.wall_s
        yield _entry(found, "pipeline.to_unverified", found.wall("pipeline"), "s", without)
    once = found.memory.get(1)
    for copies, report in found.memory.items():
        for peak in ("object_store_mb", "driver_rss_mb"):
            before = once["peaks"][peak] if once and copies > 1 else 0.0
            yield _entry(found, f"memory.x{copies}.{peak}", report["peaks"][peak], "MiB", before)
    for name, near in found.cosine.items():
        yield _entry(found, f"cosine.{name}", near, "chunks" if name == "chunks" else "cosine")


def _entry(found: Results, name: str, value: float, unit: str, base: float = 0.0) -> tuple[str, dict[str, Any]]:
    """``baseline`` is the value compared with, ``ratio`` the share of it; both null where there is none."""
    return f"{found.size}.{name}", {
        "value": round(value, 5),
        "unit": unit,
        "baseline": round(base, 5) if base else None,
        "ratio": round(value / base, 3) if base else None,
    }
