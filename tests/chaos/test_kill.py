"""kill -9 at any moment: the index still ends equal to that of an undisturbed run, chunk by chunk."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil
import pytest

from tests.chaos.conftest import DOCUMENTS, MODEL
from tests.harness import Chunks, Site, Stack, contents


@pytest.fixture
def site(stack: Stack, tmp_path: Path) -> Site:
    site = Site(stack, tmp_path, MODEL)
    site.put(DOCUMENTS)
    return site


def assert_equal(site: Site, undisturbed: Site) -> None:
    chunks, reference = site.chunks(), undisturbed.chunks()
    assert set(chunks) == site.expected_ids(chunks, set(DOCUMENTS))
    assert contents(chunks) == contents(reference)
    assert cosines(chunks, reference).min() > 0.999


def cosines(chunks: Chunks, reference: Chunks) -> npt.NDArray[np.float64]:
    def ordered(found: Chunks) -> npt.NDArray[np.float64]:
        rows = sorted(found.values(), key=lambda fields: (fields["doc_key"], fields["chunk_index"]))
        return np.array([fields["vector"] for fields in rows])

    products: npt.NDArray[np.float64] = np.einsum("ij,ij->i", ordered(chunks), ordered(reference))
    return products


def test_a_killed_job_goes_on_where_it_stood(site: Site, undisturbed: Site) -> None:
    job = site.start()
    site.wait_for_chunks(96, job)
    driver(site).kill()
    assert site.finish(job).code != 0
    written = site.count()
    outcome = site.backfill()

    assert outcome.code == 0, outcome.output[-3000:]
    assert_equal(site, undisturbed)
    total = len(site.chunks())
    in_flight = 3 * 96  # two calls in the embed actor and one block behind them may have been written unseen
    assert outcome.report["chunks"]["embedded"] <= total - written + in_flight
    assert outcome.report["pages"] < 16 * 24  # what was parsed and settled is not parsed again


MOMENTS = {
    "listing": "SELECT 1 FROM history LIMIT 1",  # the first page is in the ledger, nothing is taken
    "verifying": "SELECT 1 FROM history WHERE to_state = 'ready' LIMIT 1",
    "ending": "SELECT 1 FROM (SELECT count(*) AS n FROM jobs WHERE state = 'ready') WHERE n = 16",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_job_killed_at_any_moment_goes_on(moment: str, site: Site, undisturbed: Site) -> None:
    job = site.start()
    deadline = time.monotonic() + 150
    while not site.ledger_rows(MOMENTS[moment]):
        assert job.poll() is None, "the job ended before there was anything to kill"
        assert time.monotonic() < deadline, f"{moment} did not come within 150 s"
        time.sleep(0.02)
    driver(site).kill()
    assert site.finish(job).code != 0
    outcome = site.backfill()

    assert outcome.code == 0, outcome.output[-3000:]
    assert_equal(site, undisturbed)
    assert site.settings()["refresh_interval"] == "1s"


def test_an_interrupted_job_says_so_and_goes_on(site: Site, undisturbed: Site) -> None:
    job = site.start()
    site.wait_for_chunks(96, job)
    job.send_signal(signal.SIGINT)  # Ctrl-C on the submitting side stops the job
    outcome = site.finish(job)

    assert outcome.code == 130, outcome.output[-3000:]
    assert (outcome.report["outcome"], outcome.report["exit_code"]) == ("interrupted", 130)
    assert 96 <= outcome.report["chunks"]["written"] < len(undisturbed.chunks())
    assert site.settings()["refresh_interval"] == "1s"  # what is there can be searched

    assert site.backfill().code == 0
    assert_equal(site, undisturbed)


@pytest.mark.parametrize("stage", ["Triage", "Parse", "Embed", "Index"])
def test_a_killed_actor_changes_nothing(stage: str, site: Site, undisturbed: Site) -> None:
    job = site.start()
    kill_one(site, stage, job)
    outcome = site.finish(job)

    assert outcome.code == 0, outcome.output[-3000:]
    assert_equal(site, undisturbed)


def driver(site: Site) -> psutil.Process:
    """The job's own process, found by its configuration file."""
    workers = psutil.Process(site.stack.head_pid).children(recursive=True)
    found = [p for p in workers if str(site.config) in p.cmdline() and "backfill" in p.cmdline()]
    return max(found, key=lambda process: process.create_time())  # the shell that started it has the same words


def kill_one(site: Site, stage: str, job: subprocess.Popen[str]) -> None:
    """Kills an actor of the stage that has begun to work."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert job.poll() is None, "the job ended before there was anything to kill"
        if (actors := site.stack.actors(stage)) and is_working(site, stage):
            actors[0].kill()
            return
        time.sleep(0.05)
    raise AssertionError(f"no working {stage} actor within 120 s")


def is_working(site: Site, stage: str) -> bool:
    if stage in ("Embed", "Index"):
        return site.count() >= 96
    states = {"Triage": "triaging", "Parse": "assembling"}
    return bool(site.ledger_rows(f"SELECT 1 FROM history WHERE to_state = '{states[stage]}' LIMIT 1"))
