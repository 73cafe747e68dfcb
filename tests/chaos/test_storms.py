"""Services that refuse, lie, hang up or die under a run: the index still ends equal to that of an undisturbed run."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from local import opensearch, postgres
from local.service import Service
from tests.chaos.conftest import DOCUMENTS, MODEL
from tests.chaos.test_kill import assert_equal
from tests.harness import Site, Stack
from tests.scenarios.proxy import Faults, before

BAD = {
    "a storm of 429": [{"does": "item_429", "times": 3}],
    "half-failed bulks": [{"does": "leave_out_last_items", "items": 20, "left": 4}, {"does": "item_429", "times": 1}],
    "connections cut after the write": [
        {"does": "drop_connection_after_write", "left": 4},
        {"does": "html_502", "left": 4},
    ],
}


@pytest.mark.parametrize("storm", BAD)
def test_answers_that_are_lost_or_bad_lose_and_double_nothing(
    storm: str, stack: Stack, tmp_path: Path, undisturbed: Site
) -> None:
    faults = Faults(on=[dict(fault) for fault in BAD[storm]])
    with before(stack.opensearch_url, faults) as url:
        site = Site(stack, tmp_path, {**MODEL, "index.url": url})
        site.put(DOCUMENTS)
        outcome = site.backfill()
    assert outcome.code == 0, outcome.output[-3000:]
    assert_equal(site, undisturbed)
    assert outcome.report["chunks"]["embedded"] == len(undisturbed.chunks()), "what index met costs embed nothing"
    assert sum(outcome.report["bulk_retries"].values()) > 0


# ---------------------------------------------------------------- the servers themselves


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Service]:
    """An OpenSearch of the test's own, which may be killed."""
    started = opensearch.start(tmp_path / "node")
    yield started
    started.stop()


def test_an_index_that_is_killed_and_comes_back_is_written_to_its_end(
    node: Service, stack: Stack, tmp_path: Path, undisturbed: Site
) -> None:
    site = Site(replace(stack, opensearch_url=node.url), tmp_path, MODEL)
    site.put(DOCUMENTS)
    job = site.start()
    site.wait_for_chunks(96, job)
    psutil.Process(node.pid).kill()
    time.sleep(20)
    again = opensearch.start(tmp_path / "node", port=int(node.url.rpartition(":")[2]))
    try:
        outcome = site.finish(job)
        assert outcome.code == 0, outcome.output[-3000:]
        assert outcome.report["documents"] == {"ready": len(DOCUMENTS)}, "an outage poisons nothing"
        assert_equal(site, undisturbed)
    finally:
        again.stop()


def test_a_ledger_that_is_killed_and_comes_back_loses_nothing(stack: Stack, tmp_path: Path, undisturbed: Site) -> None:
    server = postgres.start(tmp_path / "pg")
    site = Site(stack, tmp_path, {**MODEL, "ledger.url": server.url})
    site.put(DOCUMENTS)
    job = site.start()
    site.wait_for_chunks(96, job)
    for process in [*psutil.Process(server.pid).children(recursive=True), psutil.Process(server.pid)]:
        process.send_signal(signal.SIGKILL)
    time.sleep(5)
    again = postgres.start(tmp_path / "pg")
    try:
        outcome = site.finish(job)
        assert outcome.code == 0, outcome.output[-3000:]
        assert_equal(site, undisturbed)
    finally:
        again.stop()


def test_a_document_that_kills_its_actor_costs_itself_alone(stack: Stack, tmp_path: Path, undisturbed: Site) -> None:
    from tests.scenarios.faults import Switches

    site = Site(stack, tmp_path, MODEL)
    site.put({**DOCUMENTS, "killer.pdf": next(iter(DOCUMENTS.values()))})
    faults = Switches(tmp_path, Faults())
    faults.on({"at": "engine", "key": "killer.pdf", "pages": "23", "does": "kill_parent"})
    job = site.start(environment=faults.write(site))
    outcome = site.finish(job)
    assert outcome.code == 3, outcome.output[-3000:]
    assert outcome.report["documents"] == {"ready": len(DOCUMENTS), "partial": 1}
    assert [(row["key"], row["reason"]) for row in outcome.report["failures"]] == [("killer.pdf", "engine_crashed")]
