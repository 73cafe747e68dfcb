"""What every chunking strategy promises, for tokenizers of every kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import regex
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ingest.chunk import STRATEGIES, Tokenizer, chunk, embed_text
from ingest.config import ChunkConfig
from ingest.model import Assembled, Chunk
from tests.documents import TOKENIZERS, Part, assembled

_SCRIPTS = """
the quick Fire-door REPORT 2024 1,234.56 e.g. don't antidisestablishmentarianism x
日本語テスト。猫猫猫猫 これは！本当？ 가각 ᄀᄀ ภาษาไทยไม่มีช่องว่าง नमस्ते। क्षत्रिय
می‌خواهم بروم؟ سلام، است۔ 👋🏻 👨‍👩‍👧‍👦 🇫🇷🇩🇪🇮🇹 <|endoftext|> [SEP] [CLS] </s> <unk> ^^^^^^^^^^^^ ---- |a|b|
"""
_WORDS = [
    *_SCRIPTS.split(),
    "cafe\u0301",
    "e\u0301\u0302\u0303",
    "\u0301",  # on its own it joins the space before it
    "\u0600\u0661",  # a prepended mark: it joins what follows
    "\u200b",
    "\ufeff",
    "\x1c",
    "z" * 130,  # longer than a word of the BERT vocabulary may be
    "q\u0301" + "\u0302" * 40,
]
_SPACES = [" ", " ", " ", "\n", "\r\n", "  ", "\t", "\u00a0", ". ", "! ", "", "\u2003"]
_JOINTS = ["\n\n", "\n", " ", "\n\n\n"]
_KINDS = ["text", "text", "text", "heading", "table", "list", "code"]


@st.composite
def _parts(draw: st.DrawFn) -> list[Part]:
    def words(most: int) -> str:
        tokens = draw(st.lists(st.tuples(st.sampled_from(_WORDS), st.sampled_from(_SPACES)), min_size=1, max_size=most))
        return "".join(word + space for word, space in tokens) or "x"

    parts, page = [], 1
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(_KINDS))
        rows = draw(st.integers(1, 8)) if kind == "table" else 1
        text = "\n".join(words(12 if kind in ("heading", "table") else 60) for _ in range(rows))
        level = draw(st.integers(1, 4)) if kind == "heading" else 0
        page += draw(st.integers(0, 2))
        parts.append(Part(text, kind, level, page, draw(st.sampled_from(_JOINTS))))
    return parts


_TEXTS = st.one_of(
    _parts(),
    st.lists(st.builds(Part, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)), min_size=1),
)


@st.composite
def _configs(draw: st.DrawFn) -> ChunkConfig:
    size = draw(st.sampled_from([1, 2, 3, 5, 8, 13, 21, 40, 64, 128, 254]))
    header = draw(st.integers(0, min(48, size // 2)))
    return ChunkConfig(
        strategy=draw(st.sampled_from(sorted(STRATEGIES))),
        size=size,
        overlap=draw(st.one_of(st.just(0), st.integers(0, size - 1))),
        header_tokens=header,
    )


def _borders(text: str) -> set[int]:
    return {0, *(found.end() for found in regex.finditer(r"\X", text))}


def _check(document: Assembled, config: ChunkConfig, tokenizer: Tokenizer, chunks: list[Chunk]) -> None:
    text, borders = document.text, _borders(document.text)
    assert [c.index for c in chunks] == list(range(len(chunks)))
    position = 0
    for one in chunks:
        assert one.text == text[one.start : one.end]
        assert one.text
        assert not text[position : one.start].strip(), "text was lost"
        assert {one.start, one.end} <= borders, "cut inside a character"
        position = one.end
        body = tokenizer.count(embed_text(one.header, one.text))
        assert one.tokens == body + tokenizer.specials
        is_single = regex.fullmatch(r"\X", one.text) is not None
        assert body <= config.size or (is_single and not one.header)
        assert 1 <= one.page_from <= one.page_to <= document.page_count
    assert not text[position : document.flow_end].strip(), "the end was lost"
    for before, behind in pairwise(chunks):
        assert before.start < behind.start
        assert before.end < behind.end
        if not config.overlap:
            assert before.end <= behind.start


@pytest.mark.parametrize("name", TOKENIZERS)
@given(parts=_TEXTS, config=_configs())
# a block that begins with a combining mark: its first character begins in the space before it
@example([Part("the 2024 "), Part("\u0301 the ", "table")], ChunkConfig(size=3, overlap=0, header_tokens=0))
@example([Part("the ", joint=" "), Part("\u0301 the ", "table")], ChunkConfig(size=2, overlap=0, header_tokens=0))
@example(
    [Part("the ", joint=" "), Part("\u0301 the", "heading", 1), Part("x y")],
    ChunkConfig(size=2, overlap=0, header_tokens=0),
)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
def test_chunks_are_exact_slices_within_the_budget(name: str, parts: list[Part], config: ChunkConfig) -> None:
    document = assembled(parts, title="A title that is long enough to be cut", marked="page 1 of 9")
    tokenizer = TOKENIZERS[name]()
    _check(document, config, tokenizer, chunk(document, config, tokenizer))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_chunking_again_gives_the_same_chunks(strategy: str) -> None:
    document = assembled([Part("One sentence more. " * 90), Part("Another one! " * 80)])
    config, tokenizer = ChunkConfig(strategy=strategy), TOKENIZERS["bert"]()
    assert chunk(document, config, tokenizer) == chunk(document, config, tokenizer)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("text", ["", " \n\n ", "\r\n"])
def test_text_of_whitespace_has_no_chunk(strategy: str, text: str) -> None:
    assert chunk(assembled([Part(text)]), ChunkConfig(strategy=strategy), TOKENIZERS["bert"]()) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("make", [lambda: "^" * 300_000, lambda: "z" * 300_000, lambda: "e" + "\u0301" * 100_000])
def test_endless_run_ends_within_the_budget(strategy: str, make: Callable[[], str]) -> None:
    document = assembled([Part(make())])
    config, tokenizer = ChunkConfig(strategy=strategy), TOKENIZERS["bert"]()
    chunks = chunk(document, config, tokenizer)
    assert "".join(one.text for one in chunks) == document.text.strip()
    assert all(one.tokens <= config.size + tokenizer.specials for one in chunks)
