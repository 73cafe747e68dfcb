"""A run on a real index: settings come back however it ends, and a thrown-away index is made again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ingest.config import Config, parse
from ingest.errors import StoreRefused
from ingest.index import generations
from ingest.index.client import Cluster, connect
from ingest.runs import bulk_settings, ensure_generation, fingerprints_of, opened
from ingest.state import Ledger
from tests.proxy import faulty, first_of_each

_numbers = itertools.count()


@pytest.fixture
def config(opensearch_url: str, tmp_path: Path) -> Iterator[Config]:
    made = parse(
        {
            "source": {"bucket": "b"},
            "artifacts": {"bucket": "a"},
            "ledger": {"url": f"sqlite:///{tmp_path}/ledger.db"},
            "index": {"url": opensearch_url, "alias": f"runs{next(_numbers)}", "refresh_interval": "7s", "replicas": 1},
            "embed": {"model": "hashing:8"},
        }
    )
    yield made
    cluster = connect(made.index)
    cluster.call("DELETE", f"/{made.index.alias}-*")
    cluster.close()


@pytest.fixture
def cluster(config: Config) -> Iterator[Cluster]:
    found = connect(config.index)
    yield found
    found.close()


@pytest.fixture
def ledger(config: Config) -> Iterator[Ledger]:
    found = Ledger(config.ledger.url)
    found.migrate()
    yield found
    found.close()


def generation(config: Config, ledger: Ledger) -> str:
    return ensure_generation(config, ledger, fingerprints_of(config)).name


ASKED = {"index.refresh_interval": "7s", "index.number_of_replicas": "1"}


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, None])
def test_settings_come_back_however_the_load_ends(
    config: Config, ledger: Ledger, cluster: Cluster, error: type[BaseException] | None
) -> None:
    index = generation(config, ledger)

    def load() -> None:
        with bulk_settings(config, ledger, index):
            assert generations.settings(cluster, index) == dict(generations.LOAD_SETTINGS)
            if error:
                raise error

    if error:
        with pytest.raises(error):
            load()
    else:
        load()
    assert generations.settings(cluster, index) == ASKED
    assert ledger.saved_settings(index) is None


def test_what_a_killed_run_left_off_is_put_right_by_the_next(config: Config, ledger: Ledger, cluster: Cluster) -> None:
    index = generation(config, ledger)
    killed = bulk_settings(config, ledger, index)
    killed.__enter__()  # and never left
    with bulk_settings(config, ledger, index):
        pass
    assert generations.settings(cluster, index) == ASKED


def test_an_index_that_readers_use_keeps_its_replicas(config: Config, ledger: Ledger, cluster: Cluster) -> None:
    index = generation(config, ledger)
    cluster.call("PUT", f"/{index}/_doc/1", {"document_id": "d"}, refresh="true")
    with bulk_settings(config, ledger, index):
        assert generations.settings(cluster, index) == ASKED
    assert generations.settings(cluster, index) == ASKED


def test_an_index_that_is_filled_beside_the_one_that_serves_is_loaded_without(
    config: Config, ledger: Ledger, cluster: Cluster
) -> None:
    index = generation(config, ledger)
    cluster.call("PUT", f"/{index}/_doc/1", {"document_id": "d"}, refresh="true")
    cluster.call("POST", "/_aliases", {"actions": [{"remove": {"index": index, "alias": config.index.alias}}]})
    with bulk_settings(config, ledger, index):
        assert generations.settings(cluster, index) == dict(generations.LOAD_SETTINGS)


@pytest.mark.parametrize("error", [None, KeyError, KeyboardInterrupt])
def test_the_index_has_its_settings_back_however_a_run_ends(
    config: Config, ledger: Ledger, cluster: Cluster, error: type[BaseException] | None
) -> None:
    with suppress(KeyError, KeyboardInterrupt), opened(config, "backfill", "run-1") as (run, _, _):
        found = ledger.run("run-1")
        assert found is not None
        assert (found.state, found.verb) == ("running", "backfill")
        assert generations.settings(cluster, run.generation) != ASKED
        if error:
            raise error
    assert generations.settings(cluster, run.generation) == ASKED


def test_the_same_configuration_finds_its_generation_again(config: Config, ledger: Ledger, cluster: Cluster) -> None:
    index = generation(config, ledger)
    assert generation(config, ledger) == index
    assert generations.serving(cluster, config.index.alias) == index
    other = config.model_copy(update={"chunk": config.chunk.model_copy(update={"size": 100})})
    assert fingerprints_of(other) != fingerprints_of(config)


def test_a_thrown_away_index_is_made_again_under_its_name(config: Config, ledger: Ledger, cluster: Cluster) -> None:
    index = generation(config, ledger)
    cluster.call("DELETE", f"/{index}")
    assert generation(config, ledger) == index
    assert generations.exists(cluster, index, "")


def test_an_index_that_somebody_else_made_under_the_name_is_not_taken(
    config: Config, ledger: Ledger, cluster: Cluster
) -> None:
    index = generation(config, ledger)
    cluster.call("DELETE", f"/{index}")
    cluster.call("PUT", f"/{index}")
    with pytest.raises(StoreRefused, match="made anew"):
        generation(config, ledger)


@pytest.mark.parametrize("status", [429, 503])
def test_a_run_begins_on_a_cluster_that_is_busy_for_a_moment(config: Config, cluster: Cluster, status: int) -> None:
    with faulty(config.index.url, first_of_each(status)) as url:
        behind = config.model_copy(update={"index": config.index.model_copy(update={"url": url})})
        with opened(behind, "backfill", "run-1") as (run, _, sink):
            assert generations.serving(cluster, config.index.alias) == run.generation
            assert generations.settings(cluster, run.generation) == dict(generations.LOAD_SETTINGS)
            assert sink.total() == 0
        assert generations.settings(cluster, run.generation) == ASKED
