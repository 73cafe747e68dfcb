"""Where chunks begin and end, and what their headers say."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ingest.chunk import check_budget, chunk, chunker_fingerprint
from ingest.chunk.context import Headers, embed_text, shorten, title_of
from ingest.config import ChunkConfig
from ingest.errors import ConfigError
from ingest.model import Assembled, Chunk
from tests.documents import Part, assembled, bert, heading


def cut(parts: list[Part], size: int = 64, title: str = "Manual", **options: object) -> list[Chunk]:
    config = {"size": size, "header_tokens": min(16, size // 2), **options}
    return chunk(assembled(parts, title), ChunkConfig.model_validate(config), bert())


def sentence(n: int) -> str:
    return f"Sentence number {n} tells of the door in the north wall."  # 12 tokens


def paragraph(n: int, sentences: int) -> Part:
    return Part(" ".join(sentence(10 * n + k) for k in range(sentences)))


# ------------------------------------------------------------------ packing


def test_short_document_is_one_chunk() -> None:
    assert [c.text for c in cut([Part("One."), Part("Two.")])] == ["One.\n\nTwo."]


def test_paragraphs_are_packed_up_to_the_budget() -> None:
    chunks = cut([paragraph(n, 2) for n in range(6)])
    assert [c.text.count("Sentence") for c in chunks] == [4, 4, 4]


def test_long_paragraph_is_cut_at_sentences() -> None:
    chunks = cut([paragraph(0, 20)])
    assert len(chunks) > 3
    assert all(c.text.startswith("Sentence") and c.text.endswith("wall.") for c in chunks)


@pytest.mark.parametrize("size", [10, 64, 254])
def test_sentence_over_the_budget_is_cut_at_words(size: int) -> None:
    words = [f"word{n % 7}" for n in range(1500)]
    chunks = cut([Part(" ".join(words) + " end.")], size, header_tokens=0)
    assert " ".join(c.text for c in chunks).split() == [*words, "end."]
    assert all(c.tokens <= size + 2 for c in chunks)


def test_twenty_thousand_words_are_eighty_chunks() -> None:
    chunks = cut([Part("word " * 20_000)], 254, title="")
    assert 79 <= len(chunks) <= 85
    assert all(c.tokens <= 256 for c in chunks)


def test_repeated_paragraphs_each_have_their_own_place() -> None:
    text = assembled([Part("alpha beta gamma delta.")] * 400)
    chunks = chunk(text, ChunkConfig(), bert())
    assert (chunks[0].start, chunks[-1].end) == (0, text.flow_end - 2)
    assert all(text.text[c.start : c.end] == c.text for c in chunks)


def test_chinese_is_cut_at_its_full_stops() -> None:
    chunks = cut([Part("文件放在城市的图书馆里。每份报告都有编号和日期。" * 20)])
    assert len(chunks) > 3
    assert all(c.text.endswith("。") for c in chunks)


def test_list_is_cut_between_its_lines() -> None:
    lines = "\n".join(f"- item {n} of the list, without a full stop" for n in range(30))
    chunks = cut([Part(lines, "list")])
    assert all(c.text.startswith("- item") for c in chunks)


def test_character_larger_than_the_budget_stands_alone() -> None:
    family = "👨‍👩‍👧‍👦"
    chunks = cut([Part(f"a {family} b")], 1, header_tokens=0)
    assert [c.text for c in chunks] == ["a", family, "b"]


# ------------------------------------------------------------------ headings


def test_heading_starts_a_chunk_when_the_one_before_is_half_full() -> None:
    chunks = cut([heading("One"), paragraph(0, 3), heading("Two", 2), paragraph(1, 3)])
    assert [c.text.split("\n")[0] for c in chunks] == ["One", "Two"]


def test_small_sections_share_a_chunk() -> None:
    parts = [part for n in range(3) for part in (heading(f"Part {n}", 2), paragraph(n, 1))]
    assert len(cut(parts, 128)) == 1


def test_structure_gives_each_section_its_chunk() -> None:
    parts = [part for n in range(3) for part in (heading(f"Part {n}", 2), paragraph(n, 1))]
    chunks = cut([heading("Book"), *parts], 128, strategy="structure")
    assert [c.text.split("\n")[0] for c in chunks] == ["Book", "Part 1", "Part 2"]


def test_edit_changes_only_the_chunks_of_its_section_under_structure() -> None:
    sections = [[heading(f"Section {n}", 2), paragraph(n, 9)] for n in range(20)]
    edited = [*sections[:4], [*sections[4], Part("A new paragraph about nothing much.")], *sections[5:]]
    before, behind = (
        {(c.header, c.text) for c in cut([p for s in version for p in s], 128, strategy="structure")}
        for version in (sections, edited)
    )
    assert 1 <= len(behind - before) <= 2


def test_heading_never_stands_alone_at_the_end_of_a_chunk() -> None:
    for first in range(1, 9):
        parts = [paragraph(0, first), heading("Deep", 4), heading("Deeper", 5), paragraph(1, 4), paragraph(2, 4)]
        for one in cut(parts):
            assert not one.text.endswith(("Deep", "Deeper"))


def test_headings_are_the_path_above_and_those_inside() -> None:
    chunks = cut([heading("Book"), heading("Part", 2), paragraph(0, 6), heading("Next", 2), paragraph(1, 1)])
    assert [c.headings for c in chunks] == [("Book", "Part"), ("Book", "Part", "Next")]


def test_header_is_title_and_path_above_the_text() -> None:
    chunks = cut([heading("Book"), heading("Part", 2), paragraph(0, 8), heading("Next", 2), paragraph(1, 4)])
    assert [c.header for c in chunks] == ["Manual", "Manual › Book › Part", "Manual › Book"]


# ------------------------------------------------------------------ tables

_ROWS = [f"| p{n:02d} | {n} north | {n} south | 5,{n + 120} |" for n in range(1, 41)]
_TABLE = Part("\n".join(["| Part | North | South | Total |", "|---|---|---|---|", *_ROWS]), "table")


def test_every_piece_of_a_table_carries_its_header_row() -> None:
    chunks = cut([heading("Yearbook"), heading("Parts", 2), _TABLE, Part("Last line.")])
    rows = [c for c in chunks if "north" in c.text]
    assert len(rows) > 5
    assert all("| Part | North | South | Total |" in embed_text(c.header, c.text) for c in rows)


@pytest.mark.parametrize("overlap", [0, 20])
def test_each_row_is_whole_and_in_exactly_one_piece(overlap: int) -> None:
    chunks = cut([paragraph(0, 2), _TABLE, paragraph(1, 2)], overlap=overlap)
    lines = [line for c in chunks for line in c.text.split("\n")]
    assert [line for line in lines if line.startswith("| p")] == _ROWS


def test_header_row_is_not_left_without_a_row() -> None:
    for sentences in range(1, 5):
        chunks = cut([paragraph(0, sentences), _TABLE])
        assert not any(c.text.endswith("---|") or c.text.endswith("Total |") for c in chunks)


def test_row_over_the_budget_is_cut_at_words() -> None:
    wide = Part("| Name |\n|---|\n| " + "cell " * 300 + "|\n| short |", "table")
    chunks = cut([wide])
    assert all(c.tokens <= 66 for c in chunks)
    assert sum(c.text.count("cell") for c in chunks) == 300


# ------------------------------------------------------------------ overlap and pages


def test_overlap_repeats_whole_sentences_within_its_tokens() -> None:
    chunks = cut([paragraph(0, 20)], overlap=15)
    for before, behind in pairwise(chunks):
        shared = before.text[behind.start - before.start :]
        assert shared.startswith("Sentence")
        assert bert().count(shared) <= 15


def test_overlap_does_not_reach_over_a_heading() -> None:
    chunks = cut([paragraph(0, 4), heading("New"), paragraph(1, 4)], overlap=20)
    assert chunks[1].text.startswith("New")


def test_pages_are_those_of_the_first_and_last_character() -> None:
    parts = [Part(sentence(n), page=page) for n, page in enumerate([1, 1, 2, 5, 5, 6])]
    assert [(c.page_from, c.page_to) for c in cut(parts, 32)] == [(1, 1), (2, 5), (5, 6)]


def test_running_headers_behind_the_flow_are_in_no_chunk() -> None:
    text = assembled([Part("The text.")], marked="page 3 of 9")
    assert [c.text for c in chunk(text, ChunkConfig(), bert())] == ["The text."]


def test_unknown_tokens_are_counted() -> None:
    assert [c.unknown_tokens for c in cut([Part("plain 𒀀 and 𒀁 signs")])] == [2]


# ------------------------------------------------------------------ headers


def test_title_falls_back_to_the_file_name() -> None:
    assert title_of(assembled([Part("x")])) == "Field manual"
    assert title_of(assembled([Part("x")], "  The\n title ")) == "The title"


@pytest.mark.parametrize("budget", [1, 2, 5, 8, 12, 48])
def test_header_keeps_within_its_budget(budget: int) -> None:
    headers = Headers("A title of seven words or so", budget, bert())
    found = headers.of(["First heading of a book", "Second heading", "Third heading of the chapter"])
    assert 0 < bert().count(found) <= budget


def test_long_path_keeps_title_and_last_heading() -> None:
    assert Headers("Manual", 8, bert()).of(["One long heading", "Two", "Three"]) == "Manual › Two › Three"


def test_header_tokens_of_zero_mean_no_header() -> None:
    assert [c.header for c in cut([paragraph(0, 9)], header_tokens=0)] == [""] * 2


@pytest.mark.parametrize("text", ["", "a", "Annual_Report_2024_final_v3", "z" * 400, "👨‍👩‍👧‍👦👨‍👩‍👧‍👦 x"])
@pytest.mark.parametrize("budget", [-1, 0, 1, 4])
def test_shortened_text_fits_and_is_a_beginning(text: str, budget: int) -> None:
    found = shorten(text, budget, bert())
    assert text.startswith(found)
    assert bert().count(found) <= max(0, budget)


# ------------------------------------------------------------------ configuration


def test_budget_over_the_model_limit_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"500.*256") as refused:
        check_budget(ChunkConfig(size=500), bert(), 256)
    assert "254" in str(refused.value)
    check_budget(ChunkConfig(size=254), bert(), 256)
    with pytest.raises(ConfigError):
        check_budget(ChunkConfig(size=254), bert(), 256, prefix="passage: ")


@pytest.mark.parametrize("changed", [{"size": 100}, {"overlap": 9}, {"header_tokens": 5}, {"strategy": "structure"}])
def test_fingerprint_changes_with_every_option(changed: dict[str, object]) -> None:
    assert chunker_fingerprint(ChunkConfig.model_validate(changed), "t") != chunker_fingerprint(ChunkConfig(), "t")
    assert chunker_fingerprint(ChunkConfig(), "u") != chunker_fingerprint(ChunkConfig(), "t")


def whole(document: Assembled, config: ChunkConfig, tokenizer: object) -> list[Chunk]:
    """A strategy of the user's own: one chunk."""
    return [Chunk(0, 0, document.flow_end, document.text, 1, 1, (), "", 0)]


def test_own_strategy_is_found_by_its_dotted_path() -> None:
    document = assembled([Part("x")])
    assert chunk(document, ChunkConfig(strategy=f"{__name__}:whole"), bert()) == whole(document, ChunkConfig(), None)


@pytest.mark.parametrize("name", ["nonsense", "no.such:thing", "ingest.chunk:nothing"])
def test_unknown_strategy_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"chunk\.strategy"):
        chunk(assembled([Part("x")]), ChunkConfig(strategy=name), bert())


@pytest.mark.parametrize("name", ["nope", "no.such.module:cut", "ingest.chunk:nope"])
def test_a_strategy_that_is_not_there_is_refused_before_a_run(name: str) -> None:
    with pytest.raises(ConfigError, match=r"chunk\.strategy"):
        check_budget(ChunkConfig(strategy=name), bert(), 256)
