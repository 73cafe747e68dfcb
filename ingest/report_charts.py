"""Charts of the run report as inline SVG: no script, nothing from outside, colours that all eyes tell apart."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from ingest.observe import duration

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 30
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
LINES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
STATES = {
    "ready": "#009e73", "partial": "#e69f00", "failed": "#d55e00", "unsupported": "#cc79a7", "needs_review": "#f0c000",
    "superseded": "#8aa0b0", "deleted": "#5c6b78",
}  # fmt: skip
ON_THE_WAY = "#56b4e9"
GAP = 10  # between two bands of the flow


@dataclass(frozen=True, slots=True)
class Line:
    """A named series of (x, y)."""

    name: str
    points: Sequence[tuple[float, float]]


def state_colour(state: str) -> str:
    """The colour of a document's state; one for all that are on their way."""
    return STATES.get(state, ON_THE_WAY)


# ---------------------------------------------------------------- flow


def flow(states: Mapping[str, int]) -> str:
    """From all documents on the left a band to each state on the right, as wide as it is large."""
    total = sum(states.values())
    shown = [(state, number) for state, number in states.items() if number]
    height = max(90, min(260, 26 * len(shown) + 40))
    room = height - 20 - GAP * max(0, len(shown) - 1)
    sizes = _heights([number for _, number in shown], room)
    parts, left, right = [], (height - sum(sizes)) / 2, 10.0
    for (state, number), size in zip(shown, sizes, strict=True):
        parts.append(_band(state, number, total, (left, right, size)))
        left, right = left + size, right + size + GAP
    source = f'<rect x="0" y="{(height - sum(sizes)) / 2:.1f}" width="8" height="{sum(sizes):.1f}" class="ink"/>'
    label = f'<text x="16" y="{height / 2:.1f}" class="strong">{total:,} documents</text>'
    return _svg(height, f"{total:,} documents by state", [*parts, source, label])


def _heights(numbers: Sequence[int], room: float) -> list[float]:
    """Heights in proportion, none below 5, so that a single failed document among a million is seen."""
    total = sum(numbers) or 1
    raw = [max(5.0, number / total * room) for number in numbers]
    return [size * room / sum(raw) for size in raw]


def _band(state: str, number: int, total: int, place: tuple[float, float, float]) -> str:
    left, right, size = place
    colour, middle = state_colour(state), 300
    path = (
        f"M8,{left:.1f} C{middle},{left:.1f} {middle},{right:.1f} 520,{right:.1f} L520,{right + size:.1f} "
        f"C{middle},{right + size:.1f} {middle},{left + size:.1f} 8,{left + size:.1f} Z"
    )
    text = f"{escape(state.replace('_', ' '))} {number:,} ({number / total:.1%})"
    return (
        f'<path d="{path}" fill="{colour}" fill-opacity=".55"><title>{text}</title></path>'
        f'<rect x="520" y="{right:.1f}" width="8" height="{size:.1f}" fill="{colour}"/>'
        f'<text x="536" y="{right + size / 2 + 4:.1f}">{text}</text>'
    )


# ---------------------------------------------------------------- lines and bars


def lines(series: Sequence[Line], unit: str) -> str:
    """Lines over seconds since the run began, with a legend; ``unit`` names the y axis."""
    points = [point for line in series for point in line.points]
    if len(points) < 2:
        return '<p class="none">The run was too short to draw this.</p>'
    x_top, y_top = max(x for x, _ in points), _nice(max(y for _, y in points))
    drawn = [
        _polyline(line, LINES[n % len(LINES)], x_top or 1.0, y_top) + _legend(n, line.name, LINES[n % len(LINES)])
        for n, line in enumerate(series)
    ]
    ticks = [(x_top * part / 4, duration(x_top * part / 4)) for part in range(5)]
    return _svg(HEIGHT, f"{unit} over time", [*_axes(y_top, unit), *_x_ticks(ticks, x_top or 1.0), *drawn])


def _polyline(line: Line, colour: str, x_top: float, y_top: float) -> str:
    places = " ".join(
        f"{LEFT + x / x_top * PLOT_WIDTH:.1f},{TOP + (1 - y / y_top) * PLOT_HEIGHT:.1f}" for x, y in line.points
    )
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-linejoin="round"/>'


def _legend(number: int, name: str, colour: str) -> str:
    x = LEFT + 10 + number * 165
    return f'<rect x="{x}" y="2" width="12" height="4" fill="{colour}"/><text x="{x + 18}" y="8">{escape(name)}</text>'


def bars(sizes: Mapping[int, int], limit: int, unit: str) -> str:
    """A histogram: bin start → number, with a mark at ``limit``."""
    if not sizes:
        return '<p class="none">No chunk was cut in this run.</p>'
    starts = sorted(sizes)
    width = min((b - a for a, b in itertools.pairwise(starts)), default=16)
    x_top, y_top = max(limit, starts[-1] + width) * 1.02, _nice(max(sizes.values()))
    scale = PLOT_WIDTH / x_top
    drawn = [
        f'<rect x="{LEFT + start * scale + 0.5:.1f}" y="{TOP + (1 - sizes[start] / y_top) * PLOT_HEIGHT:.1f}" '
        f'width="{max(1.0, width * scale - 1):.1f}" height="{sizes[start] / y_top * PLOT_HEIGHT:.1f}" '
        f'fill="{LINES[0]}"><title>{start} to {start + width - 1} {unit}: {sizes[start]:,} chunks</title></rect>'
        for start in starts
    ]
    at = LEFT + limit * scale
    mark = (
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{TOP + PLOT_HEIGHT}" class="mark"/>'
        f'<text x="{at - 4:.1f}" y="{TOP + 8}" text-anchor="end">limit {limit}</text>'
    )
    step = _nice(x_top / 6)
    ticks = [(n * step, f"{n * step:g}") for n in range(int(x_top / step) + 1)]
    return _svg(HEIGHT, f"chunks by {unit}", [*_axes(y_top, "chunks"), *_x_ticks(ticks, x_top), *drawn, mark])


def _axes(y_top: float, unit: str) -> list[str]:
    rows = []
    for part in range(5):
        y = TOP + (1 - part / 4) * PLOT_HEIGHT
        rows.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        rows.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{y_top * part / 4:,.4g}</text>')
    middle = TOP + PLOT_HEIGHT / 2
    return [
        *rows,
        f'<text x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">{escape(unit)}</text>',
    ]


def _x_ticks(ticks: Sequence[tuple[float, str]], x_top: float) -> list[str]:
    y, places = HEIGHT - BOTTOM + 18, [LEFT + x / x_top * PLOT_WIDTH for x, _ in ticks]
    anchors = ["end" if place > WIDTH - 2 * RIGHT else "middle" for place in places]
    return [
        f'<text x="{place:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
        for place, anchor, (_, text) in zip(places, anchors, ticks, strict=True)
    ]


def _nice(value: float) -> float:
    """The next of 1, 2, 4 or 8 times a power of ten, so that quarters of it read well."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next((step * power for step in (1, 2, 4, 8) if step * power >= value), 10 * power * ceil(0.1))


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
