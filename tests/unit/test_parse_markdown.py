from __future__ import annotations

from ingest.model import Block
from ingest.parse.markdown import read


def blocks(source: str) -> list[tuple[str, int, str]]:
    return [(block.kind, block.level, block.text) for block in read(source.encode()).blocks]


def test_closing_hashes_are_no_part_of_a_heading() -> None:
    assert blocks("# Title #\n\n## Second title ##\n\n### Language C#\n\n#not a heading") == [
        ("heading", 1, "Title"),
        ("heading", 2, "Second title"),
        ("heading", 3, "Language C#"),
        ("text", 0, "#not a heading"),
    ]


def test_a_hash_in_a_fence_is_code() -> None:
    assert blocks("```sh\n# install\n  make\n```") == [("code", 0, "# install\n  make")]


def test_a_table_is_one_block_with_its_header_first() -> None:
    assert blocks("| A | B |\n|---|:-:|\n| 1 | *x* `y` |\n| 2 | |") == [
        ("table", 0, "| A | B |\n| 1 | x y |\n| 2 |  |")
    ]


def test_signs_of_emphasis_go_and_words_stay() -> None:
    assert blocks("**Bold** _and_ [a link](http://x.test) ![a picture](p.png)\nnext &amp; last") == [
        ("text", 0, "Bold and a link a picture\nnext & last")
    ]


def test_control_tokens_of_models_are_ordinary_words() -> None:
    assert blocks("prefix <|endoftext|> [SEP]") == [("text", 0, "prefix <|endoftext|> [SEP]")]


def test_a_list_keeps_its_lines() -> None:
    assert blocks("- one\n  - deep\n- two") == [("list", 0, "- one\n  - deep\n- two")]


def test_a_quote_is_read_like_the_rest() -> None:
    assert blocks("> ## Inside\n> words\n\nafter") == [
        ("heading", 2, "Inside"),
        ("text", 0, "words"),
        ("text", 0, "after"),
    ]


def test_front_matter_gives_the_title_and_is_no_text() -> None:
    whole = read(b"---\ntitle: Yearbook\ntags: [a]\n---\n# One\n")
    assert (whole.title, whole.blocks) == ("Yearbook", (Block("heading", "One", 1),))


def test_broken_front_matter_costs_the_title_at_most() -> None:
    whole = read(b"---\ntitle: [\n---\nwords\n")
    assert (whole.title, [block.text for block in whole.blocks]) == ("", ["words"])


def test_a_rule_at_the_top_is_no_front_matter() -> None:
    assert [block.text for block in read(b"---\n\nwords").blocks] == ["words"]


def test_deep_nesting_ends() -> None:
    read(b">" * 5000 + b" deep")
    read(b"- " * 2000 + b"deep")
