"""What a run left of one document: in the index, in the ledger, and in the artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import boto3

from ingest.artifacts import Artifacts
from ingest.assemble import assemble
from ingest.config import Config, load
from ingest.model import Assembled, Document, ParsedSegment
from ingest.state import JobRow, Ledger, Operator, SegmentRow
from tests.harness import Chunks, Site


@dataclass(frozen=True, slots=True)
class Seen:
    """One document version; ``chunks`` are its index documents by chunk index, with ``chunk_id``."""

    key: str
    job: JobRow
    segments: list[SegmentRow]
    chunks: dict[int, Mapping[str, Any]]
    assembled: Assembled | None  # None where no segment was stored
    hidden: int  # blocks that nobody sees on the page
    format: str

    @property
    def failed_pages(self) -> list[int]:
        """Pages that are not there, those of failed segments included."""
        pages = {page for row in self.segments for page, _ in row.failed_pages}
        lost = (range(row.page_from, row.page_to + 1) for row in self.segments if row.state == "failed")
        return sorted(pages.union(*lost))

    @property
    def reasons(self) -> set[str]:
        """Why it, its segments or its pages failed."""
        found = [self.job.failure, *(row.failure for row in self.segments)]
        found += [failure for row in self.segments for _, failure in row.failed_pages]
        return {failure.reason for failure in found if failure}

    @property
    def text(self) -> str:
        """The assembled text that is chunked."""
        return self.assembled.text[: self.assembled.flow_end] if self.assembled else ""


class Look:
    """Looks at what a site's runs left."""

    def __init__(self, site: Site, config: Config | None = None) -> None:
        self.site = site
        self.config = config or load(site.config)
        self._artifacts = Artifacts(boto3.client("s3", endpoint_url=site.stack.aws_url), self.config.artifacts)

    def documents(self, key: str, chunks: Chunks) -> list[Seen]:
        """The versions of a key that have a job, newest first, with theirs of the ``chunks`` of the index."""
        ledger = Ledger(self.config.ledger.url)
        try:
            generations = ledger.generations(self.config.index.alias)
            if not generations:
                return []
            name, parser = generations[0].name, generations[0].fingerprints.parser
            rows = [row for row in Operator(ledger).versions(name, key) if row.state is not None]
            return [self._seen(row, ledger, parser, chunks) for row in rows]
        finally:
            ledger.close()

    def _seen(self, row: JobRow, ledger: Ledger, parser: str, chunks: Chunks) -> Seen:
        plan = ledger.planned(parser, [row.document_id]).get(row.document_id)
        segments = list(plan.rows) if plan else []
        mine: dict[int, Mapping[str, Any]] = {
            fields["chunk_index"]: {**fields, "chunk_id": name}
            for name, fields in chunks.items()
            if fields["document_id"] == row.document_id
        }
        parts = [self._artifacts.get(segment.artifact) for segment in segments if segment.artifact]
        hidden = sum(block.hidden for part in parts for page in part.pages for block in page.blocks)
        assembled = self._assembled(row, segments, parts) if parts else None
        return Seen(row.key, row, segments, mine, assembled, hidden, plan.format if plan else "")

    def _assembled(self, row: JobRow, segments: list[SegmentRow], parts: list[ParsedSegment]) -> Assembled:
        bucket = self.config.source.bucket
        document = Document(row.document_id, bucket, row.key, row.version, row.version, row.revision, row.size)
        return assemble(document, parts, max(segment.page_to for segment in segments))
