"""The main job as people run it: documents in S3, one command, an index that holds exactly what it should."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml

from tests import corpus
from tests.harness import Site, Stack, contents, digest

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
HEALTHY = corpus.healthy(8, seed=1)
BROKEN = corpus.broken()
KEPT = corpus.awkward()


@pytest.fixture(scope="module")
def site(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(stack, tmp_path_factory.mktemp("site"))


def test_first_run_indexes_exactly_the_expected_chunks(site: Site) -> None:
    site.put(HEALTHY | KEPT | {key: body for key, (body, _) in BROKEN.items()} | {"folder/": b""})
    outcome = site.backfill()

    assert outcome.code == 3, outcome.output  # the broken ones are not served, and the exit code says so
    jsonschema.validate(outcome.report, SCHEMA)
    chunks = site.chunks()
    served = HEALTHY.keys() | KEPT.keys()
    assert set(chunks) == site.expected_ids(chunks, set(served))
    assert outcome.report["documents"]["ready"] == len(served)
    assert outcome.report["chunks"]["expected"] == outcome.report["chunks"]["written"] == len(chunks)
    assert outcome.report["chunks"]["truncated"] == 0
    assert outcome.report["skipped"]["folder"] == 1


def test_every_hash_of_a_chunk_is_what_the_documentation_says(site: Site) -> None:
    for chunk, fields in site.chunks().items():
        name = (fields["doc_bucket"], fields["doc_key"])
        assert chunk == digest(*name, fields["doc_version"], str(fields["chunk_index"]))
        assert fields["document_id"] == digest(*name, fields["doc_version"])
        assert fields["doc_key_hash"] == digest(*name)
        assert fields["content_hash"] == digest(fields["header"], fields["text"])


def test_healthy_documents_have_the_same_chunks_without_the_broken_ones(
    site: Site, stack: Stack, tmp_path: Path
) -> None:
    alone = Site(stack, tmp_path, reads=site)
    outcome = alone.backfill("--exclude", "broken/*")

    assert outcome.code == 0, outcome.output
    assert outcome.report["outcome"] == "ready"
    assert outcome.report["skipped"]["excluded"] == len(BROKEN)
    beside, mine = site.chunks(), alone.chunks()
    assert mine.keys() == beside.keys()
    assert contents(mine) == contents(beside)


def test_each_broken_document_ends_at_once_with_a_reason(site: Site) -> None:
    report = json.loads(site.report.read_text())
    failures = {row["key"]: row for row in report["failures"] if row["unit"] == "document"}
    assert failures.keys() == BROKEN.keys()
    for key, (_, reasons) in BROKEN.items():
        assert failures[key]["reason"] in reasons
        assert failures[key]["branch"] in ("poison", "human")
        assert len(failures[key]["sentence"]) > 20
    assert report["documents"].get("failed", 0) == 0


def test_calls_are_full_and_index_stays_below_embed(site: Site) -> None:
    report = json.loads(site.report.read_text())
    embedded = report["chunks"]["embedded"]
    assert report["embed_calls"]["full"] == embedded // 96
    assert report["embed_calls"]["short"] == (1 if embedded % 96 else 0)
    throttle = report["throttle"]
    assert 1 <= throttle["index_in_flight_peak"] <= throttle["index_in_flight_allowed"]
    assert throttle["index_in_flight_allowed"] < throttle["embed_in_flight_allowed"]
    assert throttle["embed_in_flight_peak"] <= throttle["embed_in_flight_allowed"]


def test_stored_vectors_have_unit_length(site: Site) -> None:
    vectors = np.array([fields["vector"] for fields in site.chunks().values()])
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5


def test_second_run_embeds_nothing_and_writes_nothing(site: Site) -> None:
    before = site.chunks()
    outcome = site.backfill()

    chunks = outcome.report["chunks"]
    assert (chunks["embedded"], chunks["written"], chunks["deleted"]) == (0, 0, 0)
    assert "nothing to do" in outcome.output
    assert outcome.report["documents_touched"] == 0
    assert site.chunks() == before


def test_index_has_its_settings_back(site: Site) -> None:
    assert site.settings()["refresh_interval"] == "1s"


def test_a_new_version_replaces_the_old_one_and_a_deleted_key_goes(site: Site) -> None:
    changed = next(key for key in HEALTHY if key.endswith(".md"))
    removed = next(key for key in HEALTHY if key.endswith(".txt"))
    site.put({changed: b"# New\n\nOnly this is left.\n"})
    site.remove(removed)
    outcome = site.backfill()

    chunks = site.chunks()
    keys = (HEALTHY.keys() | KEPT.keys()) - {removed}
    assert set(chunks) == site.expected_ids(chunks, set(keys))
    assert [f["text"] for f in chunks.values() if f["doc_key"] == changed] == ["New\n\nOnly this is left."]
    assert outcome.report["documents"]["superseded"] == 1
    assert outcome.report["documents"]["deleted"] == 1
    assert outcome.report["chunks"]["deleted"] > 0


def test_a_change_of_principals_embeds_nothing(site: Site) -> None:
    before = site.chunks()
    site.config.write_text(site.config.read_text().replace("- public", "- staff"))
    outcome = site.backfill()

    after = site.chunks()
    assert {tuple(fields["principals"]) for fields in after.values()} == {("staff",)}
    assert {i: (f["text"], f["vector"], f["revision"]) for i, f in after.items()} == {
        i: (f["text"], f["vector"], f["revision"]) for i, f in before.items()
    }
    assert outcome.report["chunks"]["embedded"] == 0
    assert outcome.report["access_changed"] == len({fields["document_id"] for fields in after.values()})
    assert "nothing to do" not in outcome.output


def test_a_version_that_can_not_be_read_leaves_the_old_one_serving(site: Site) -> None:
    key = next(key for key in HEALTHY if key.endswith(".pdf"))
    before = {i: f for i, f in site.chunks().items() if f["doc_key"] == key}
    site.put({key: corpus.make_encrypted()})
    outcome = site.backfill()

    assert outcome.failures[key] == "password_required"
    assert {i: f for i, f in site.chunks().items() if f["doc_key"] == key} == before


def test_an_index_that_was_thrown_away_is_built_again(site: Site) -> None:
    newest = site.newest()
    before = contents({i: f for i, f in site.chunks().items() if f["doc_version"] == newest[f["doc_key"]]})
    site.search.indices.delete(index=site.index)
    outcome = site.backfill()

    assert contents(site.chunks()) == before
    assert outcome.report["chunks"]["written"] == len(before)
    assert outcome.report["pages"] == 0  # from artifacts


def test_chunks_lost_behind_our_back_are_written_again(site: Site) -> None:
    before = site.chunks()
    lost = sorted(before)[::7]
    for chunk in lost:  # with the stored revision: a delete without one is a newer write than ours for a minute
        revision = before[chunk]["revision"]
        site.search.delete(index=site.alias, id=chunk, version=revision, version_type="external_gte")
    outcome = site.backfill()

    assert site.chunks().keys() == before.keys()
    assert outcome.report["chunks"]["written"] == len(lost)
    assert outcome.report["chunks"]["embedded"] == len(lost)


def test_another_chunk_size_builds_beside_and_serves_only_when_promoted(site: Site) -> None:
    before, served = site.chunks(), site.index
    config = yaml.safe_load(site.config.read_text())
    site.config.write_text(yaml.safe_dump({**config, "chunk": {"size": 60, "header_tokens": 12}}))
    built = site.backfill()
    assert built.report["chunks"]["written"] > len(before)
    assert (site.index, site.chunks()) == (served, before)  # readers notice nothing

    promoted = site.backfill("--promote")
    assert promoted.report["chunks"]["embedded"] == 0
    assert site.index == promoted.report["generation"] != served
    assert len(site.chunks()) == built.report["chunks"]["written"]
