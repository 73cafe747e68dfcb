"""The files part: each file alone, and among the twenty healthy ones, which stay as they are without it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.harness import Chunks, Outcome, Site, Stack, contents
from tests.scenarios.cases import HEALTHY, Case, Folder
from tests.scenarios.judge import differences, not_yet
from tests.scenarios.seen import Look

SETTINGS = {"parse.timeout_s": 20.0, "parse.memory_mb": 1024}


def judge(stack: Stack, folder: Folder, work: Path) -> dict[str, tuple[list[str], str]]:
    """Slug → what differs, and what the product can not do yet."""
    beside = _site(stack, work / "beside")
    beside.put({f"{HEALTHY}/{name}": path.read_bytes() for name, path in folder.healthy.items()})
    beside.put({case.key: case.path.read_bytes() for case in folder.cases})
    healthy = _site(stack, work / "healthy", beside)
    alone = _site(stack, work / "alone", beside)
    runs = {
        "the healthy ones alone": (healthy, ["--include", f"{HEALTHY}/*"]),
        "alone": (alone, ["--exclude", f"{HEALTHY}/*"]),
        "beside healthy ones": (beside, []),
    }
    found: dict[str, list[str]] = defaultdict(list)
    for name, (site, options) in runs.items():
        outcome = site.backfill(*options)
        if not outcome.report:
            return {case.slug: ([f"the run {name} did not end: {outcome.output[-500:]}"], "") for case in folder.cases}
        again = site.backfill(*options)
        shared = [f"{name}: {what}" for what in _after(again)]
        look, chunks = Look(site), site.chunks()
        for case in folder.cases if site is not healthy else ():
            found[case.slug] += shared + [f"{name}: {case.file}: {what}" for what in _case(case, look, chunks, outcome)]
    kept = list(_kept(healthy, beside))
    return {
        case.slug: (list(dict.fromkeys(found[case.slug] + kept)), _not_yet(folder, case.slug)) for case in folder.cases
    }


def _site(stack: Stack, work: Path, reads: Site | None = None) -> Site:
    work.mkdir(parents=True)
    return Site(stack, work, SETTINGS, reads)


def _not_yet(folder: Folder, slug: str) -> str:
    waits = {not_yet(case.wanted) for case in folder.cases if case.slug == slug} - {""}
    return ", ".join(sorted(waits))


def _case(case: Case, look: Look, chunks: Chunks, outcome: Outcome) -> Iterator[str]:
    seen = next(iter(look.documents(case.key, chunks)), None)
    yield from differences(case.wanted, seen, look.config, outcome.report["skipped"])


def _after(again: Outcome) -> Iterator[str]:
    """A second run does nothing, and no engine outlives a run."""
    chunks = again.report.get("chunks", {})
    if (chunks.get("embedded"), chunks.get("written")) != (0, 0):
        yield f"a second run embeds {chunks.get('embedded')} and writes {chunks.get('written')}"
    if chunks.get("truncated"):
        yield f"{chunks['truncated']} truncated chunks"
    if engines := [p.pid for p in psutil.process_iter() if "ingest.parse.child" in " ".join(_words(p))]:
        yield f"engine processes {engines} are alive after the run"


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _kept(healthy: Site, beside: Site) -> Iterator[str]:
    """The healthy documents have the same ids and contents with and without the others."""
    one, other = healthy.chunks(), _only_healthy(beside.chunks())
    if one.keys() != other.keys():
        yield f"the healthy documents have {len(other)} chunks beside these files and {len(one)} without"
    elif contents(one) != contents(other):
        yield "the healthy documents' chunks differ beside these files"


def _only_healthy(chunks: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {name: fields for name, fields in chunks.items() if fields["doc_key"].startswith(f"{HEALTHY}/")}
