"""S3 in memory, as far as the engine uses it: versions, delete markers, pages, conditions.

``tests/integration/test_listing.py`` holds it against a real server.
"""

# ruff: noqa: N803 - the arguments are spelled as boto3 spells them

from __future__ import annotations

import hashlib
import io
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError
from botocore.response import StreamingBody

START = datetime(2026, 11, 1, tzinfo=UTC).timestamp()


def refused(code: str, status: int, operation: str) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, operation)


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of a key; ``body`` is None for a delete marker."""

    version_id: str
    body: bytes | None
    at: float

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.body or b"", usedforsecurity=False).hexdigest()}"'


@dataclass(slots=True)
class FakeS3:
    """One bucket. Each write is a second later than the one before; a page of a listing holds ``page_size`` rows.

    ``versioned`` may be switched later, as on a real bucket.
    """

    page_size: int = 1000
    versioned: bool = True
    broken_prefixes: dict[str, ClientError] = field(default_factory=dict)
    keys: dict[str, list[Stored]] = field(default_factory=dict)  # newest first
    calls: Counter[str] = field(default_factory=Counter)
    _writes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # ------------------------------------------------------------ objects

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, IfNoneMatch: str = "") -> dict[str, str]:
        with self._lock:
            self.calls["put"] += 1
            if IfNoneMatch == "*" and self._visible(Key):
                raise refused("PreconditionFailed", 412, "PutObject")
            return self._add(Key, Body)

    def delete_object(self, *, Bucket: str, Key: str) -> dict[str, str]:
        with self._lock:
            return self._add(Key, None)

    def remove_version(self, key: str, version_id: str) -> None:
        """Deletes one version for good, as a lifecycle rule does."""
        self.keys[key] = [stored for stored in self.keys[key] if stored.version_id != version_id]

    def get_object(self, *, Bucket: str, Key: str, VersionId: str = "", IfMatch: str = "") -> dict[str, Any]:
        with self._lock:
            self.calls["get"] += 1
            found = self._version(Key, VersionId) if VersionId else self._visible(Key)
        if found is None or found.body is None:
            raise refused("NoSuchVersion" if VersionId else "NoSuchKey", 404, "GetObject")
        if IfMatch and IfMatch.strip('"') != found.etag.strip('"'):
            raise refused("PreconditionFailed", 412, "GetObject")
        return {"Body": StreamingBody(io.BytesIO(found.body), len(found.body)), "ETag": found.etag}

    def _add(self, key: str, body: bytes | None) -> dict[str, str]:
        self._writes += 1
        stored = Stored(f"v{self._writes}" if self.versioned else "null", body, START + self._writes)
        # without versioning a write replaces the null version only; what was versioned before stays
        kept = [old for old in self.keys.get(key, []) if old.version_id != stored.version_id]
        self.keys[key] = [stored, *kept]
        return {"VersionId": stored.version_id, "ETag": stored.etag}

    def _visible(self, key: str) -> Stored | None:
        newest = next(iter(self.keys.get(key, ())), None)
        return newest if newest and newest.body is not None else None

    def _version(self, key: str, version_id: str) -> Stored | None:
        return next((stored for stored in self.keys.get(key, ()) if stored.version_id == version_id), None)

    # ------------------------------------------------------------ listing

    def get_paginator(self, operation: str) -> FakeS3:
        assert operation == "list_object_versions"
        return self

    def paginate(self, *, Bucket: str, Prefix: str = "", Delimiter: str = "") -> Iterator[dict[str, Any]]:
        """Pages of rows in the order of their keys' bytes, a key's newest first; folders count as rows."""
        entries = list(self._entries(Prefix, Delimiter))
        for low in range(0, len(entries), self.page_size) or [0]:
            self.calls["list"] += 1
            if Prefix in self.broken_prefixes and low:
                raise self.broken_prefixes[Prefix]
            page: dict[str, list[Any]] = {}
            for kind, row in entries[low : low + self.page_size]:
                page.setdefault(kind, []).append(row)
            yield page
        if Prefix in self.broken_prefixes:
            raise self.broken_prefixes[Prefix]

    def _entries(self, prefix: str, delimiter: str) -> Iterator[tuple[str, dict[str, Any]]]:
        folders: set[str] = set()
        for key in sorted(self.keys, key=str.encode):
            if not key.startswith(prefix):
                continue
            head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if found:
                if (folder := prefix + head + found) not in folders:
                    folders.add(folder)
                    yield "CommonPrefixes", {"Prefix": folder}
                continue
            yield from (_listed(key, stored, not place) for place, stored in enumerate(self.keys[key]))


def _listed(key: str, stored: Stored, is_latest: bool) -> tuple[str, dict[str, Any]]:
    row = {
        "Key": key,
        "VersionId": stored.version_id,
        "LastModified": datetime.fromtimestamp(stored.at, UTC),
        "IsLatest": is_latest,
    }
    if stored.body is None:
        return "DeleteMarkers", row
    return "Versions", row | {"ETag": stored.etag, "Size": len(stored.body)}
