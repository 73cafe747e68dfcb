"""Runs jobs as people do, on buckets and an alias of the test's own, and reads what they left in the index.

Ids are computed here from the S3 listing as ``docs/index.md`` tells, without a line of the product.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import psutil
import yaml
from opensearchpy import OpenSearch

_numbers = itertools.count(1)
Chunks = Mapping[str, Mapping[str, Any]]


def digest(*parts: str) -> str:
    raw = [part.encode() for part in parts]
    return hashlib.sha256(b"".join(b"%d:%s," % (len(r), r) for r in raw)).hexdigest()


@dataclass(frozen=True, slots=True)
class Stack:
    """The services of the session."""

    opensearch_url: str
    aws_url: str
    jobs_url: str
    head_pid: int
    models: Path

    def actors(self, stage: str) -> list[psutil.Process]:
        """Processes of a pool's actors, by the stage's class name."""
        workers = psutil.Process(self.head_pid).children(recursive=True)
        return [p for p in workers if f"MapBatches({stage})" in " ".join(_cmdline(p))]


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@dataclass(frozen=True, slots=True)
class Outcome:
    """Exit code, what was printed, and the JSON report where there is one."""

    code: int
    output: str
    report: dict[str, Any]

    @property
    def failures(self) -> dict[str, str]:
        """Key → reason of the documents that are not served."""
        return {row["key"]: row["reason"] for row in self.report["failures"] if row["unit"] == "document"}


@dataclass(slots=True)
class Site:
    """One bucket, one alias, one ledger, and the jobs that run on them."""

    stack: Stack
    folder: Path
    overrides: Mapping[str, Any] = field(default_factory=dict)
    reads: Site | None = None  # whose bucket it indexes, instead of one of its own
    number: int = field(default_factory=lambda: next(_numbers))

    def __post_init__(self) -> None:
        self.s3 = boto3.client("s3", endpoint_url=self.stack.aws_url)
        self.search = OpenSearch([self.stack.opensearch_url])
        self.s3.create_bucket(Bucket=self.artifacts)
        if not self.reads:
            self.s3.create_bucket(Bucket=self.bucket)
            self.s3.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"})
        self.config.write_text(yaml.safe_dump(self._config()))

    s3: Any = field(init=False)
    search: OpenSearch = field(init=False)

    @property
    def bucket(self) -> str:
        return self.reads.bucket if self.reads else f"docs-{os.getpid()}-{self.number}"

    @property
    def artifacts(self) -> str:
        return f"artifacts-{os.getpid()}-{self.number}"

    @property
    def alias(self) -> str:
        return f"alias-{os.getpid()}-{self.number}"

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "source": {"bucket": self.bucket, "principals": ["public"]},
            "artifacts": {"bucket": self.artifacts},
            "ledger": {"url": f"sqlite:///{self.folder}/ledger.db"},
            "index": {"url": self.stack.opensearch_url, "alias": self.alias},
            "embed": {"model": "hashing:32", "cache_dir": str(self.stack.models)},
            "verify": {"every_s": 1.0},
        }
        for dotted, value in self.overrides.items():
            section, _, key = dotted.partition(".")
            config.setdefault(section, {})[key] = value
        return config

    # ------------------------------------------------------------ source

    def put(self, documents: Mapping[str, bytes]) -> dict[str, str]:
        """Key → version id of what was uploaded."""
        return {
            k: self.s3.put_object(Bucket=self.bucket, Key=k, Body=body)["VersionId"] for k, body in documents.items()
        }

    def remove(self, key: str) -> None:
        """Puts a delete marker."""
        self.s3.delete_object(Bucket=self.bucket, Key=key)

    def newest(self) -> dict[str, str]:
        """Key → version id of every key that is not deleted."""
        pages = self.s3.get_paginator("list_object_versions").paginate(Bucket=self.bucket)
        return {row["Key"]: row["VersionId"] for page in pages for row in page.get("Versions", ()) if row["IsLatest"]}

    # ------------------------------------------------------------ jobs

    def start(
        self, *args: str, verb: str = "backfill", environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """``ingest submit -- VERB``, started."""
        self.report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "jobs", "submit", "--address", self.stack.jobs_url, "--", verb]
        return subprocess.Popen(
            [*command, "--config", str(self.config), "--report", str(self.report), *args],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})},
        )  # fmt: skip

    def backfill(self, *args: str) -> Outcome:
        """Runs the job to its end."""
        return self.finish(self.start(*args))

    def run(self, verb: str, *args: str) -> Outcome:
        """Runs another verb's job to its end."""
        return self.finish(self.start(*args, verb=verb))

    def finish(self, process: subprocess.Popen[str], timeout_s: float = 280) -> Outcome:
        """Waits for a started job."""
        output, _ = process.communicate(timeout=timeout_s)
        return Outcome(process.returncode, output, json.loads(self.report.read_text()) if self.report.exists() else {})

    @property
    def report(self) -> Path:
        return self.folder / "report.json"

    def wait_for_chunks(self, number: int, process: subprocess.Popen[str], timeout_s: float = 120) -> None:
        """Returns when the index shows at least ``number`` chunks while the job still runs."""
        deadline = time.monotonic() + timeout_s
        while self.count() < number:
            assert process.poll() is None, f"the job ended first: {process.communicate()[0][-3000:]}"
            assert time.monotonic() < deadline, f"{self.count()} chunks after {timeout_s} s"
            time.sleep(0.1)

    def ledger_rows(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of the ledger; none while it has no such table."""
        try:
            with closing(sqlite3.connect(self.folder / "ledger.db", timeout=30)) as connection:
                return connection.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []

    # ------------------------------------------------------------ index

    def count(self) -> int:
        if not self.search.indices.exists_alias(name=self.alias):
            return 0
        return int(self.search.count(index=self.alias)["count"])

    def chunks(self) -> dict[str, dict[str, Any]]:
        """Every chunk behind the alias: id → fields, the vector too."""
        self.search.indices.refresh(index=self.alias)
        return {hit["_id"]: hit["_source"] for hit in self._hits()}

    def _hits(self) -> Iterator[dict[str, Any]]:
        after: dict[str, Any] = {}
        while True:
            body = {"size": 2000, "sort": ["document_id", "chunk_index"], **after}
            hits = self.search.search(index=self.alias, body=body)["hits"]["hits"]
            yield from hits
            if len(hits) < 2000:
                return
            after = {"search_after": hits[-1]["sort"]}

    @property
    def index(self) -> str:
        """The one index behind the alias."""
        (found,) = self.search.indices.get_alias(name=self.alias)
        return str(found)

    def settings(self) -> dict[str, Any]:
        """Settings of the index behind the alias."""
        found = self.search.indices.get_settings(index=self.index)
        return dict(found[self.index]["settings"]["index"])

    def expected_ids(self, chunks: Chunks, keys: set[str]) -> set[str]:
        """Ids of all chunks that the newest versions of ``keys`` must have, from the listing and their chunk counts."""
        counts = {fields["document_id"]: fields["chunk_count"] for fields in chunks.values()}
        newest = self.newest()
        versions = {(key, newest[key]): digest(self.bucket, key, newest[key]) for key in keys}
        return {
            digest(self.bucket, key, version, str(number))
            for (key, version), document in versions.items()
            for number in range(counts.get(document, 1))  # a document that is missing shows as a missing id
        }


def contents(chunks: Chunks) -> dict[tuple[str, int], tuple[str, str, str]]:
    """(key, chunk index) → what does not depend on version, run and time: header, text, content hash."""
    return {
        (fields["doc_key"], fields["chunk_index"]): (fields["header"], fields["text"], fields["content_hash"])
        for fields in chunks.values()
    }
