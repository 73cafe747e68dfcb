"""What a file is, told by its content; the name decides only where content can not (Markdown against plain text)."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path, PurePosixPath

HEAD_BYTES = 1 << 16
OFFICE = frozenset({"docx", "xlsx", "pptx", "odf", "epub", "doc", "xls", "ppt", "ole", "rtf"})

_MAGIC = (
    (b"{\\rtf", "rtf"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"(\xb5/\xfd", "zstd"),
    (b"7z\xbc\xaf'\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
    (b"%!PS", "postscript"),
    (b"\x7fELF", "executable"),
    (b"MZ", "executable"),
    (b"PAR1", "parquet"),
    (b"SQLite format 3\x00", "sqlite"),
    (b"ID3", "mp3"),
    (b"OggS", "ogg"),
    (b"fLaC", "flac"),
)
_TEXT_MAGIC = frozenset({"bmp", "executable", "mp3", "parquet", "gif", "ogg"})  # letters only: a text may begin so
_MEMBERS = (
    (b"word/document", "docx"),
    (b"xl/workbook", "xlsx"),
    (b"ppt/presentation", "pptx"),
    (b"META-INF/container.xml", "epub"),
    (b"mimetypeapplication/epub", "epub"),
    (b"mimetypeapplication/vnd.oasis", "odf"),
    (b"content.xml", "odf"),
)
_OLE_STREAMS = (("EncryptedPackage", "locked"), ("WordDocument", "doc"), ("Workbook", "xls"), ("PowerPoint", "ppt"))
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_HTML = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S)
_HTML_TAG = re.compile(rb"<(?:p|div|h[1-6]|table|ul|ol|title|meta|span|a|br)\b[^>]*>", re.I)
_CONTROL = bytes(set(range(32)) - {9, 10, 12, 13, 27}) + b"\x7f"
_SUFFIXES = {".md": "markdown", ".markdown": "markdown", ".mdown": "markdown", ".csv": "csv", ".tsv": "csv"}


def sniff(head: bytes, key: str) -> str:
    """The format of the first bytes of a file: ``pdf``, ``html``, ``markdown``, ``text``, ``docx``, …, ``binary``."""
    if not head:
        return "empty"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_kind(head)
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return "ole"
    if _HTML.match(head.removeprefix(_BOMS[0])):
        return "html"
    if b"%PDF-" in head[:1024]:
        return "pdf"
    magic = next((name for start, name in _MAGIC if head.startswith(start)), "")
    if magic and not (magic in _TEXT_MAGIC and _is_text(head)):
        return magic
    if head[4:8] == b"ftyp":
        return "mp4"
    return _text_kind(head, key) if _is_text(head) else "binary"


def sniff_file(path: str, key: str) -> str:
    """The format of a file on disk; looks into the directory of zip and OLE files."""
    with Path(path).open("rb") as file:
        head = file.read(HEAD_BYTES)
        kind = sniff(head, key)
        if kind == "ole" and len(head) >= 512:
            file.seek((int.from_bytes(head[48:52], "little") + 1) << int.from_bytes(head[30:32], "little"))
            kind = _ole_kind(file.read(4096))
    if kind == "zip":
        return _zip_kind("\n".join(_members(path)).encode("utf-8", "replace"))
    return kind


def ends_whole(path: str) -> bool:
    """Whether a PDF has its end mark where the format wants it: in the last bytes."""
    with Path(path).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 2048))
        return b"%%EOF" in file.read()


def _zip_kind(names: bytes) -> str:
    return next((kind for member, kind in _MEMBERS if member in names), "zip")


def _members(path: str) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, OSError):
        return []


def _ole_kind(directory: bytes) -> str:
    return next((kind for name, kind in _OLE_STREAMS if name.encode("utf-16-le") in directory), "ole")


def _is_text(head: bytes) -> bool:
    if head.startswith(_BOMS[1:]):
        return True
    controls = len(head) - len(head.translate(None, _CONTROL))
    return b"\x00\x00" not in head and controls <= len(head) // 200


def _text_kind(head: bytes, key: str) -> str:
    suffix = PurePosixPath(key.lower()).suffix
    if suffix in (".html", ".htm", ".xhtml") and _HTML_TAG.search(head):
        return "html"
    if head.lstrip().startswith(b"<?xml"):
        return "xml"
    return _SUFFIXES.get(suffix, "text")
