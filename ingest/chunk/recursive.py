"""Greedy packing under a token budget, cut at the strongest border in the second half of the window."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ingest.chunk.context import Headers, embed_text, shorten, title_of
from ingest.chunk.graphemes import first_border, is_one, last_border, skip_space, strip_space
from ingest.chunk.layout import Layout, first_in, last_in
from ingest.chunk.tokens import Tokenizer
from ingest.config import ChunkConfig
from ingest.model import Assembled, Chunk

# A token of more code points than this is a run that the vocabulary lacks; without a bound, a megabyte is one token.
MAX_TOKEN_LENGTH = 64


def recursive(assembled: Assembled, config: ChunkConfig, tokenizer: Tokenizer) -> list[Chunk]:
    """Sections of level 1 and 2 start a chunk when the one before is half full; small ones share a chunk."""
    return list(_Walk(assembled, config, tokenizer, Layout(assembled, max_level=2)).chunks(section_fill=0.5))


def structure(assembled: Assembled, config: ChunkConfig, tokenizer: Tokenizer) -> list[Chunk]:
    """Every heading starts a chunk, however small the one before: an edit changes the chunks of its section only."""
    return list(_Walk(assembled, config, tokenizer, Layout(assembled, max_level=9)).chunks(section_fill=0.0))


class _Walk:
    """One pass over one document, from chunk start to chunk start."""

    def __init__(self, assembled: Assembled, config: ChunkConfig, tokenizer: Tokenizer, layout: Layout) -> None:
        self._doc = assembled
        self._text = assembled.text
        self._flow_end = assembled.flow_end
        self._config = config
        self._tokenizer = tokenizer
        self._layout = layout
        self._map = tokenizer.map(assembled.text[: assembled.flow_end])
        self._headers = Headers(title_of(assembled), config.header_tokens, tokenizer)
        # More than half of the body repeated would only multiply the chunks; the window's second half must be new.
        self._overlap = min(config.overlap, (config.size - config.header_tokens) // 2)
        self._section_fill = 0.5
        self._border = 0
        self._costs = {"": 0}  # tokens of each header seen

    def chunks(self, section_fill: float) -> Iterator[Chunk]:
        self._section_fill = section_fill
        index, seen = 0, skip_space(self._text, 0, self._flow_end)
        start = seen
        while seen < self._flow_end:
            chunk = self._chunk(index, start, seen)
            if chunk is None:  # the overlap left no room for the next character
                start = seen
                continue
            yield chunk
            index, previous = index + 1, start
            seen = skip_space(self._text, self._border, self._flow_end)
            start = self._overlap_start(previous, seen)

    # ------------------------------------------------------------ one chunk

    def _chunk(self, index: int, start: int, seen: int) -> Chunk | None:
        header = self._header(start)
        budget = self._config.size - self._cost(header)
        while True:
            border = self._border_of(start, seen, budget)
            if border <= seen:
                return None
            end = strip_space(self._text, start, border)
            tokens = self._count(header, start, end)
            if tokens <= self._config.size:
                break
            if is_one(self._text, start, border):  # stands alone, over budget if it must
                header = ""
                tokens = self._count(header, start, end)
                break
            budget = max(0, budget - (tokens - self._config.size))
        self._border = border
        return self._made(index, start, end, header, tokens)

    def _made(self, index: int, start: int, end: int, header: str, tokens: int) -> Chunk:
        return Chunk(
            index=index,
            start=start,
            end=end,
            text=self._text[start:end],
            page_from=self._page(start),
            page_to=self._page(end - 1),
            headings=self._layout.path_before(start) + self._layout.titles_within(start, end),
            header=header,
            tokens=tokens + self._tokenizer.specials,
            unknown_tokens=self._map.unknowns(start, end),
        )

    def _header(self, start: int) -> str:
        context = self._headers.of(self._layout.path_before(start))
        table = self._layout.table_at(start)
        if table is None or not table.header or start < table.rows[1]:
            return context
        row = shorten(table.header, self._config.size // 2, self._tokenizer)
        both = f"{context}\n{row}" if context and row else context or row
        return both if self._cost(both) <= self._config.size // 2 else row

    def _count(self, header: str, start: int, end: int) -> int:
        """Tokens of header and text: summed where that is exact, else counted on the very text that is embedded."""
        if self._is_exact(start, end):
            return self._map.count(start, end) + self._cost(header)
        return self._tokenizer.count(embed_text(header, self._text[start:end]))

    def _cost(self, header: str) -> int:
        if header not in self._costs:
            self._costs[header] = self._tokenizer.count(header)
        return self._costs[header]

    def _is_exact(self, start: int, end: int) -> bool:
        text = self._text
        before = start == 0 or text[start - 1] in " \n"
        behind = end >= self._flow_end or text[end] in " \n"
        return self._tokenizer.is_additive and before and behind and not self._map.is_rough(start, end)

    def _page(self, at: int) -> int:
        pages = self._doc.pages
        return pages[max(0, bisect_right(self._doc.page_starts, at) - 1)] if pages else 1

    # ------------------------------------------------------------ where it ends

    def _border_of(self, start: int, seen: int, budget: int) -> int:
        """Where the chunk that starts at ``start`` ends; behind ``seen``, which the chunk before has reached."""
        layout, end = self._layout, self._flow_end
        if budget <= 0:  # not one token fits: one character, whatever it costs
            return last_border(self._text, start, start)
        limit = min(self._map.after(start, budget, end), start + self._config.size * MAX_TOKEN_LENGTH)
        limit = skip_space(self._text, limit, end) if limit > start else limit
        floor = max(seen + 1, self._map.after(start, max(1, budget // 2), end))
        section_floor = floor if self._section_fill else seen + 1
        section = first_in(layout.sections, section_floor, limit)
        if section is not None:
            return section
        if limit >= end:
            return end
        block = last_in(layout.blocks, floor, limit)
        if block is not None:
            return block
        if layout.table_at(limit) is not None:
            return self._row_border(seen, limit, start)
        found = layout.line_before(floor, limit)
        found = layout.sentence_before(floor, limit) if found is None else found
        return self._word_border(floor, limit, seen, start) if found is None else found

    def _row_border(self, seen: int, limit: int, start: int) -> int:
        """Last row start; never a header row alone, and never inside a row unless it alone is too large."""
        layout, table = self._layout, self._layout.table_at(limit)
        assert table is not None
        whole = [at for at in table.rows if at > table.body] if start < table.body else table.rows
        above = [layout.run_start(table.start), table.start]
        candidates = (last_in(whole, seen + 1, limit), *above, last_in(table.rows, seen + 1, limit))
        found = next((at for at in candidates if at is not None and at > seen), None)
        return self._word_border(seen + 1, limit, seen, start) if found is None else found

    def _word_border(self, floor: int, limit: int, seen: int, start: int) -> int:
        layout = self._layout
        at = layout.word_before(floor, limit)
        if at is None and not layout.is_unspaced(limit):
            at = layout.word_before(seen + 1, min(floor, limit))
        if at is None:
            return last_border(self._text, start, limit)
        above = layout.run_start(at)
        return above if above > seen else at

    # ------------------------------------------------------------ overlap

    def _overlap_start(self, previous: int, seen: int) -> int:
        """Where the next chunk starts: at a sentence, word or character at most ``overlap`` tokens before ``seen``."""
        if not self._overlap or seen >= self._flow_end:
            return seen
        low = max(self._map.before(seen, self._overlap), self._layout.overlap_floor(seen), previous + 1)
        if low >= seen:
            return seen
        found = self._layout.sentence_after(low, seen)
        found = self._layout.word_after(low, seen) if found is None else found
        found = first_border(self._text, previous, low) if found is None else found
        found = skip_space(self._text, found, seen)
        return found if previous < found < seen else seen
