"""The report of a run as one page that stands alone: it needs no server, no script and nothing from outside."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from ingest.model import Branch
from ingest.observe import duration
from ingest.report_charts import Line, bars, flow, lines, state_colour
from ingest.state import Sample

EXAMPLES = 5  # failed units shown for each reason
OUTCOMES = {"ready": "ready", "partial": "partial", "failed": "failed"}

STYLE = """
:root { --ink: #1b2126; --soft: #5c6b78; --line: #dfe4e8; --paper: #ffffff; --card: #f6f8f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaed; --soft: #98a5b0; --line: #303a42; --paper: #14191d; --card: #1c2328; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 32px 24px 64px; max-width: 860px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 26px; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 17px; margin: 36px 0 8px; }
h3 { font-size: 15px; margin: 18px 0 2px; }
.soft, .none { color: var(--soft); } .none { font-style: italic; }
.outcome { color: #fff; border-radius: 4px; padding: 1px 10px; font-size: 18px; vertical-align: 4px; }
.facts { display: flex; flex-wrap: wrap; gap: 8px; margin: 16px 0; }
.fact { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 8px 14px; }
.fact b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; }
td:first-child, th:first-child { text-align: left; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; display: block; } svg text { font-size: 11px; fill: var(--soft); }
svg .strong { font-size: 13px; fill: var(--ink); font-weight: 600; } svg .ink { fill: var(--ink); }
svg .grid { stroke: var(--line); } svg .mark { stroke: #d55e00; stroke-dasharray: 4 3; }
code { background: var(--card); border: 1px solid var(--line); border-radius: 4px; padding: 1px 6px;
  font-size: 13px; overflow-wrap: anywhere; }
.warning { border-left: 4px solid #e69f00; padding: 4px 12px; margin: 8px 0; background: var(--card); }
.error { border-left-color: #d55e00; } ul { margin: 4px 0; padding-left: 20px; } li { overflow-wrap: anywhere; }
@media print { body { padding: 0; max-width: none; } h2 { break-after: avoid; } svg, table { break-inside: avoid; } }
"""


def page(report: Mapping[str, Any], samples: Sequence[Sample], sizes: Mapping[int, int], limit: int) -> str:
    """The whole page. ``sizes`` are chunks by tokens (start of a bin), ``limit`` the tokens a chunk may have."""
    body = [
        *_head(report),
        *_section("Documents by state", _flow(report)),
        *_section("Rates over time", lines(rates(samples), "per second")),
        *_section("Bulk requests: window and 429s", lines(throttle(samples), "requests · items")),
        *_section("Failures", "".join(_failures(report)) or '<p class="none">Nothing failed.</p>'),
        *_section("Stages", _stages(report)),
        *_section("Chunks", _pairs(report["chunks"])),
        *_section("Chunk sizes in tokens", bars(sizes, limit, "tokens")),
        *_section("Slowest to parse", _slowest(report)),
        *_section("Segments by engine", _segments(report)),
        *_section("Other facts", _other(report)),
    ]
    title = escape(f"{report['verb']} {report['run_id']}: {report['outcome']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _section(title: str, content: str) -> Iterator[str]:
    yield f"<section><h2>{escape(title)}</h2>{content}</section>"


def _head(r: Mapping[str, Any]) -> Iterator[str]:
    colour = state_colour(OUTCOMES.get(r["outcome"], "failed"))
    yield (
        f'<header><h1>{escape(r["run_id"])} <span class="outcome" style="background:{colour}">'
        f"{escape(r['outcome'])}</span></h1>"
        f'<p class="soft">{escape(r["verb"])} · index {escape(r["generation"] or "none")} · '
        f"alias {escape(r['alias'])} · configuration {escape(r['config'])} · exit code {r['exit_code']}</p></header>"
    )
    if r["error"]:
        yield f'<p class="warning error">Stopped: {escape(r["error"])}</p>'
    yield from (f'<p class="warning">{escape(line)}</p>' for line in r["warnings"])
    facts = {
        "wall time": duration(r["wall_s"]),
        "documents worked on": f"{r['documents_touched']:,}",
        "pages parsed": f"{r['pages']:,}",
        "chunks written": f"{r['chunks']['written']:,}",
        "chunks expected": f"{r['chunks']['expected']:,}",
    }
    cells = "".join(f'<div class="fact"><b>{value}</b>{name}</div>' for name, value in facts.items())
    yield f'<div class="facts">{cells}</div>'


def _flow(r: Mapping[str, Any]) -> str:
    return flow(r["documents"]) if any(r["documents"].values()) else '<p class="none">No document is known.</p>'


# ---------------------------------------------------------------- over time


def rates(samples: Sequence[Sample]) -> list[Line]:
    """Pages parsed, chunks embedded and chunks indexed per second, between each two samples."""
    names = {"pages parsed": "parse.pages", "chunks embedded": "embed.chunks", "chunks indexed": "index.chunks"}
    return [Line(name, _per_second(samples, key)) for name, key in names.items()]


def _per_second(samples: Sequence[Sample], key: str) -> list[tuple[float, float]]:
    return [
        (late.at - samples[0].at, max(0.0, _of(late, key) - _of(early, key)) / (late.at - early.at))
        for early, late in itertools.pairwise(samples)
        if late.at > early.at
    ]


def throttle(samples: Sequence[Sample]) -> list[Line]:
    """The window, and the items that came back with 429 since the sample before."""
    refused = "index.retries.throttled"
    window = [(s.at - samples[0].at, _of(s, "now.index.window")) for s in samples]
    items = [
        (late.at - samples[0].at, max(0.0, _of(late, refused) - _of(early, refused)))
        for early, late in itertools.pairwise(samples)
    ]
    return [Line("window, requests", window), Line("429, items", items)]


def _of(sample: Sample, key: str) -> float:
    return float(sample.values.get(key, 0.0))


# ---------------------------------------------------------------- tables


def _failures(r: Mapping[str, Any]) -> Iterator[str]:
    """Grouped by reason, the most frequent first, with examples and the command that runs them again."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in r["failures"]:
        groups[row["reason"]].append(row)
    if r["branches"]:
        yield f'<p class="soft">Documents by branch: {escape(_words(r["branches"]))}</p>'
    for reason, rows in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        sentence, again = rows[0]["sentence"].split(" (")[0], _again(reason, rows[0]["branch"])
        yield f'<h3>{escape(reason)} <span class="soft">{escape(rows[0]["branch"])}, {len(rows):,} units</span></h3>'
        yield f"<p>{escape(sentence)}{again}</p><ul>"
        yield from (f"<li>{escape(row['key'])}{escape(_place(row))}</li>" for row in rows[:EXAMPLES])
        if len(rows) > EXAMPLES:
            yield f'<li class="soft">… and {len(rows) - EXAMPLES:,} more in the JSON report</li>'
        yield "</ul>"


def _again(reason: str, branch: str) -> str:
    """The command that runs these again; what is poison waits for another version of the document."""
    if branch == Branch.POISON:
        return ""
    states = " --state needs_review,partial" if branch == Branch.HUMAN else ""
    return f" Run again: <code>ingest redrive --reason {escape(reason)}{states}</code>"


def _place(row: Mapping[str, Any]) -> str:
    if row["unit"] == "chunk":
        return f", chunk {row['chunk_id'][:12]}"
    if row["unit"] == "document":
        return ""
    first, last = row["page_from"], row["page_to"]
    return f", page {first}" if first == last else f", pages {first}–{last}"


def _stages(r: Mapping[str, Any]) -> str:
    head = ["stage", "calls", "units", "busy s", "per busy s", "per wall s"]
    rows = []
    for stage, row in r["stages"].items():
        unit = next(name for name in row if name not in ("calls", "seconds", "per_busy_second", "per_wall_second"))
        cells = [f"{row['calls']:,.0f}", f"{row[unit]:,.0f} {unit}", f"{row['seconds']:,.1f}"]
        rows.append([stage, *cells, f"{row['per_busy_second']:,.1f}", f"{row['per_wall_second']:,.1f}"])
    return _table(head, rows)


def _slowest(r: Mapping[str, Any]) -> str:
    if not r["slowest"]:
        return '<p class="none">Nothing was parsed.</p>'
    rows = [[row["key"], f"{row['seconds']:,.1f}", f"{row['pages']:,}", f"{row['chunks']:,}"] for row in r["slowest"]]
    return _table(["document", "seconds", "pages", "chunks"], rows)


def _segments(r: Mapping[str, Any]) -> str:
    rows = [[engine, state, f"{n:,}"] for engine, by in r["segments"].items() for state, n in by.items()]
    return _table(["engine", "state", "segments"], rows) if rows else '<p class="none">No segment is known.</p>'


def _other(r: Mapping[str, Any]) -> str:
    groups = ("embed_calls", "bulk_items", "bulk_retries", "throttle", "peaks", "blocks", "skipped")
    facts = {f"{group} {name}": value for group in groups for name, value in r[group].items()}
    return _pairs({**facts, "repairs": r["repairs"], "access_changed": r["access_changed"]})


def _pairs(values: Mapping[str, Any]) -> str:
    return _table(["", ""], [[name.replace("_", " "), f"{value:,}"] for name, value in values.items()])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.items())
