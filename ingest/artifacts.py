"""Parsed segments in S3, written once: what fan-in and a re-chunk read instead of the document."""

from __future__ import annotations

import gzip
from collections import OrderedDict
from typing import Any

import orjson
from botocore.exceptions import BotoCoreError, ClientError

from ingest.config import ArtifactConfig
from ingest.errors import IngestError, SourceError, StoreRefused
from ingest.model import Block, Branch, Failure, Page, ParsedSegment

REFUSED = frozenset({"ExpiredToken", "NoSuchBucket"})  # told with another status than 401 and 403
KEPT_BYTES = 64 << 20  # artifacts an actor remembers, compressed: the closer of a document mostly wrote them itself


class Artifacts:
    """The artifact store: ``parser/document/number-from-to``, gzipped JSON; a range cut otherwise is another key.

    Written once. Where failed pages were read again, the whole stands under a key of its own, ``….edition``.
    """

    def __init__(self, client: Any, config: ArtifactConfig) -> None:
        self._client = client
        self._config = config
        self._recent: OrderedDict[str, bytes] = OrderedDict()

    def key(self, parser: str, document_id: str, number: int, pages: tuple[int, int], edition: int = 0) -> str:
        """S3 key of a segment's artifact; ``pages`` are its first and last."""
        name = f"{number:05d}-{pages[0]}-{pages[1]}{f'.{edition}' if edition else ''}.json.gz"
        return f"{self._config.prefix}{parser}/{document_id[:2]}/{document_id}/{name}"

    def put(self, segment: ParsedSegment) -> tuple[str, ParsedSegment]:
        """Its key and what stands there: the segment, or what was stored before. Raises SourceError, StoreRefused."""
        pages = (segment.page_from, segment.page_to)
        key = self.key(segment.parser, segment.document_id, segment.number, pages, segment.edition)
        body = gzip.compress(orjson.dumps(segment), compresslevel=1, mtime=0)
        try:
            self._client.put_object(Bucket=self._config.bucket, Key=key, Body=body, IfNoneMatch="*")
        except (ClientError, BotoCoreError) as error:
            if _status(error) == 412:  # a repeat: the first one stands
                return key, self.get(key)
            raise self._translated("put", key, error) from error
        self._remember(key, body)
        return key, segment

    def find(self, key: str) -> ParsedSegment | None:
        """The segment stored under ``key``, or None. Raises SourceError, StoreRefused."""
        try:
            return self.get(key)
        except SourceError as error:
            if _status(error.__cause__) == 404:
                return None
            raise

    def get(self, key: str) -> ParsedSegment:
        """The segment stored under ``key``. Raises SourceError, StoreRefused."""
        body = self._recent.get(key)
        if body is None:
            try:
                body = self._client.get_object(Bucket=self._config.bucket, Key=key)["Body"].read()
            except (ClientError, BotoCoreError) as error:
                raise self._translated("get", key, error) from error
        return decode(gzip.decompress(body))

    def _translated(self, verb: str, key: str, error: Exception) -> IngestError:
        what = f"{verb} s3://{self._config.bucket}/{key}: {error}"
        if _status(error) in (401, 403) or _code(error) in REFUSED:
            return StoreRefused(f"{what}; check the bucket name and the rights of this role")
        return SourceError("source_unavailable", what)

    def _remember(self, key: str, body: bytes) -> None:
        self._recent[key] = body
        while sum(map(len, self._recent.values())) > KEPT_BYTES:
            self._recent.popitem(last=False)


def _code(error: Exception) -> str:
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def _status(error: BaseException | None) -> int:
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
