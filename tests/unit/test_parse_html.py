from __future__ import annotations

import pytest

from ingest.parse.html import read


def blocks(source: str) -> list[tuple[str, int, str]]:
    return [(block.kind, block.level, block.text) for block in read(source.encode()).blocks]


def test_headings_paragraphs_lists_code_and_tables_come_in_order() -> None:
    source = """<html><head><title> A  page </title></head><body><h1>Top</h1><div><p>One <b>bold</b>
    word.</p>loose <i>text</i><p>Two</p></div><ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>
    <pre>x = 1\n  y</pre><table><tr><th>K</th><th>V</th></tr><tr><td>k</td><td>v w</td></tr></table></body></html>"""
    assert blocks(source) == [
        ("heading", 1, "Top"),
        ("text", 0, "One bold word."),
        ("text", 0, "loose text"),
        ("text", 0, "Two"),
        ("list", 0, "- a\n- b\n- c"),
        ("code", 0, "x = 1\n  y"),
        ("table", 0, "| K | V |\n| k | v w |"),
    ]
    assert read(source.encode()).title == "A page"


@pytest.mark.parametrize(
    "unseen",
    [
        "<script>SECRET</script>",
        "<style>SECRET</style>",
        "<nav><p>SECRET</p></nav>",
        "<p hidden>SECRET</p>",
        '<p style="color:red; DISPLAY : none">SECRET</p>',
        "<!-- SECRET -->",
        "<template><p>SECRET</p></template>",
    ],
)
def test_what_a_reader_does_not_see_is_left_out(unseen: str) -> None:
    assert blocks(f"<body>before{unseen}<p>after</p></body>") == [("text", 0, "before"), ("text", 0, "after")]


def test_hidden_in_hidden_is_no_error() -> None:
    assert blocks('<nav><p style="display:none">a</p><script>b</script></nav><p>c</p>') == [("text", 0, "c")]


def test_the_stated_charset_is_used_unless_it_is_wrong() -> None:
    page = '<html><head><meta charset="{}"></head><body><p>Größe</p></body></html>'
    assert read(page.format("iso-8859-1").encode("latin-1")).blocks[0].text == "Größe"
    assert read(page.format("ascii").encode()).blocks[0].text == "Größe"
    assert read(page.format("no-such").encode()).blocks[0].text == "Größe"


def test_entities_cannot_bring_back_what_was_cleaned() -> None:
    whole = read(b"<p>a&#x1;b &amp; c</p>")
    assert (whole.blocks[0].text, whole.repairs) == ("ab & c", 1)


def test_deep_nesting_ends() -> None:
    assert blocks("<div>" * 20_000 + "deep") == [("text", 0, "deep")]


def test_an_empty_page_has_no_blocks() -> None:
    assert blocks("<html></html>") == []
