"""The mapping holds every field that is written, and changes its name when it changes."""

from __future__ import annotations

import json

import pytest

from ingest.config import IndexConfig
from ingest.index.mapping import VECTOR, WriteMeta, index_body, mapping_fingerprint, properties, source
from ingest.model import Chunk, Document, IndexChunk, key_hash

CONFIG = IndexConfig(url="http://127.0.0.1:9200")
META = WriteMeta(parser="p-1", chunker="c-1", embedder="e-1", run_id="run", written_at=1_700_000_000.5)


def index_chunk(principals: tuple[str, ...] = ("alice",)) -> IndexChunk:
    document = Document("d" * 64, "bucket", "a/b.pdf", "v1", "v1", 4, 100, "tenant", principals)
    chunk = Chunk(2, 10, 15, "hello", 3, 4, ("One", "Two"), "One > Two", 7, 0, "parent")
    return IndexChunk("id", document, chunk, 5, "hash", "Title", "en")


def test_every_field_that_is_written_is_in_the_mapping_and_the_other_way_round() -> None:
    assert set(source(index_chunk(), META)) | {VECTOR} == set(properties(CONFIG, 4))


def test_a_document_of_the_index_is_plain_json() -> None:
    fields = source(index_chunk(), META)
    assert json.loads(json.dumps(fields)) == fields
    assert fields["doc_key_hash"] == key_hash("bucket", "a/b.pdf")
    assert (fields["revision"], fields["chunk_index"], fields["chunk_count"]) == (4, 2, 5)
    assert (fields["char_start"], fields["char_end"], fields["page_from"], fields["page_to"]) == (10, 15, 3, 4)
    assert fields["headings"] == ["One", "Two"]
    assert fields["written_at"] == 1_700_000_000_500


def test_no_principals_are_written_as_nobody() -> None:
    assert source(index_chunk(()), META)["principals"] == []


def test_an_unknown_field_is_refused_by_the_index() -> None:
    assert index_body(CONFIG, 4, {})["mappings"]["dynamic"] == "strict"


def test_no_field_has_a_name_that_clients_take_for_an_option() -> None:
    assert not set(properties(CONFIG, 4)) & {"version", "routing", "parent", "pipeline", "version_type"}


def test_the_engine_is_always_named() -> None:
    for engine in ("lucene", "faiss"):
        config = CONFIG.model_copy(update={"engine": engine})
        assert properties(config, 4)[VECTOR]["method"]["engine"] == engine


def test_the_index_carries_its_fingerprints() -> None:
    meta = index_body(CONFIG, 4, {"parser": "p", "embedder": "e"})["mappings"]["_meta"]
    assert meta == {"parser": "p", "embedder": "e", "dimension": 4, "mapping": mapping_fingerprint(CONFIG, 4)}


@pytest.mark.parametrize("change", [{"m": 32}, {"ef_construction": 200}, {"engine": "faiss"}])
def test_another_graph_is_another_mapping(change: dict[str, object]) -> None:
    assert mapping_fingerprint(CONFIG.model_copy(update=change), 4) != mapping_fingerprint(CONFIG, 4)


def test_another_dimension_is_another_mapping_and_other_settings_are_not() -> None:
    assert mapping_fingerprint(CONFIG, 8) != mapping_fingerprint(CONFIG, 4)
    same = CONFIG.model_copy(update={"replicas": 2, "shards": 6, "url": "http://elsewhere:9200"})
    assert mapping_fingerprint(same, 4) == mapping_fingerprint(CONFIG, 4)
