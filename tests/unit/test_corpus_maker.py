from __future__ import annotations

import importlib
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests import corpus

# Most of its functions carry no types.
pymupdf: Any = importlib.import_module("pymupdf")
ROOT = Path(corpus.__file__).parent.parent


@pytest.fixture(autouse=True)
def quiet_mupdf() -> None:
    pymupdf.TOOLS.mupdf_display_errors(False)


def opened(pdf: bytes) -> Any:
    return pymupdf.open(stream=pdf, filetype="pdf")


def page_texts(pdf: bytes) -> list[str]:
    with opened(pdf) as document:
        return [page.get_text() for page in document]


def everything() -> dict[str, bytes]:
    """All documents whose bytes never change."""
    hurt = {key: body for key, (body, _) in corpus.broken().items() if key != "broken/locked.pdf"}
    return {**corpus.healthy(8, seed=3), **hurt, **corpus.awkward(), "mixed.pdf": corpus.make_scan(4, scanned={2})}


def digest() -> str:
    return sha256(repr(sorted(everything().items())).encode()).hexdigest()


def test_same_bytes_twice() -> None:
    assert everything() == everything()


def test_same_bytes_in_another_process() -> None:
    code = "from tests.unit.test_corpus_maker import digest; print(digest())"
    other = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert other.stdout.strip() == digest()


def test_another_seed_makes_other_documents() -> None:
    assert corpus.make_pdf(2, seed=1) != corpus.make_pdf(2, seed=2)
    assert not set(corpus.healthy(8, seed=1).values()) & set(corpus.healthy(8, seed=2).values())


@pytest.mark.parametrize("count", [1, 2, 12, 60])
def test_every_page_carries_its_own_mark_and_no_other(count: int) -> None:
    marks = [corpus.page_mark(number, count) for number in range(1, count + 1)]
    texts = page_texts(corpus.make_pdf(count))
    assert [[mark for mark in marks if mark in text] for text in texts] == [[mark] for mark in marks]


def test_prose_comes_back_word_for_word() -> None:
    [text] = page_texts(corpus.make_pdf([corpus.prose(5, 8)]))
    assert corpus.prose(5, 8) in " ".join(text.split())


def test_headings_are_larger_than_the_text() -> None:
    with opened(corpus.make_pdf(["# Great\n\n## Smaller\n\nplain words"])) as document:
        spans = [
            span
            for block in document[0].get_text("dict")["blocks"]
            for line in block["lines"]
            for span in line["spans"]
        ]
    sizes = {span["text"]: span["size"] for span in spans}
    assert sizes["Great"] > sizes["Smaller"] > sizes["plain words"]


def test_title_outline_header_and_footer_are_written() -> None:
    pdf = corpus.make_pdf(3, title="Yearly report", outline=[(1, "One", 1), (2, "Two", 3)], running=True)
    with opened(pdf) as document:
        assert document.metadata["title"] == "Yearly report"
        assert document.get_toc() == [[1, "One", 1], [2, "Two", 3]]
        assert all("Yearly report" in page.get_text() for page in document)
        assert "Page 3 of 3" in document[2].get_text()


def test_text_that_does_not_fit_its_page_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit page 2"):
        corpus.make_pdf(["short", corpus.prose(1, 200)])


def test_text_that_the_font_lacks_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        corpus.make_pdf(["日本"])


def test_healthy_documents_are_mixed_and_carry_their_marks() -> None:
    documents = corpus.healthy(9, seed=4)
    assert len(documents) == 9
    assert {key.rpartition(".")[2] for key in documents} == {"pdf", "md", "txt", "html"}
    for number, (key, body) in enumerate(documents.items()):
        text = "".join(page_texts(body)) if key.endswith(".pdf") else body.decode()
        assert corpus.document_mark(number, 4) in text


def test_markdown_has_headings_and_a_table_of_the_asked_size() -> None:
    lines = corpus.make_markdown(3, rows=7).decode().splitlines()
    assert len([line for line in lines if line.startswith("## ")]) == 3
    assert len([line for line in lines if line.startswith("| item ")]) == 7


def test_locked_pdf_opens_with_its_password_only() -> None:
    with opened(corpus.broken()["broken/locked.pdf"][0]) as document:
        assert document.needs_pass
        assert not document.authenticate("guess")
        assert document.authenticate(corpus.PASSWORD)
        assert document.page_count == 3


def test_truncated_pdf_begins_like_one_and_holds_no_page() -> None:
    pdf, _ = corpus.broken()["broken/truncated.pdf"]
    assert pdf.startswith(b"%PDF-")
    assert b"%%EOF" not in pdf
    assert len(pdf) > 5_000
    assert readable_pages(pdf) == 0


def readable_pages(pdf: bytes) -> int:
    try:
        return len([text for text in page_texts(pdf) if text.strip()])
    except (pymupdf.FileDataError, RuntimeError):
        return 0


def test_what_is_no_pdf_does_not_begin_like_one() -> None:
    broken = corpus.broken()
    assert broken["broken/empty.pdf"][0] == b""
    assert len(broken["broken/random.pdf"][0]) == 77
    assert broken["broken/download.pdf"][0].startswith(b"<!DOCTYPE html>")
    assert not any(b"%PDF" in broken[f"broken/{name}.pdf"][0] for name in ("empty", "random", "download"))


def test_scan_has_pictures_and_no_text() -> None:
    with opened(corpus.broken()["broken/scan.pdf"][0]) as document:
        assert [(len(page.get_images()), page.get_text().strip()) for page in document] == [(1, "")] * 3


def test_mixed_scan_loses_the_text_of_the_named_pages_only() -> None:
    texts = page_texts(corpus.make_scan(5, scanned={2, 5}))
    assert [number for number, text in enumerate(texts, 1) if not text.strip()] == [2, 5]
    assert corpus.page_mark(4, 5) in texts[3]


def test_outline_loop_goes_round_while_the_pages_are_fine() -> None:
    with opened(corpus.make_outline_loop()) as document:
        entries = [n for n in range(1, document.xref_length()) if document.xref_get_key(n, "Title")[0] == "string"]
        following = {entry: int(document.xref_get_key(entry, "Next")[1].split()[0]) for entry in entries}
        assert len(entries) == 2
        assert set(following) == set(following.values())
        assert all(entry != after for entry, after in following.items())
        assert corpus.page_mark(4, 4) in document[3].get_text()


def test_awkward_texts_hold_what_makes_them_awkward() -> None:
    awkward = corpus.awkward()
    with pytest.raises(UnicodeDecodeError):
        awkward["awkward/surrogate.txt"].decode()
    assert "\ud835" in awkward["awkward/surrogate.txt"].decode("utf-8", "surrogatepass")
    assert awkward["awkward/nul.txt"].count(b"\x00") >= 3
    assert b"<|endoftext|>" in awkward["awkward/tokens.md"]
    assert awkward["awkward/carets.txt"] == b"^" * 1_000_000
    assert len(awkward["awkward/unbroken.txt"].split()) == 1
    assert len(awkward["awkward/unbroken.txt"]) > 50_000


def test_every_broken_document_names_a_reason() -> None:
    assert all(reasons for _, reasons in corpus.broken().values())
