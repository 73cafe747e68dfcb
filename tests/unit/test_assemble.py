from __future__ import annotations

import unicodedata
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ingest.assemble import assemble
from ingest.model import Assembled, Block, Document, Page, ParsedSegment

DOCUMENT = Document("d" * 64, "bucket", "key.pdf", "v1", "v1", 1, 100)


def segment(number: int, *pages: Page, title: str = "", repairs: int = 0) -> ParsedSegment:
    ends = [page.number for page in pages] or [1]
    return ParsedSegment("d" * 64, number, min(ends), max(ends), pages, "engine", "parser", title, repairs=repairs)


def printed(number: int, *texts: str) -> Page:
    blocks = (Block("text", text, bbox=(72, 200.0 + 50 * n, 500, 240.0 + 50 * n)) for n, text in enumerate(texts))
    return Page(number, tuple(blocks), 595, 842)


def build(*pages: Page, count: int = 0) -> Assembled:
    return assemble(DOCUMENT, [segment(0, *pages)], count or len(pages))


def bodies(assembled: Assembled) -> list[str]:
    return [assembled.text[span.start : span.end] for span in assembled.spans]


def test_blocks_stand_one_after_the_other_with_a_blank_line_between() -> None:
    assembled = build(printed(1, "One.", "Two."), printed(2, "Three."))
    assert assembled.text == "One.\n\nTwo.\n\nThree."
    assert bodies(assembled) == ["One.", "Two.", "Three."]
    assert (assembled.pages, assembled.page_starts) == ((1, 2), (0, 12))
    assert assembled.flow_end == len(assembled.text)


def test_lines_of_prose_become_one_and_lines_of_code_stay() -> None:
    page = Page(
        1,
        (
            Block("text", "one\ntwo"),
            Block("code", "a:\n  b"),
            Block("table", "| H |\n| r |"),
            Block("list", "- a\n- b"),
        ),
    )
    assert build(page).text == "one two\n\na:\n  b\n\n| H |\n| r |\n\n- a\n- b"


def test_bullets_keep_their_lines() -> None:
    assert build(printed(1, "To do:\n• buy\nrope\n• sell")).text == "To do:\n• buy rope\n• sell"


def test_a_sentence_that_runs_over_a_page_border_stays_one_paragraph() -> None:
    assert build(printed(1, "It was not"), printed(2, "over. Next.")).text == "It was not\nover. Next."


def test_a_sentence_that_has_ended_or_a_capital_begins_a_paragraph() -> None:
    assert build(printed(1, "It was over."), printed(2, "and so on")).text == "It was over.\n\nand so on"
    assert build(printed(1, "It was"), printed(2, "Over here")).text == "It was\n\nOver here"


def test_parts_of_a_text_run_on_only_where_their_engine_says_so() -> None:
    pages = (
        Page(1, (Block("text", "it was not"),)),
        Page(2, (Block("text", "over"),), notes=("continues",)),
        Page(3, (Block("text", "and more"),)),
    )
    assert build(*pages).text == "it was not\nover\n\nand more"


def test_a_broken_word_is_mended_if_the_document_has_it_whole() -> None:
    page = printed(1, "The configu-\nration of it.", "A configuration. A well-\nknown thing.")
    assert build(page).text == "The configuration of it.\n\nA configuration. A well- known thing."


def test_an_option_keeps_its_hyphen() -> None:
    assert "--dry-run-only" in build(printed(1, "switch --dry-run-\nonly before. Run runonly.")).text


def test_a_soft_hyphen_at_a_line_end_always_joins() -> None:
    assert build(printed(1, "configu\u00ad\nration")).text == "configuration"


def test_a_long_token_before_a_hyphen_takes_no_time() -> None:
    text = "^" * 200_000 + " a-\nb"
    assert build(printed(1, text)).text == text.replace("\n", " ")


