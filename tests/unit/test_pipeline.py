"""How the spine cuts its work; no cluster is started."""

from __future__ import annotations

import pytest
import ray

from ingest import rows
from ingest.config import EmbedConfig, ParseConfig, parse
from ingest.errors import PreflightError
from ingest.model import Document, document_id
from ingest.pipeline import DOCUMENTS_PER_BLOCK, blocks, pool, require_room

CONFIG = parse(
    {
        "source": {"bucket": "b"},
        "artifacts": {"bucket": "a"},
        "ledger": {"url": "sqlite:///ledger.db"},
        "index": {"url": "http://unused:1"},
    }
)


def documents(count: int) -> list[Document]:
    """Large ones first, as the ledger gives them."""
    sizes = range(count, 0, -1)
    return [Document(document_id("b", f"{n}", "v"), "b", f"{n}", "v", "v", 1, n) for n in sizes]


def test_every_document_is_in_one_block() -> None:
    for count in (1, 3, 4, 5, 40, 1000):
        tables = blocks(documents(count), CONFIG)
        found = [document for table in tables for document in rows.documents(table)]
        assert sorted(found, key=lambda one: -one.size) == documents(count)
        assert max(table.num_rows for table in tables) <= DOCUMENTS_PER_BLOCK


def test_the_smallest_go_ahead_of_the_large() -> None:
    sizes = [[one.size for one in rows.documents(table)] for table in blocks(documents(40), CONFIG)]
    assert sizes[0] == list(range(10, 0, -1))
    assert sizes[1] == list(range(40, 30, -1))


def test_a_pool_asks_for_a_gpu_only_if_it_is_given_one() -> None:
    assert pool(ParseConfig())["num_cpus"] == ParseConfig().cpus
    assert "num_gpus" not in pool(EmbedConfig(), batch_size=96)
    assert pool(EmbedConfig(gpus=0.5), batch_size=96)["num_gpus"] == 0.5


def test_only_a_pool_with_several_calls_in_flight_is_threaded() -> None:
    assert not pool(ParseConfig())["compute"].enable_true_multi_threading
    assert pool(EmbedConfig(concurrency=2), batch_size=96)["compute"].enable_true_multi_threading


def test_a_run_that_would_wait_for_the_cpus_of_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CONFIG.pool_cpus == pytest.approx(0.7)
    monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 1.7})  # as a real cluster with other jobs says
    require_room(CONFIG)
    for free in ({"CPU": 1.6}, {}):
        monkeypatch.setattr(ray, "available_resources", lambda free=free: free)
        with pytest.raises(PreflightError, match=r"the pools hold 0\.7 and one must stay free"):
            require_room(CONFIG)
