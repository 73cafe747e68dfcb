"""Is a document as its case says? Every difference in words; none means as expected."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ingest.chunk import Tokenizer, chunk
from ingest.config import ChunkConfig, Config
from ingest.embed import resolve_model
from ingest.model import Assembled, Chunk, State
from ingest.parse import LADDERS
from ingest.triage import plan
from tests.harness import digest
from tests.scenarios.seen import Seen

SERVED = (State.READY, State.PARTIAL)
FORMATS = {"md": "markdown", "txt": "text"}  # names of the cases → ours
BAD_CHARACTERS = re.compile("[\x00\ud800-\udfff]")


def not_yet(wanted: Mapping[str, Any]) -> str:
    """What the product can not read yet that this file needs, or an empty string."""
    kind = FORMATS.get(wanted.get("format", ""), wanted.get("format", ""))
    return "" if not kind or kind in LADDERS else f"the format {kind}"


def differences(wanted: Mapping[str, Any], seen: Seen | None, config: Config, skipped: Mapping[str, int]) -> list[str]:
    """What differs from the outcome that the case calls right."""
    if seen is None:
        reasons = set(wanted.get("reasons", ())) & set(skipped)
        return [] if "also_right" in wanted and reasons else ["it is not in the ledger"]
    if not_yet(wanted):
        return list(_unsupported(wanted, seen))
    return list(_all(wanted, seen, config))


def _unsupported(wanted: Mapping[str, Any], seen: Seen) -> Iterator[str]:
    """What can not be read yet ends so at once."""
    if seen.job.state in wanted["states"] and seen.reasons & set(wanted.get("reasons", ())):
        return  # refused for its own reason, before its format mattered
    if (seen.job.state, seen.reasons) != (State.UNSUPPORTED, {"unsupported_type"}):
        yield f"{seen.job.state} {sorted(seen.reasons)}, but its format can not be read yet: unsupported_type"
    if seen.job.attempt != 1:
        yield f"attempt {seen.job.attempt}, where the first is enough"


def _all(wanted: Mapping[str, Any], seen: Seen, config: Config) -> Iterator[str]:
    state = seen.job.state
    if state not in wanted["states"]:
        yield f"state {state} {sorted(seen.reasons)}, wanted {wanted['states']}"
    if state is not State.READY and wanted.get("reasons") and not seen.reasons <= set(wanted["reasons"]):
        yield f"reasons {sorted(seen.reasons)}, wanted of {wanted['reasons']}"
    if "attempts" in wanted and seen.job.attempt != wanted["attempts"]:
        yield f"attempt {seen.job.attempt}, wanted {wanted['attempts']}"
    if "failed_pages" in wanted and state is State.PARTIAL and seen.failed_pages != wanted["failed_pages"]:
        yield f"failed pages {seen.failed_pages}, wanted {wanted['failed_pages']}"
    if "engine_must_not_be" in wanted and seen.format == wanted["engine_must_not_be"]:
        yield f"it was read as {seen.format}"
    if state in SERVED:
        yield from _served(wanted, seen, config)
    elif seen.chunks:
        yield f"{len(seen.chunks)} chunks in the index although it is {state}"


def _served(wanted: Mapping[str, Any], seen: Seen, config: Config) -> Iterator[str]:
    number = len(seen.chunks)
    if not wanted["min_chunks"] <= number <= wanted["max_chunks"]:
        yield f"{number} chunks, wanted {wanted['min_chunks']} to {wanted['max_chunks']}"
    if wanted.get("page_count") and seen.segments[-1].page_to != wanted["page_count"]:
        yield f"{seen.segments[-1].page_to} pages, wanted {wanted['page_count']}"
    for pages, segments in wanted.get("segments", {}).items():
        if len(plan(wanted["page_count"], int(pages))) != segments:
            yield f"{len(plan(wanted['page_count'], int(pages)))} segments of {pages} pages, wanted {segments}"
    bodies = [seen.chunks[index]["text"] for index in sorted(seen.chunks)]
    yield from _texts(wanted, seen.text, bodies, f"if_{seen.job.state}_")
    yield from _headings(wanted, seen)
    yield from _flags(wanted, seen)
    yield from always(seen, config)
    yield from _sizes(wanted, seen, config)


# ---------------------------------------------------------------- texts


def folded(text: str) -> str:
    """NFKC, whitespace runs as one space."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _texts(wanted: Mapping[str, Any], text: str, bodies: Sequence[str], prefix: str) -> Iterator[str]:
    whole, pieces = folded(text), [folded(body) for body in bodies]
    joined = " ".join(pieces)
    for words in [*wanted.get("text_must_contain", ()), *wanted.get(f"{prefix}text_must_contain", ())]:
        if folded(words) not in whole and folded(words) not in joined:
            yield f"the text lacks {words!r}"
    for words in wanted.get("text_must_not_contain", ()):
        if (folded(words) and folded(words) in joined) or (words.strip() == "" and any(words in b for b in bodies)):
            yield f"the text has {words!r}"
    for choice in wanted.get("text_must_contain_one_of", ()):
        if not any(folded(words) in whole for words in choice):
            yield f"the text has none of {choice}"
    yield from _order(wanted.get("text_in_order", ()), whole)
    for pattern, number in wanted.get("distinct_matches", {}).items():
        if (found := len(set(re.findall(pattern, whole)))) != number:
            yield f"{found} different matches of {pattern}, wanted {number}"
    for pattern, number in wanted.get("total_matches", {}).items():
        if (found := len(re.findall(pattern, whole))) != number:
            yield f"{found} matches of {pattern}, wanted {number}"
    if wanted.get("no_surrogates") and any(BAD_CHARACTERS.search(body) for body in bodies):
        yield "a chunk has a lone surrogate or a NUL"