def test_hidden_text_is_kept_behind_the_flow() -> None:
    page = Page(1, (Block("text", "Seen."), Block("text", "SECRET", hidden=True), Block("text", "Last.")), 595, 842)
    assembled = build(page)
    assert assembled.text[: assembled.flow_end] == "Seen.\n\nLast."
    assert [assembled.text[span.start : span.end] for span in assembled.marked] == ["SECRET"]


def test_running_headers_are_kept_behind_the_flow() -> None:
    header = Block("text", "The Manual", bbox=(72, 30, 200, 40))
    pages = [Page(n, (header, *printed(n, f"Body {n}.").blocks), 595, 842) for n in range(1, 6)]
    assembled = build(*pages)
    assert "The Manual" not in assembled.text[: assembled.flow_end]
    assert len(assembled.marked) == 5


def test_the_text_is_nfkc_and_offsets_lead_back() -> None:
    raw = "plain ﬁrst ﬁnd and x\u00a0y"
    assembled = build(printed(1, raw))
    assert assembled.text == "plain first find and x y"
    assert assembled.raw_offsets == ((0, 0), (11, 10), (16, 14))


def test_missing_pages_are_absent_and_a_page_given_twice_counts_once() -> None:
    first, again = segment(1, printed(5, "Five.")), segment(2, printed(5, "Five again."), printed(6, "Six."))
    assembled = assemble(DOCUMENT, [again, segment(0, printed(1, "One.")), first], 6)
    assert assembled.text == "One.\n\nFive.\n\nSix."
    assert (assembled.pages, assembled.page_count) == ((1, 5, 6), 6)


def test_a_blank_page_begins_where_the_next_one_does() -> None:
    assembled = build(printed(1, "One."), printed(2), printed(3, "Three."))
    assert assembled.pages == (1, 2, 3)
    assert assembled.page_starts == (0, 4, 6)


def test_nothing_gives_an_empty_text() -> None:
    assembled = assemble(DOCUMENT, [], 3)
    assert (assembled.text, assembled.flow_end, assembled.spans, assembled.pages) == ("", 0, (), ())


def test_the_title_is_stated_or_the_highest_heading_of_the_first_pages() -> None:
    head = Page(1, (Block("heading", "Part", 3), Block("heading", "The\nBook", 2), Block("text", "x")), 595, 842)
    assert assemble(DOCUMENT, [segment(0, head, title="Stated ﬁrst")], 1).title == "Stated first"
    assert build(head).title == "The Book"
    assert build(printed(1, "x")).title == ""


def test_repairs_add_up() -> None:
    assert assemble(DOCUMENT, [segment(0, repairs=2), segment(1, repairs=3)], 0).repairs == 5


BLOCKS = st.builds(
    Block,
    kind=st.sampled_from(["text", "heading", "code", "list", "table"]),
    text=st.text(st.sampled_from("aB ﬁ\n-•é\u0301\u00a0\u00ad．"), max_size=30),
    hidden=st.booleans(),
)


@given(st.lists(st.lists(BLOCKS, max_size=4), max_size=6))
def test_spans_are_exact_in_order_and_apart_and_the_text_is_normal(pages: list[list[Block]]) -> None:
    assembled = build(*(Page(n, tuple(blocks), 595, 842) for n, blocks in enumerate(pages, 1)))
    spans = (*assembled.spans, *assembled.marked)
    assert all(span.start < span.end for span in spans)
    assert all(one.end < other.start for one, other in pairwise(spans))
    assert all(assembled.text[one.end : other.start].isspace() for one, other in pairwise(spans))
    assert assembled.flow_end == (assembled.spans[-1].end if assembled.spans else 0)
    assert list(assembled.page_starts) == sorted(assembled.page_starts)
    assert list(assembled.raw_offsets) == sorted(set(assembled.raw_offsets))
    assert all(unicodedata.is_normalized("NFKC", assembled.text[span.start : span.end]) for span in spans)
