"""A segment → its artifact, and how it is to be settled."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ingest import failure, observe
from ingest.artifacts import Artifacts
from ingest.errors import ParseError, StoreRefused
from ingest.model import Failure, ParsedSegment, Segment
from ingest.parse.result import ParsedPages
from ingest.parse.sandbox import Sandbox
from ingest.source.fetch import VersionCache
from ingest.state import SegmentRow, Settlement
from ingest.work import Run


class NothingReadError(ParseError):
    """Each page of a segment failed, the first one so."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Extract:
    """Reads segments by an engine in a child process; lives in the parse actor."""

    def __init__(self, run: Run, client: Any, artifacts: Artifacts, stats: observe.Stats) -> None:
        self._run = run
        self._stats = stats
        self._artifacts = artifacts
        self._files = VersionCache(client, run.config.parse.cache_dir, run.config.parse.cache_mb << 20)
        self._sandbox = Sandbox(run.config.parse.timeout_s, run.config.parse.memory_mb)
        self._sandbox.start()

    def __call__(self, segment: Segment, row: SegmentRow) -> Settlement:
        """Its settlement, stored or failed. Raises StoreRefused."""
        document, number = segment.document, segment.number
        began = time.monotonic()
        try:
            artifact, parsed = self._stored(segment, row)
        except StoreRefused:
            raise
        except Exception as error:  # noqa: BLE001 - recorded as the segment's fate
            observe.event(
                "parse.segment_failed", level=logging.WARNING, key=document.key, segment=number, error=str(error)
            )
            lost = error.failure if isinstance(error, NothingReadError) else failure.classify(error)
            self._stats.add(f"parse.segments_failed.{lost.branch}")
            return Settlement(document.document_id, number, failure=lost, seconds=time.monotonic() - began)
        self._stats.add("parse.segments_parsed.none")
        self._stats.add("parse.repairs", parsed.repairs)
        return Settlement(
            document.document_id,
            number,
            engine=parsed.engine,
            artifact=artifact,
            failed_pages=parsed.failed_pages,
            quality=min((page.quality for page in parsed.pages), default=0.0),
            repairs=parsed.repairs,
            seconds=time.monotonic() - began,
        )

    def _stored(self, segment: Segment, row: SegmentRow) -> tuple[str, ParsedSegment]:
        """The artifact's key and what it holds: the ledger must say the same as what a re-chunk will read."""
        if segment.document.attempt > 1:  # an earlier one may have died between storing and settling
            pages, parser = (segment.page_from, segment.page_to), self._run.fingerprints.parser
            key = self._artifacts.key(parser, row.document_id, row.number, pages, row.edition)
            if found := self._artifacts.find(key):
                return key, found
        before = self._artifacts.find(row.artifact) if row.artifact else None
        return self._artifacts.put(self._mended(segment, row, before) if before else self._read(segment))

    def _read(self, segment: Segment) -> ParsedSegment:
        found = self._pages(segment, segment.page_from, segment.page_to)
        if found.failed_pages and not found.pages:  # nothing of it is there: the segment failed, not its pages
            raise NothingReadError(found.failed_pages[0][1])
        return ParsedSegment(
            document_id=segment.document.document_id,
            number=segment.number,
            page_from=segment.page_from,
            page_to=segment.page_to,
            pages=found.pages,
            engine=found.engine,
            parser=self._run.fingerprints.parser,
            title=found.title,
            outline=found.outline,
            failed_pages=found.failed_pages,
            repairs=found.repairs,
        )

    def _mended(self, segment: Segment, row: SegmentRow, before: ParsedSegment) -> ParsedSegment:
        """What was read of the same bytes before, with those of the failed pages that can be read now."""
        again = [self._pages(segment, low, high) for low, high in ranges([page for page, _ in before.failed_pages])]
        pages = [*before.pages, *(page for part in again for page in part.pages)]
        return replace(
            before,
            document_id=row.document_id,  # equal bytes may have been read under another key
            pages=tuple(sorted(pages, key=lambda page: page.number)),
            failed_pages=tuple(failed for part in again for failed in part.failed_pages),
            repairs=before.repairs + sum(part.repairs for part in again),
            edition=row.edition,
        )

    def _pages(self, segment: Segment, low: int, high: int) -> ParsedPages:
        found = self._files.read(segment.document, lambda path: self._sandbox.parse(path, segment.format, low, high))
        self._stats.add("parse.pages", len(found.pages))
        return found


def ranges(pages: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted page numbers as (first, last) of each run of neighbours."""
    found: list[tuple[int, int]] = []
    for page in pages:
        if found and found[-1][1] == page - 1:
            found[-1] = (found[-1][0], page)
        else:
            found.append((page, page))
    return found
