"""Loads real documents into the versioned bucket: ``python -m local.corpus [--corpus slice|full | --source FOLDER]``.

Only what is new or changed is uploaded, so a second run makes no new versions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from local.corpus_sources import Document, FetchError, Selection, documents, fetch_packages, own_documents

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CACHE = Path(__file__).resolve().parent.parent / ".local" / "cache" / "corpus"
PROGRESS_EVERY_S = 5.0
# S3's own limit for one call that deletes.
MAX_KEYS_PER_DELETE = 1000


class LoadError(Exception):
    """The bucket cannot be loaded; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket and the ETags that it held when it was listed."""

    client: S3Client
    name: str
    etags: dict[str, str]


@dataclass(slots=True)
class Tally:
    """What one load did."""

    keys: set[str] = field(default_factory=set)
    size_bytes: int = 0
    uploaded: int = 0
    deleted: int = 0
    started_s: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self.started_s

    def line(self) -> str:
        """The load in one sentence."""
        there = len(self.keys) - self.uploaded
        deleted = f", {self.deleted} deleted" if self.deleted else ""
        return (
            f"{len(self.keys):,} documents, {self.size_bytes / 1e6:,.1f} MB in {self.elapsed_s:.1f} s: "
            f"{self.uploaded:,} uploaded, {there:,} already there{deleted}"
        )


def say(line: str) -> None:
    """Progress goes to stderr; stdout has the result alone."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def translated_errors(bucket: str) -> Iterator[None]:
    """Turns what S3 and its client raise into a LoadError that names the bucket and the endpoint."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        where = os.environ.get("AWS_ENDPOINT_URL", "AWS")
        advice = "Is it up, is the bucket there, is the environment set? INGEST_BUCKET names another bucket."
        raise LoadError(f"bucket {bucket} at {where}: {error}. {advice}") from error


def connect(name: str) -> Bucket:
    """The bucket with a listing of it."""
    import boto3

    client = boto3.client("s3")
    if client.get_bucket_versioning(Bucket=name).get("Status") != "Enabled":
        say(f"  warning: bucket {name} does not keep versions; a changed document replaces the old one")
    return Bucket(client, name, list_etags(client, name))


def list_etags(client: S3Client, bucket: str) -> dict[str, str]:
    """Key to ETag, without quotes, of every current object."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return {item["Key"]: item["ETag"].strip('"') for page in pages for item in page.get("Contents", [])}


def upload(bucket: Bucket, found: Iterable[Document], tally: Tally) -> None:
    """Puts every document whose content the bucket does not hold yet under that key."""
    said_s = time.monotonic()
    for document in found:
        tally.keys.add(document.key)
        tally.size_bytes += len(document.body)
        # The ETag of an object that was put in one piece is its MD5; where a bucket encrypts with
        # keys of its own it is not, and then the document is uploaded again.
        if bucket.etags.get(document.key) != hashlib.md5(document.body, usedforsecurity=False).hexdigest():
            bucket.client.put_object(Bucket=bucket.name, Key=document.key, Body=document.body)
            tally.uploaded += 1
        if time.monotonic() - said_s > PROGRESS_EVERY_S:
            said_s = time.monotonic()
            say(f"  {tally.line()} …")


def corpus_documents(selection: Selection) -> Iterator[Document]:
    """The documents of all packages of the selection, package by package."""
    for package, archive in fetch_packages(selection, CACHE, say):
        found = documents(package, archive, selection)
        size_mb = sum(len(document.body) for document in found) / 1e6
        say(f"  {package.name}: {len(found)} documents, {size_mb:.1f} MB ({archive.name})")
        yield from found


def manifest_of(bucket: str, folder: Path) -> Path:
    """The file that remembers which keys came from this folder into this bucket."""
    place = json.dumps([os.environ.get("AWS_ENDPOINT_URL", ""), bucket, str(folder)])
    return CACHE / "loaded" / f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.json"


def load_folder(bucket: Bucket, folder: Path, mirror: bool) -> Tally:
    """Loads a person's own folder; with ``mirror`` what is gone from it since an earlier load is deleted too."""
    tally, manifest = Tally(), manifest_of(bucket.name, folder)
    earlier = set(json.loads(manifest.read_text())) if manifest.exists() else set()
    manifest.parent.mkdir(parents=True, exist_ok=True)
    try:
        upload(bucket, own_documents(folder, say), tally)
    finally:
        # Also when the load broke off: what it did upload came from this folder.
        manifest.write_text(json.dumps(sorted(earlier | tally.keys)))
    gone = sorted((earlier - tally.keys) & bucket.etags.keys())
    if mirror:
        tally.deleted = delete(bucket, gone)
        manifest.write_text(json.dumps(sorted(tally.keys)))
    elif gone:
        say(f"  {len(gone)} documents of earlier loads are gone from the folder; --mirror deletes them from the bucket")
    return tally


def delete(bucket: Bucket, keys: list[str]) -> int:
    """Puts a delete marker on each key; the number of keys.

    Raises LoadError if one is refused.
    """
    for first in range(0, len(keys), MAX_KEYS_PER_DELETE):
        part = keys[first : first + MAX_KEYS_PER_DELETE]
        answer = bucket.client.delete_objects(
            Bucket=bucket.name, Delete={"Objects": [{"Key": key} for key in part], "Quiet": True}
        )
        if refused := answer.get("Errors"):
            raise LoadError(f"{len(refused)} deletes refused, the first: {refused[0]}")
    return len(keys)


def load(arguments: argparse.Namespace) -> Tally:
    """Does what the command line asks for."""
    folder: Path | None = arguments.source
    if arguments.mirror and not folder:
        raise LoadError("--mirror needs --source FOLDER")
    if folder and not folder.is_dir():
        raise LoadError(f"--source {folder}: no such folder")
    if not arguments.bucket:
        raise LoadError("name the bucket: INGEST_BUCKET in the environment, or --bucket")
    with translated_errors(arguments.bucket):
        bucket = connect(arguments.bucket)
        if folder:
            return load_folder(bucket, folder.resolve(), arguments.mirror)
        tally = Tally()
        upload(bucket, corpus_documents(arguments.corpus), tally)
        return tally


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m local.corpus", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--corpus", choices=("slice", "full"), default="slice", help="how much of the public documents")
    made.add_argument("--source", type=Path, metavar="FOLDER", help="load this folder of your own instead")
    made.add_argument("--mirror", action="store_true", help="with --source: delete what is gone from the folder")
    made.add_argument("--bucket", default=os.environ.get("INGEST_BUCKET"), help="default: INGEST_BUCKET")
    return made


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when everything selected is in the bucket, 2 when it cannot be loaded."""
    arguments = parser().parse_args(argv)
    try:
        tally = load(arguments)
    except (LoadError, FetchError) as error:
        say(f"corpus: {error}")
        return 2
    print(f"{arguments.bucket}: {tally.line()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
