"""Assembled documents made of blocks, and tokenizers of three kinds, for the tests of chunking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from ingest.chunk import Tokenizer
from ingest.config import EmbedConfig
from ingest.embed import resolve_model
from ingest.model import Assembled, Document, Span

DOCUMENT = Document("id", "bucket", "folder/Field manual.md", "v1", "v1", revision=1, size=1)


@dataclass(frozen=True, slots=True)
class Part:
    """A block; ``joint`` is what stands between it and the next one."""

    text: str
    kind: str = "text"
    level: int = 0
    page: int = 1
    joint: str = "\n\n"


def heading(text: str, level: int = 1) -> Part:
    return Part(text, "heading", level)


def assembled(parts: Sequence[Part], title: str = "", marked: str = "") -> Assembled:
    """The document of these blocks, with ``marked`` behind the flow."""
    pieces = [part.text + part.joint for part in parts]
    starts = [0, *accumulate(map(len, pieces))]
    spans = [Span(at, at + len(p.text), p.kind, p.page, p.level) for at, p in zip(starts, parts, strict=False)]
    pages = sorted({part.page for part in parts})
    return Assembled(
        DOCUMENT,
        "".join(pieces) + marked,
        flow_end=starts[-1],
        spans=tuple(spans),
        pages=tuple(pages),
        page_starts=tuple(min(span.start for span in spans if span.page == page) for page in pages),
        page_count=max(pages, default=0),
        title=title,
    )


@cache
def bert() -> Tokenizer:
    """The default embedder's: words never share a token."""
    return Tokenizer.load(resolve_model(EmbedConfig()))


@cache
def byte_level() -> Tokenizer:
    """As of GPT and RoBERTa: a character may be several tokens, a space belongs to the word behind it."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, trainers

    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        _CORPUS, trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=alphabet)
    )
    return Tokenizer(backend, "byte-level")


@cache
def sentence_piece() -> Tokenizer:
    """As of XLM-R and E5: one lattice over the text, a mark where each word begins."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers, trainers

    backend = Backend(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=120, show_progress=False, unk_token="<unk>", special_tokens=["<unk>"])
    backend.train_from_iterator(_CORPUS, trainer)
    return Tokenizer(backend, "sentence-piece")


_CORPUS = [
    "The fire door of the north building opens to the yard, and the alarm is tested every month.",
    "Write the number of the report, the date and the name of the reader in the first column.",
    "Der Bericht liegt im Archiv; die Nummer steht auf der ersten Seite.",
] * 20

TOKENIZERS = {"bert": bert, "byte_level": byte_level, "sentence_piece": sentence_piece}
