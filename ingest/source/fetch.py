"""The bytes of one version as a local file, kept for a while and shared by the processes of a node."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ingest.errors import ParseError, SourceError, StoreUnavailable
from ingest.model import Document
from ingest.source.s3 import translated

T = TypeVar("T")
GRACE_S = 120.0  # a file used this recently is never evicted: another actor of the node may be about to open it


class VersionCache:
    """Files of the versions fetched lately, shared by the actors of a node.

    ``max_bytes`` bounds the folder as a whole. Whoever opens a path must be ready for it to be gone (evicted by a
    neighbour) and ask again, as ``read`` does.
    """

    def __init__(self, client: Any, folder: str | Path = "", max_bytes: int = 256 << 20) -> None:
        self._client = client
        self._folder = Path(folder or Path(tempfile.gettempdir()) / f"ingest-cache-{os.getuid()}").expanduser()
        self._max_bytes = max_bytes
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, document: Document) -> Path:
        """Where the bytes of ``document`` lie. Raises SourceError, StoreRefused."""
        target = self._folder / document.document_id
        try:
            os.utime(target)
        except FileNotFoundError:
            self._fetch(document, target)
            self._evict()
        return target

    def read(self, document: Document, reader: Callable[[str], T]) -> T:
        """What ``reader`` makes of the file; fetched once more where it was gone before it was opened."""
        path = self.path(document)
        try:
            return reader(str(path))
        except ParseError:
            if path.exists():
                raise
        return reader(str(self.path(document)))

    def _fetch(self, document: Document, target: Path) -> None:
        handle, name = tempfile.mkstemp(dir=self._folder)
        os.close(handle)
        try:
            self._download(document, name)
            Path(name).replace(target)
        except StoreUnavailable as error:
            raise SourceError("source_unavailable", str(error)) from error
        finally:
            Path(name).unlink(missing_ok=True)

    def _download(self, document: Document, name: str) -> None:
        what = f"s3://{document.bucket}/{document.key} version {document.version_id}"
        pinned = _pin(document)
        with translated(what), Path(name).open("wb") as file:
            body = self._client.get_object(Bucket=document.bucket, Key=document.key, **pinned)["Body"]
            for piece in body.iter_chunks(1 << 20):
                file.write(piece)

    def _evict(self) -> None:
        files = sorted(_files(self._folder))
        total = sum(size for _, size, _ in files)
        for used_at, size, path in files:
            if total <= self._max_bytes or time.time() - used_at < GRACE_S:
                return
            path.unlink(missing_ok=True)
            total -= size


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # a neighbour evicted it
            stat = path.stat()
            yield stat.st_mtime, stat.st_size, path


def _pin(document: Document) -> dict[str, str]:
    if document.version_id and document.version_id != "null":
        return {"VersionId": document.version_id}
    # "null" is the version written while versioning was off: alone in its bucket, or below newer ones. It can be
    # overwritten, so its ETag pins the content.
    return {"VersionId": "null", "IfMatch": document.version.removeprefix("null:")}
