from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from ingest.parse.sniff import ends_whole, sniff, sniff_file


def zipped(*members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member in members:
            archive.writestr(member, "x" * 10)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("head", "key", "kind"),
    [
        (b"", "a.pdf", "empty"),
        (b"%PDF-1.7\n", "a.txt", "pdf"),
        (b"\r\njunk before\n%PDF-1.4\n", "a.pdf", "pdf"),
        (b"<!DOCTYPE html><html><body>403", "download.pdf", "html"),
        (b"  <!-- made by hand -->\n<HTML>", "a", "html"),
        (b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">', "a.xml", "html"),
        (b"\xef\xbb\xbf<html>", "a", "html"),
        (b"<p>a part of a page</p>", "a.html", "html"),
        (b"<p>a part of a page</p>", "a.txt", "text"),
        (b'<?xml version="1.0"?><feed/>', "a.xml", "xml"),
        (b"plain words", "a.bin", "text"),
        (b"# Title", "a.MD", "markdown"),
        (b"# Title", "a.markdown", "markdown"),
        (b"# Title", "a.txt", "text"),
        (b"a,b\n1,2", "a.csv", "csv"),
        ("Grüße".encode("latin-1"), "a.txt", "text"),
        ("مدیریت حافظه".encode("utf-16"), "a.txt", "text"),
        ("日本語".encode("shift-jis"), "a.txt", "text"),
        (b"MZ is how this text begins", "a.txt", "text"),
        (b"MZ\x90\x00\x03\x00\x00\x00\x04\x00", "a.pdf", "executable"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "a.pdf", "png"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "a", "jpeg"),
        (b"{\\rtf1\\ansi", "a.doc", "rtf"),
        (b"\x00\x00\x00\x18ftypmp42\x00\x00", "a", "mp4"),
        (bytes(range(256)), "random.pdf", "binary"),
    ],
)
def test_content_decides_and_the_name_only_where_content_cannot(head: bytes, key: str, kind: str) -> None:
    assert sniff(head, key) == kind


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        (("[Content_Types].xml", "word/document.xml"), "docx"),
        (("[Content_Types].xml", "xl/workbook.xml", "xl/vbaProject.bin"), "xlsx"),
        (("ppt/presentation.xml",), "pptx"),
        (("META-INF/container.xml", "a.xhtml"), "epub"),
        (("notes.txt",), "zip"),
    ],
)
def test_a_zip_is_named_by_its_members(members: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    path = tmp_path / "minutes.pdf"
    path.write_bytes(zipped(*members))
    assert sniff_file(str(path), path.name) == kind


def test_members_are_found_behind_the_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "big.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("first.bin", bytes(200_000))
        archive.writestr("word/document.xml", "x")
    assert sniff_file(str(path), path.name) == "docx"


def test_a_broken_zip_is_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "broken.zip"
    path.write_bytes(b"PK\x03\x04 and nothing more")
    assert sniff_file(str(path), path.name) == "zip"


@pytest.mark.parametrize(
    ("stream", "kind"), [("WordDocument", "doc"), ("Workbook", "xls"), ("EncryptedPackage", "locked"), ("Other", "ole")]
)
def test_an_ole_file_is_named_by_its_directory(stream: str, kind: str, tmp_path: Path) -> None:
    header = bytearray(512)
    header[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    header[30:32] = (9).to_bytes(2, "little")
    header[48:52] = (3).to_bytes(4, "little")
    path = tmp_path / "old.doc"
    path.write_bytes(bytes(header) + bytes(3 * 512) + stream.encode("utf-16-le") + bytes(512))
    assert sniff_file(str(path), path.name) == kind


def test_a_pdf_that_lost_its_end_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF-1.4\n" + b"x" * 5000 + b"\n%%EOF\n")
    assert ends_whole(str(path))
    path.write_bytes(b"%PDF-1.4\n" + b"x" * 5000)
    assert not ends_whole(str(path))