def _order(wanted: Sequence[str], whole: str) -> Iterator[str]:
    at = 0
    for words in wanted:
        found = whole.find(folded(words), at)
        if found < 0:
            yield f"{words!r} does not come in its place"
            return
        at = found


def _headings(wanted: Mapping[str, Any], seen: Seen) -> Iterator[str]:
    found = {heading for fields in seen.chunks.values() for heading in fields["headings"]}
    found |= {part for fields in seen.chunks.values() for part in fields["header"].split(" › ")}
    for heading in wanted.get("headings", ()):
        if heading not in found:
            yield f"no chunk under the heading {heading!r}"
    for heading in wanted.get("headings_not", ()):
        if heading in found:
            yield f"a chunk under the heading {heading!r}"
    if words := wanted.get("every_table_chunk_contains"):
        for index, fields in sorted(seen.chunks.items()):
            if re.search(r"\bp\d\d\b|\bv\d+-\d\b", fields["text"]) and words not in fields["text"] + fields["header"]:
                yield f"chunk {index} of the table lacks {words!r}"


def _flags(wanted: Mapping[str, Any], seen: Seen) -> Iterator[str]:
    for name, number in wanted.get("flags", {}).items():
        if name == "hidden_spans":
            if seen.hidden != number:
                yield f"{seen.hidden} hidden spans, wanted {number}"
        else:
            yield f"flag {name} is not reported"


# ---------------------------------------------------------------- what holds for every document


def always(seen: Seen, config: Config) -> Iterator[str]:
    """What the cases call true whatever the case."""
    count = max((fields["chunk_count"] for fields in seen.chunks.values()), default=0)
    missing = count - len(seen.chunks)
    if sorted(seen.chunks) != list(range(len(seen.chunks))) and missing != seen.job.failed_chunks:
        yield "the chunk indexes have a hole"
    if seen.job.state is State.READY and not (seen.chunks and seen.job.chunk_count == len(seen.chunks) == count):
        yield f"ready with {len(seen.chunks)} chunks, the ledger expects {seen.job.chunk_count}"
    name = (config.source.bucket, seen.key, seen.job.version)
    for index, fields in seen.chunks.items():
        if fields["chunk_id"] != digest(*name, str(index)):
            yield f"chunk {index} has another id than the listing gives"
    if seen.assembled is None:
        return
    tokenizer = Tokenizer.load(resolve_model(config.embed))
    pieces = chunk(seen.assembled, config.chunk, tokenizer)
    yield from spans(seen.assembled, pieces, config.chunk, tokenizer)
    bodies = {index: fields["text"] for index, fields in seen.chunks.items()}
    if any(bodies.get(piece.index, piece.text) != piece.text for piece in pieces):
        yield "a chunk in the index is not what its artifacts give"


def spans(assembled: Assembled, pieces: Sequence[Chunk], config: ChunkConfig, tokenizer: Tokenizer) -> Iterator[str]:
    """Offsets, order, budget, pages and characters of chunks."""
    last_start, last_end = -1, 0
    for piece in pieces:
        if assembled.text[piece.start : piece.end] != piece.text:
            yield f"chunk {piece.index} is not text[{piece.start}:{piece.end}]"
        if piece.start <= last_start or piece.end <= last_end:
            yield f"chunk {piece.index} does not go on behind the one before"
        if assembled.text[last_end : piece.start].strip():
            yield f"words between chunks {piece.index - 1} and {piece.index} are in none"
        allowed = config.size + tokenizer.specials
        if piece.tokens > allowed and not _is_one_grapheme(piece.text):
            yield f"chunk {piece.index} has {piece.tokens} tokens, {allowed} are allowed"
        if BAD_CHARACTERS.search(piece.text):
            yield f"chunk {piece.index} has a lone surrogate or a NUL"
        if not 1 <= piece.page_from <= piece.page_to <= max(1, assembled.page_count):
            yield f"chunk {piece.index} is on pages {piece.page_from}-{piece.page_to} of {assembled.page_count}"
        last_start, last_end = piece.start, piece.end
    if pieces and assembled.text[last_end : assembled.flow_end].strip():
        yield "words behind the last chunk are in none"


def _is_one_grapheme(text: str) -> bool:
    import regex

    return len(regex.findall(r"\X", text)) == 1


def _sizes(wanted: Mapping[str, Any], seen: Seen, config: Config) -> Iterator[str]:
    """The same text cut to other sizes and overlaps."""
    if seen.assembled is None:
        return
    tokenizer = Tokenizer.load(resolve_model(config.embed))
    asked = [{"size": size, "header_tokens": min(16, size // 2)} for size in wanted.get("chunk_sizes", ())]
    asked += [{"overlap": overlap} for overlap in wanted.get("overlaps", ())]
    for options in asked:
        cutting = config.chunk.model_copy(update=options)
        pieces = chunk(seen.assembled, cutting, tokenizer)
        told = " ".join(f"{name} {value}" for name, value in options.items())
        if not cutting.overlap:
            yield from (f"{told}: {what}" for what in spans(seen.assembled, pieces, cutting, tokenizer))
        elif any(seen.assembled.text[p.start : p.end] != p.text for p in pieces):
            yield f"{told}: a chunk is not text[start:end]"
