"""What every engine promises, run against each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from ingest.errors import ParseError
from ingest.model import Page
from ingest.parse import ENGINES, LADDERS, parser_fingerprint
from ingest.parse.inspection import inspect, load
from ingest.parse.result import ParsedPages
from ingest.parse.wire import decode_pages, encode_pages
from ingest.triage import plan
from tests import corpus

PAGES = 23
LONG = "\n\n".join(f"## Part {n}\n\n{corpus.prose(n, 30)}" for n in range(160))


@dataclass(frozen=True)
class Case:
    kind: str
    engine: Callable[[str, int, int], ParsedPages]
    path: str
    pages: int

    def parse(self, first: int, last: int) -> ParsedPages:
        return self.engine(self.path, first, last)


SAMPLES = {
    "pdf": corpus.make_pdf(PAGES),
    "text": LONG.encode(),
    "markdown": LONG.encode(),
    "html": ("<html><title>Long</title><body>" + LONG.replace("\n\n", "<p>") + "</body></html>").encode(),
}
SUFFIXES = {"pdf": "pdf", "text": "txt", "markdown": "md", "html": "html"}


@pytest.fixture(params=[(kind, name) for kind, names in LADDERS.items() for name in names], ids="-".join)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    kind, name = request.param
    path = tmp_path / f"sample.{SUFFIXES[kind]}"
    path.write_bytes(SAMPLES[kind])
    found = inspect(str(path), path.name)
    assert found.format == kind
    return Case(kind, load(ENGINES[name]), str(path), found.pages)


def words(pages: tuple[Page, ...]) -> list[str]:
    return [word for page in pages for block in page.blocks for word in block.text.split()]


def test_the_sample_has_several_segments(case: Case) -> None:
    assert len(plan(case.pages, 10)) > 1


def test_exactly_the_pages_asked_for_come_in_order(case: Case) -> None:
    for first, last in ((1, 1), (2, 3), (case.pages, case.pages), (1, case.pages)):
        assert [page.number for page in case.parse(first, last).pages] == list(range(first, last + 1))


def test_segments_together_say_what_the_whole_says(case: Case) -> None:
    parts = [case.parse(first, last) for first, last in plan(case.pages, 10)]
    whole = case.parse(1, case.pages)
    assert words(tuple(page for part in parts for page in part.pages)) == words(whole.pages)
    assert sum(part.repairs for part in parts) == whole.repairs
    assert tuple(entry for part in parts for entry in part.outline) == whole.outline


def test_a_second_call_gives_the_same(case: Case) -> None:
    assert case.parse(1, 3) == case.parse(1, 3)


def test_a_range_beyond_the_end_is_refused(case: Case) -> None:
    with pytest.raises(ParseError, match="pages_missing"):
        case.parse(case.pages, case.pages + 1)


def test_a_new_file_under_the_old_name_is_read_anew(case: Case) -> None:
    before = case.parse(1, 1)
    other = {"pdf": corpus.make_pdf(2, seed="other")}.get(case.kind, b"Quite other words.")
    Path(case.path).write_bytes(other)
    assert words(case.parse(1, 1).pages) != words(before.pages)


def test_blocks_are_clean_and_of_a_known_kind(case: Case) -> None:
    blocks = [block for page in case.parse(1, case.pages).pages for block in page.blocks]
    assert {block.kind for block in blocks} <= {"text", "heading", "table", "code", "list"}
    assert all(block.text.strip() and block.text.encode() for block in blocks)
    assert all((block.level > 0) == (block.kind == "heading") for block in blocks)


def test_the_engine_names_itself(case: Case) -> None:
    assert case.parse(1, 1).engine


def test_pages_survive_the_way_out_of_the_child(case: Case) -> None:
    parsed = case.parse(1, case.pages)
    assert decode_pages(orjson.loads(orjson.dumps(encode_pages(parsed)))) == parsed


def test_the_fingerprint_is_stable_and_blind_to_limits() -> None:
    from ingest.config import ParseConfig

    one, other = parser_fingerprint(ParseConfig()), parser_fingerprint(ParseConfig(timeout_s=5.0))
    assert one == other
    assert one.startswith("parse-")


def test_a_failed_page_is_named_and_never_given(tmp_path: Path) -> None:
    path = tmp_path / "scan.pdf"
    path.write_bytes(corpus.make_scan(5, scanned={2, 4}))
    parsed = load(ENGINES["pymupdf"])(str(path), 1, 5)
    assert [page.number for page in parsed.pages] == [1, 3, 5]
    assert [number for number, _ in parsed.failed_pages] == [2, 4]
    assert decode_pages(orjson.loads(orjson.dumps(encode_pages(parsed)))) == parsed
