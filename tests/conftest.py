"""Services that tests share, each by URL from the environment or started here, and nothing left running."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from local import given as given_servers
from local import moto, opensearch, ray_head
from local.moto import CREDENTIALS
from tests.harness import Stack

FAULTS = Path(__file__).parent / "scenarios" / "site"  # asleep in a job that names no faults
# The same examples in every run, so that a failure is of the change at hand; HYPOTHESIS=search draws new and more ones.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", database=None, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS") or "same")


@pytest.fixture(scope="session", autouse=True)
def _no_configuration_from_outside() -> Iterator[None]:
    """A shell that sourced ``.local/env`` must not lead a test to the laptop stack."""
    patch = pytest.MonkeyPatch()
    for name in list(os.environ):
        if name.startswith(("INGEST_", "LEDGER_", "RAY_ADDRESS", "AWS_")):
            patch.delenv(name)
    for name, value in CREDENTIALS.items():
        patch.setenv(name, value)
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """Every process that a test started has ended when all tests have."""
    yield
    _, alive = psutil.wait_procs(_children(), timeout=20)
    assert [process.cmdline() for process in alive] == []


def _children() -> list[psutil.Process]:
    """Without the ones of ``multiprocessing``, which end with this process."""
    found = psutil.Process().children(recursive=True)
    return [process for process in found if "multiprocessing" not in " ".join(process.cmdline())]


@pytest.fixture(scope="session")
def opensearch_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real OpenSearch node: that of ``OPENSEARCH_URL``, unless it is the laptop stack's own, else a new one."""
    if given := given_servers.server("opensearch"):
        yield given
        return
    node = opensearch.start(tmp_path_factory.mktemp("opensearch"), line=os.environ.get("OPENSEARCH") or "2")
    yield node.url
    node.stop()


@pytest.fixture(scope="session")
def aws_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """moto's server; ``AWS_ENDPOINT_URL`` points to it for the whole session."""
    server = moto.start(tmp_path_factory.mktemp("moto"))
    patch = pytest.MonkeyPatch()
    patch.setenv("AWS_ENDPOINT_URL", server.url)
    yield server.url
    patch.undo()
    server.stop()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where converted models are kept: one conversion a session."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def stack(opensearch_url: str, aws_url: str, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """OpenSearch, S3 and a Ray head that takes jobs; each test makes buckets, alias and ledger of its own."""
    environment = {"AWS_ENDPOINT_URL": aws_url, **CREDENTIALS, "PYTHONPATH": str(FAULTS)}
    head = ray_head.start(tmp_path_factory.mktemp("ray"), ray_head.Head(env=environment))
    yield Stack(opensearch_url, aws_url, head.url, head.pid, models)
    head.stop()
