"""Curves as SVG: lines over time, drawn here, so that a report needs no library and no network."""

from collections.abc import Sequence
from html import escape

from hms.history.reports.table import Curve, Point, time_of

__all__ = ["COLOURS", "draw"]

_WIDTH, _HEIGHT = 900, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 20, 40
_ROWS, _COLUMNS = 4, 5
COLOURS = (
    *("#1b6ca8", "#c8553d", "#3a7d44", "#7d4e9f"),
    *("#b8860b", "#2a9d8f", "#6d6875", "#444444"),
)
"""Of the lines, in their order."""


class _Scale:
    """From times and values to places in the picture."""

    def __init__(self, curve: Curve) -> None:
        points = [point for line in curve.lines.values() for point in line]
        self.first, self.last = min(p[0] for p in points), max(p[0] for p in points)
        self.least = min(0.0, *(p[1] for p in points))
        self.most = max(1.0, *(p[1] for p in points))

    def x(self, ms: float) -> float:
        """Across."""
        span = max(1, self.last - self.first)
        return _LEFT + (ms - self.first) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Down."""
        share = (value - self.least) / (self.most - self.least)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def draw(curve: Curve) -> str:
    """The curve as an svg element; empty where there is nothing to draw."""
    lines = {name: points for name, points in curve.lines.items() if points}
    if not lines:
        return ""
    scale = _Scale(Curve(curve.title, curve.unit, lines))
    shapes = [*_axes(scale), _text(_LEFT, 14, f"{curve.title}, {curve.unit}", "start")]
    shapes += [
        _line(scale, points, COLOURS[i % len(COLOURS)]) for i, points in enumerate(lines.values())
    ]
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(curve.title)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join(shapes)}</svg>'


def _axes(scale: _Scale) -> list[str]:
    shapes = []
    for i in range(_ROWS + 1):
        value = scale.least + (scale.most - scale.least) * i / _ROWS
        y = scale.y(value)
        shapes.append(f'<path d="M{_LEFT} {y:.0f}H{_WIDTH - _RIGHT}" class="grid"/>')
        shapes.append(_text(_LEFT - 8, y + 4, f"{value:,.0f}", "end"))
    for i in range(_COLUMNS):
        at = scale.first + (scale.last - scale.first) * i / (_COLUMNS - 1)
        day, _, clock = time_of(round(at)).partition(" ")
        anchor = ("start", "middle", "end")[(i > 0) + (i == _COLUMNS - 1)]
        shapes.append(_text(scale.x(at), _HEIGHT - _BOTTOM + 18, clock, anchor))
        shapes.append(_text(scale.x(at), _HEIGHT - _BOTTOM + 34, day, anchor))
    return shapes


def _line(scale: _Scale, points: Sequence[Point], colour: str) -> str:
    places = " ".join(f"{scale.x(at):.1f},{scale.y(value):.1f}" for at, value in sorted(points))
    if len(points) == 1:
        x, y = places.split(",")
        return f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'
