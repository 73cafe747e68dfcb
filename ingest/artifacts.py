"""Parsed segments in S3, written once: what fan-in and a re-chunk read instead of the document."""

from __future__ import annotations

import gzip
from collections import OrderedDict
from typing import Any

import orjson
from botocore.exceptions import BotoCoreError, ClientError

from ingest.config import ArtifactConfig
from ingest.errors import SourceError
from ingest.model import Block, Branch, Failure, Page, ParsedSegment

KEPT_BYTES = 64 << 20  # artifacts an actor remembers, compressed: the closer of a document mostly wrote them itself


class Artifacts:
    """The artifact store: ``parser/document/number``, gzipped JSON."""

    def __init__(self, client: Any, config: ArtifactConfig) -> None:
        self._client = client
        self._config = config
        self._recent: OrderedDict[str, bytes] = OrderedDict()

    def key(self, parser: str, document_id: str, number: int) -> str:
        """S3 key of a segment's artifact."""
        return f"{self._config.prefix}{parser}/{document_id[:2]}/{document_id}/{number:05d}.json.gz"

    def put(self, segment: ParsedSegment) -> str:
        """Stores the segment unless it is there already; returns its key. Raises SourceError."""
        key = self.key(segment.parser, segment.document_id, segment.number)
        body = gzip.compress(orjson.dumps(segment), compresslevel=1, mtime=0)
        try:
            self._client.put_object(Bucket=self._config.bucket, Key=key, Body=body, IfNoneMatch="*")
        except (ClientError, BotoCoreError) as error:
            if _status(error) == 412:  # a repeat: the first one stands, and is what `get` gives
                return key
            raise self._unavailable("put", key, error) from error
        self._remember(key, body)
        return key

    def get(self, key: str) -> ParsedSegment:
        """The segment stored under ``key``. Raises SourceError."""
        body = self._recent.get(key)
        if body is None:
            try:
                body = self._client.get_object(Bucket=self._config.bucket, Key=key)["Body"].read()
            except (ClientError, BotoCoreError) as error:
                raise self._unavailable("get", key, error) from error
        return decode(gzip.decompress(body))

    def _unavailable(self, verb: str, key: str, error: Exception) -> SourceError:
        return SourceError("source_unavailable", f"{verb} s3://{self._config.bucket}/{key}: {error}")

    def _where(self, key: str) -> str:
        return f"s3://{self._config.bucket}/{key}"

    def _remember(self, key: str, body: bytes) -> None:
        self._recent[key] = body
        while sum(map(len, self._recent.values())) > KEPT_BYTES:
            self._recent.popitem(last=False)


def _status(error: Exception) -> int:
    return int(getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def decode(raw: bytes) -> ParsedSegment:
    """The segment in an artifact's JSON."""
    data = orjson.loads(raw)
    data["pages"] = tuple(_page(page) for page in data["pages"])
    data["outline"] = tuple((level, title, page) for level, title, page in data["outline"])
    data["failed_pages"] = tuple((page, _failure(row)) for page, row in data["failed_pages"])
    return ParsedSegment(**data)


def _page(data: dict[str, Any]) -> Page:
    data["blocks"] = tuple(_block(block) for block in data["blocks"])
    data["notes"] = tuple(data["notes"])
    return Page(**data)


def _block(data: dict[str, Any]) -> Block:
    data["bbox"] = tuple(data["bbox"]) if data["bbox"] else None
    return Block(**data)


def _failure(data: dict[str, Any]) -> Failure:
    return Failure(Branch(data["branch"]), data["reason"], data["sentence"])
