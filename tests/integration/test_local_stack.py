"""The laptop stack against the real thing: nodes, ports, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from local import jars, moto, net, opensearch, postgres, ray_head, service
from local.errors import PortTaken, StartFailed
from local.layout import LOOPBACK, SOURCE
from local.service import Service


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A node that admits 1 MB of writes at a time."""
    started = opensearch.start(tmp_path_factory.mktemp("node"), settings={"indexing_pressure.memory.limit": "1mb"})
    yield started
    started.stop()
    assert_nothing_left(started)


def assert_nothing_left(stopped: Service) -> None:
    marked = service.mark(stopped.name, stopped.home)
    left = [p for p in psutil.process_iter() if _environment(p).get(service.MARK) == marked]
    assert left == []
    assert not stopped.is_running()


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ() if process.status() != psutil.STATUS_ZOMBIE else {}
    except (psutil.Error, OSError):
        return {}


def send(method: str, url: str, body: object) -> Any:
    return net.send_json(method, url, body)


def send_bulk(node: Service, lines: list[dict[str, object]]) -> Any:
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    headers = {"Content-Type": "application/x-ndjson"}
    request = urllib.request.Request(f"{node.url}/_bulk?refresh=true", data=body, headers=headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
        return json.load(response)


def test_node_searches_vectors_with_a_filter(node: Service) -> None:
    vector = {"type": "knn_vector", "dimension": 3, "method": {"name": "hnsw", "engine": "lucene"}}
    properties = {"vector": vector, "colour": {"type": "keyword"}}
    send("PUT", f"{node.url}/v", {"settings": {"index.knn": True}, "mappings": {"properties": properties}})
    documents = {"a": ([1, 0, 0], "red"), "b": ([0, 1, 0], "red"), "c": ([0.9, 0.1, 0], "blue")}
    lines: list[dict[str, object]] = []
    for name, (values, colour) in documents.items():
        lines += [{"index": {"_index": "v", "_id": name}}, {"vector": values, "colour": colour}]
    assert send_bulk(node, lines)["errors"] is False
    knn = {"vector": [1, 0, 0], "k": 3, "filter": {"term": {"colour": "red"}}}
    found = send("POST", f"{node.url}/v/_search", {"query": {"knn": {"vector": knn}}})
    assert [hit["_id"] for hit in found["hits"]["hits"]] == ["a", "b"]


def test_node_under_write_pressure_answers_429(node: Service) -> None:
    send("PUT", f"{node.url}/pressure", {})
    lines: list[dict[str, object]] = [{"index": {"_index": "pressure", "_id": "1"}}, {"text": "x" * 1_300_000}]
    with pytest.raises(urllib.error.HTTPError) as rejected:
        send_bulk(node, lines)
    with rejected.value:
        assert rejected.value.code == 429
        assert "rejected_execution" in rejected.value.read().decode()


def test_refused_setting_is_told_with_the_log(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"unknown setting \[no\.such\.setting\]"):
        opensearch.start(tmp_path, settings={"no.such.setting": "1"})


def test_taken_port_names_the_port_and_the_holder(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = rf"port {port}, which .+ \(pid {os.getpid()}\) holds.*OPENSEARCH_PORT"
        with pytest.raises(PortTaken, match=told):
            opensearch.start(tmp_path, port=port)


def test_buckets_are_there_and_documents_are_versioned(tmp_path: Path) -> None:
    import boto3

    started = moto.start(tmp_path)
    try:
        s3 = boto3.client(
            "s3",
            endpoint_url=started.url,
            region_name=moto.REGION,
            aws_access_key_id=moto.CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=moto.CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        assert {b["Name"] for b in s3.list_buckets()["Buckets"]} == {moto.DOCUMENTS, moto.ARTIFACTS}
        assert s3.get_bucket_versioning(Bucket=moto.DOCUMENTS)["Status"] == "Enabled"
        s3.close()
    finally:
        started.stop()
    assert_nothing_left(started)


def test_postgres_keeps_its_data_over_a_restart() -> None:
    import psycopg

    # not tmp_path: a socket's path may have 103 characters, and the server's own user must get to it
    home = Path("/tmp") / f"doc-ingest-postgres-{os.getpid()}"
    try:
        for statement in ("create table t as select 41 + 1 as answer", "insert into t values (43)"):
            started = postgres.start(home)
            with psycopg.connect(started.url.replace("+psycopg", "")) as connection:
                connection.execute(statement)
                rows = connection.execute("select answer from t order by 1").fetchall()
            started.stop()
            assert not started.is_running()
        assert rows == [(42,), (43,)]
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_ray_head_listens_on_loopback_only_and_leaves_nothing(tmp_path: Path) -> None:
    started = ray_head.start(tmp_path)
    try:
        family = [psutil.Process(started.pid), *psutil.Process(started.pid).children(recursive=True)]
        listening = {c.laddr.ip for p in family for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    finally:
        started.stop()
        shutil.rmtree(ray_head.temp_dir(tmp_path), ignore_errors=True)
    assert listening <= {LOOPBACK, f"::ffff:{LOOPBACK}", "::1"}
    assert_nothing_left(started)


def test_reused_pid_is_not_ours_and_survives_a_stop(tmp_path: Path) -> None:
    child = service.spawn(service.Command("sleeper", ["sleep", "60"], tmp_path / "other"))
    try:
        stranger = Service("node", "", child.pid, tmp_path, created_s=psutil.Process(child.pid).create_time() - 100)
        assert not stranger.is_running()
        stranger.stop()
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_grandchild_in_its_own_session_ends_with_the_service(tmp_path: Path) -> None:
    script = f"setsid sleep 60 & echo $! > {tmp_path}/grandchild; sleep 60"
    started = service.start(
        service.Command("family", ["bash", "-c", script], tmp_path),
        lambda: "up" if (tmp_path / "grandchild").exists() else None,
    )
    started.stop()
    assert_nothing_left(started)


def test_record_finds_the_service_again(tmp_path: Path) -> None:
    saved = Service("node", "http://127.0.0.1:1", 1, tmp_path, 2.5)
    saved.save(tmp_path)
    assert service.load("node", tmp_path) == saved
    assert service.load("other", tmp_path) is None


def test_lock_list_pins_every_artifact_by_checksum() -> None:
    locked = jars.read_lock(SOURCE / "opensearch-2.lock")
    assert len({(a.group, a.name) for a in locked}) == len(locked) > 70
    assert all(re.fullmatch("[0-9a-f]{64}", a.sha256) for a in locked)
    assert {a.name for a in locked if a.packaging == "zip"} == {"opensearch-knn", "neural-search"}
