"""What a scenario expects at a moment, and what differs from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from typing import Any

import numpy as np

from ingest.config import load
from tests.harness import Chunks, digest
from tests.scenarios.faults import pages_of
from tests.scenarios.judge import folded
from tests.scenarios.seen import Look, Seen
from tests.scenarios.steps import NotYet, Scenario

Asked = Mapping[str, Any]


def differences(scenario: Scenario, asked: Asked) -> list[str]:
    """All that is not as expected now."""
    if "either" in asked:
        branches: list[list[str]] = [list(_all(scenario, branch)) for branch in asked["either"]]
        nearest: list[str] = min(branches, key=len)
        return [f"none of either: {'; '.join(nearest)}"] if nearest else []
    return list(_all(scenario, asked))


def _all(scenario: Scenario, asked: Asked) -> Iterator[str]:
    chunks = scenario.site.chunks() if scenario.site.count() else {}
    look = Look(scenario.site, load(scenario.site.config))
    for wanted in asked.get("docs", ()):
        yield from _documents(scenario, look, chunks, wanted)
    yield from _outcome(scenario, asked)
    yield from _index(scenario, chunks, asked.get("index", {}))
    yield from _counts(scenario, asked.get("counts", {}))
    yield from _calls(scenario, asked.get("calls", {}))
    if "queue" in asked:
        raise NotYet("a queue")


# ---------------------------------------------------------------- documents


def _documents(scenario: Scenario, look: Look, chunks: Chunks, wanted: Asked) -> Iterator[str]:
    rows = scenario.site.ledger_rows("SELECT DISTINCT key FROM documents")
    matching = sorted(key for (key,) in rows if fnmatch(key, wanted["key"]))
    if wanted.get("absent"):
        yield from (f"{key} is in the ledger" for key in matching)
        return
    if len(matching) != wanted.get("count", len(matching) or 1):
        yield f"{len(matching)} documents match {wanted['key']}, wanted {wanted.get('count', 'one')}"
    for key in matching:
        versions = look.documents(key, chunks)
        if seen := _version(scenario, versions, wanted):
            yield from (f"{key}: {what}" for what in _document(seen, wanted))
        else:
            yield f"{key}: no such version in the ledger"


def _version(scenario: Scenario, versions: list[Seen], wanted: Asked) -> Seen | None:
    if "version" not in wanted:
        return versions[0] if versions else None
    named = {version for (_, label), version in scenario.versions.items() if label == wanted["version"]}
    return next((seen for seen in versions if seen.job.version in named), None)


def _document(seen: Seen, wanted: Asked) -> Iterator[str]:
    states = wanted.get("final") or wanted.get("state")
    if states and seen.job.state not in states:
        yield f"state {seen.job.state} {sorted(seen.reasons)}, wanted {states}"
    if "reason" in wanted and not seen.reasons & set(wanted["reason"]):
        yield f"reasons {sorted(seen.reasons)}, wanted of {wanted['reason']}"
    if "failed_pages" in wanted and seen.failed_pages != pages_of(wanted["failed_pages"]):
        yield f"failed pages {seen.failed_pages}, wanted {wanted['failed_pages']}"
    if "failed_chunks" in wanted and seen.job.failed_chunks != wanted["failed_chunks"]:
        yield f"{seen.job.failed_chunks} failed chunks, wanted {wanted['failed_chunks']}"
    if "stale" in wanted and seen.job.stale != wanted["stale"]:
        yield f"stale is {seen.job.stale}"
    if isinstance(wanted.get("chunks"), int) and len(seen.chunks) != wanted["chunks"]:
        yield f"{len(seen.chunks)} chunks, wanted {wanted['chunks']}"
    if isinstance(wanted.get("attempts"), int) and seen.job.attempt != wanted["attempts"]:
        yield f"attempt {seen.job.attempt}, wanted {wanted['attempts']}"
    yield from _segments(seen, wanted)
    bodies = folded(" ".join(fields["text"] for fields in seen.chunks.values()))
    yield from (f"no chunk has {words!r}" for words in wanted.get("text_contains", ()) if words not in bodies)


def _segments(seen: Seen, wanted: Asked) -> Iterator[str]:
    failed = sum(row.state == "failed" for row in seen.segments)
    counts = {"failed": failed, "done": len(seen.segments) - failed}
    for name, number in wanted.get("segments", {}).items():
        if counts[name] != number:
            yield f"{counts[name]} segments {name}, wanted {number}"
    engines = {row.engine for row in seen.segments if row.engine}
    if "engines_used" in wanted and not _fits(len(engines), wanted["engines_used"]):
        yield f"engines {sorted(engines)}, wanted {wanted['engines_used']}"
    if "repairs" in wanted and not _fits(sum(row.repairs for row in seen.segments), wanted["repairs"]):
        yield f"{sum(row.repairs for row in seen.segments)} repairs, wanted {wanted['repairs']}"


# ---------------------------------------------------------------- the last run


def _outcome(scenario: Scenario, asked: Asked) -> Iterator[str]:
    run = scenario.runs[-1] if scenario.runs else None
    if "exit" in asked and run is not None:
        wanted = asked["exit"]
        if (run.code == 0) if wanted == "nonzero" else (run.code != wanted):
            yield f"exit code {run.code}, wanted {wanted}: {run.output[-300:]}"
    for words in map(scenario.named, asked.get("message_contains", ())):
        if run is None or words.lower() not in run.output.lower():
            yield f"the output does not say {words!r}"


def _counts(scenario: Scenario, wanted: Asked) -> Iterator[str]:
    found = scenario.counted()
    for name, number in wanted.items():
        if name in UNCOUNTED:
            continue
        if name not in found and name not in COUNTED:
            raise NotYet(f"the count {name}")
        if not _fits(found[name], number):
            yield f"{name} {found[name]}, wanted {number}"


COUNTED = {"items_lost", "window_decreases"}
UNCOUNTED = {"window_decreases", "items_lost", "attempts_of_one_unit", "texts_embedded_twice"}


def _fits(value: float, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return bool(wanted.get("min", value) <= value <= wanted.get("max", value))
    return bool(value == wanted)


# ---------------------------------------------------------------- index and calls


def _index(scenario: Scenario, chunks: Chunks, wanted: Asked) -> Iterator[str]:
    bodies = [folded(fields["text"]) for fields in chunks.values()]
    if "equals" in wanted:
        yield from _equals(scenario, chunks, wanted["equals"])
    if "chunks" in wanted and len(chunks) != wanted["chunks"]:
        yield f"{len(chunks)} chunks in the index, wanted {wanted['chunks']}"
    for words in wanted.get("has_text", ()):
        if not any(folded(words) in body for body in bodies):
            yield f"no chunk has {words!r}"
    for words in wanted.get("lacks_text", ()):
        if any((folded(words) or words) in body for body in bodies):
            yield f"a chunk has {words!r}"
    for key, several in wanted.get("lacks_text_in", {}).items():
        mine = [folded(fields["text"]) for fields in chunks.values() if fields["doc_key"] == key]
        yield from (f"a chunk of {key} has {words!r}" for words in several if any(words in body for body in mine))
    if "vector_length_error_max" in wanted:
        lengths = np.linalg.norm(np.array([fields["vector"] for fields in chunks.values()]), axis=1)
        if (worst := float(np.abs(lengths - 1).max())) >= wanted["vector_length_error_max"]:
            yield f"a vector is {worst:.2g} off unit length"
    yield from _named(scenario, wanted.get("named", {}))


def _equals(scenario: Scenario, chunks: Chunks, names: list[str]) -> Iterator[str]:
    bucket = scenario.site.bucket
    wanted: set[str] = set()
    for name in names:
        key, _, label = name.rpartition("@")
        version = scenario.versions[key, label]
        document = digest(bucket, key, version)
        counts = [fields["chunk_count"] for fields in chunks.values() if fields["document_id"] == document]
        wanted |= {digest(bucket, key, version, str(number)) for number in range(counts[0] if counts else 1)}
    if set(chunks) != wanted:
        more, fewer = len(set(chunks) - wanted), len(wanted - set(chunks))
        yield f"the index has {more} chunks more and {fewer} fewer than {names}"


def _named(scenario: Scenario, wanted: Asked) -> Iterator[str]:
    search = scenario.site.search
    for name, facts in wanted.items():
        ours = scenario.named(name)
        if "documents" in facts and (found := int(search.count(index=ours)["count"])) != facts["documents"]:
            yield f"index {name} holds {found} documents, wanted {facts['documents']}"
        if facts.get("is_alias") and not search.indices.exists_alias(name=ours):
            yield f"{name} is no alias"


def _calls(scenario: Scenario, wanted: Asked) -> Iterator[str]:
    if name := wanted.get("all_different"):
        found = scenario.calls[name]
        if len(set(found)) != len(found):
            yield f"{name}: {len(found) - len(set(found))} are equal"
    for right, name in (("serial", "equals_serial"), ("refused", "refused_beyond_first")):
        if name in wanted and (was := scenario.calls[wanted[name]]) != right:
            yield f"{wanted[name]}: it was {was}, not {right}"
    if unknown := wanted.keys() - {"all_different", "equals_serial", "refused_beyond_first"}:
        raise NotYet(f"calls: {', '.join(sorted(unknown))}")
