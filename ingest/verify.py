"""Verify windows: count what the index holds, settle documents, then delete what they replace.

`ready` is a measured fact: the refreshed number of chunks of a document version equals the expected one. Only then do
the chunks of an older version go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ingest import observe
from ingest.index.sink import Counted, Sink
from ingest.model import Document, State
from ingest.state import Ledger, Pending, Verified
from ingest.work import Run

ACCESS_AT_ONCE = 200  # documents
DELETED_AT_ONCE = 500  # documents; a kill repeats at most these


class Verifier:
    """Settles the documents of one run against the index."""

    def __init__(self, run: Run, ledger: Ledger, sink: Sink, stats: observe.Stats) -> None:
        self._run = run
        self._ledger = ledger
        self._sink = sink
        self._stats = stats

    def window(self, document_ids: Collection[str] | None = None) -> int:
        """Verifies these documents, or all of the run that wait for it; returns how many reached an end."""
        pending = self._ledger.to_verify(self._run.generation, self._run.run_id, document_ids)
        if not pending:
            return 0
        with self._stats.timed("verify"):
            return self._settle(self._fenced(pending))

    def _fenced(self, pending: Sequence[Pending]) -> list[Pending]:
        """Without those that a newer version overtook: what they wrote is deleted here."""
        ids = [p.document.document_id for p in pending]
        stale = self._ledger.superseded(self._run.generation, ids, all_versions=self._run.config.source.all_versions)
        overtaken = [p.document for p in pending if p.document.document_id in stale]
        self.delete_all(overtaken, State.SUPERSEDED)
        return [p for p in pending if p.document.document_id not in stale]

    def _settle(self, pending: Sequence[Pending]) -> int:
        self._sink.refresh()
        found = self._sink.count_by_document([p.document.document_id for p in pending])
        verified = [
            Verified(p.document.document_id, self._without_tail(p, found[p.document.document_id])) for p in pending
        ]
        settled = self._ledger.verified(self._run.generation, verified)
        self._stats.add("verify.documents", len(settled))
        if not self._run.config.source.all_versions:
            self.delete_all(self._ledger.older(self._run.generation, settled), State.SUPERSEDED)
        return len(settled)

    def _without_tail(self, item: Pending, found: Counted) -> int:
        """Chunks of it in the index; those behind the expected ones, left by a longer cut, are deleted first."""
        if found.last < item.chunk_count:
            return found.chunks
        rows = self._sink.ids_of_document(item.document.document_id)
        tail = [(row.chunk_id, item.document.revision) for row in rows if row.chunk_index >= item.chunk_count]
        self._delete(tail)
        self._sink.refresh()
        return len(rows) - len(tail)

    def finish_deletes(self) -> None:
        """Deletes what S3 has deleted, and the older versions that a killed run had no time to delete."""
        self._delete_pages(self._ledger.to_delete, State.DELETED)
        if not self._run.config.source.all_versions:
            self._delete_pages(self._ledger.older, State.SUPERSEDED)

    def delete_broken(self) -> None:
        """Deletes what is left of documents that failed after some of their chunks were written."""
        self._delete_pages(self._ledger.broken, State.FAILED)

    def _delete_pages(self, page: Callable[..., list[Document]], state: State) -> None:
        while documents := page(self._run.generation, limit=DELETED_AT_ONCE):
            self.delete_all(documents, state)

    def write_access(self) -> None:
        """Writes tenant and principals where they alone changed: nothing is embedded for that."""
        while changed := self._ledger.access_changed(self._run.generation, ACCESS_AT_ONCE):
            self._sink.refresh()
            for document in changed:
                self._sink.change_access(document).require("rewritten for their access")
            self._ledger.access_written(self._run.generation, changed)
            self._stats.add("verify.access_changed", len(changed))

    def delete_all(self, documents: Sequence[Document], state: State) -> None:
        """Deletes every chunk of these versions and ends them in ``state``; deletes carry the key's newest revision."""
        if not documents:
            return
        self._sink.refresh()  # what was written a moment ago must be visible to be found
        for first in range(0, len(documents), DELETED_AT_ONCE):
            self._delete_page(documents[first : first + DELETED_AT_ONCE], state)

    def _delete_page(self, documents: Sequence[Document], state: State) -> None:
        newest = self._ledger.newest_revisions([(d.bucket, d.key) for d in documents])
        for document in documents:
            revision = newest.get((document.bucket, document.key), document.revision)
            rows = self._sink.ids_of_document(document.document_id)
            self._delete([(row.chunk_id, revision) for row in rows])
        self._ledger.retire(self._run.generation, [d.document_id for d in documents], state)

    def _delete(self, chunks: Sequence[tuple[str, int]]) -> None:
        self._sink.delete(chunks).require("deleted")
        self._stats.add("index.deleted", len(chunks))
