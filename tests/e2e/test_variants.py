"""The same job on PostgreSQL, over all versions, and on a cluster whose GPUs are on one node."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local import postgres
from tests import corpus
from tests.harness import Site, Stack, digest

DOCUMENTS = corpus.healthy(4, seed=3)


@pytest.fixture
def postgres_url(tmp_path: Path) -> Iterator[str]:
    server = postgres.start(tmp_path / "pg")
    yield server.url
    server.stop()


def test_all_versions_on_a_postgresql_ledger(stack: Stack, tmp_path: Path, postgres_url: str) -> None:
    site = Site(stack, tmp_path, {"ledger.url": postgres_url})
    versions = [site.put(DOCUMENTS), site.put({key: body + b"\n" for key, body in DOCUMENTS.items()})]
    outcome = site.backfill("--all-versions")

    assert outcome.code == 0, outcome.output[-3000:]
    chunks = site.chunks()
    found = {(fields["doc_key"], fields["doc_version"]) for fields in chunks.values()}
    assert found == {(key, version) for uploaded in versions for key, version in uploaded.items()}
    assert set(chunks) == {
        digest(site.bucket, fields["doc_key"], fields["doc_version"], str(number))
        for fields in chunks.values()
        for number in range(fields["chunk_count"])
    }


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head with CPUs only and a second node with two logical GPUs."""
    from ray.cluster_utils import Cluster

    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": False})
    made.add_node(num_cpus=1, num_gpus=2)
    yield made
    made.shutdown()


def test_embed_actors_sit_where_the_gpus_are(cluster: Any, stack: Stack, tmp_path: Path) -> None:
    import ray

    ray_api: Any = ray  # untyped in parts
    site = Site(stack, tmp_path, {"embed.gpus": 1.0, "embed.actors": 2, "embed.concurrency": 1, "embed.cpus": 0.0})
    site.put(DOCUMENTS)
    job = subprocess.run(
        [sys.executable, "-m", "jobs", "backfill", "--config", str(site.config)],
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert job.returncode == 0, job.stdout[-2000:] + job.stderr[-2000:]
    ray_api.init(address=cluster.address, logging_level=logging.ERROR)
    try:
        gpu_nodes = {node["NodeID"] for node in ray_api.nodes() if node["Resources"].get("GPU")}
        actors = ray_api._private.state.actors().values()
        embed = {a["Address"]["NodeID"] for a in actors if "Embed" in a["ActorClassName"]}
    finally:
        ray_api.shutdown()
    assert embed == gpu_nodes
    assert set(site.chunks()) == site.expected_ids(site.chunks(), set(DOCUMENTS))
