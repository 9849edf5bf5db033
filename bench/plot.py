"""A line plot in SVG: sizes on a logarithmic axis, or minutes on an even one, cost relative to the
first above."""

import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["plot"]

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 190, 50, 50
_COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7d4e9f", "#b8860b")
_BAND = 1.2
"""What counts as flat."""

_PARTS = 6
_DOTS_MAX = 20
Points = Sequence[tuple[float, float]]


class _Scale:
    """From values to places in the picture."""

    def __init__(self, lines: Mapping[str, Points], *, is_even: bool) -> None:
        every = [point for points in lines.values() for point in points]
        self._is_even = is_even
        self._last = max(x for x, _ in every)
        self._decades = max(1.0, math.log10(self._last))
        self.most = max(2.0, math.ceil(max(y for _, y in every) * 1.1))

    def x(self, value: float) -> float:
        """Across."""
        part = value / self._last if self._is_even else math.log10(value) / self._decades
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    @property
    def marks(self) -> list[int]:
        """What is written below the axis across."""
        if self._is_even:
            return [round(self._last * part / _PARTS) for part in range(_PARTS + 1)]
        return [10**decade for decade in range(int(self._decades) + 1)]

    def y(self, value: float) -> float:
        """Down."""
        return _HEIGHT - _BOTTOM - value / self.most * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{escape(text)}</text>'


def _axes(scale: _Scale) -> list[str]:
    shapes = []
    right = _WIDTH - _RIGHT
    for mark in scale.marks:
        x = scale.x(mark)
        shapes.append(f'<line x1="{x:.0f}" y1="{_TOP}" x2="{x:.0f}" y2="{scale.y(0):.0f}"/>')
        shapes.append(_text(x, scale.y(0) + 18, f"{mark:,}", 'text-anchor="middle"'))
    for step in range(int(scale.most) + 1):
        y = scale.y(step)
        shapes.append(f'<line x1="{_LEFT}" y1="{y:.0f}" x2="{right}" y2="{y:.0f}"/>')
        shapes.append(_text(_LEFT - 8, y + 4, f"{step} x", 'text-anchor="end"'))
    height = scale.y(1 / _BAND) - scale.y(_BAND)
    shapes.append(
        f'<rect x="{_LEFT}" y="{scale.y(_BAND):.0f}" width="{right - _LEFT}" '
        f'height="{height:.0f}" fill="#3a7d44" opacity="0.12"/>'
    )
    return shapes


def _line(scale: _Scale, points: Points, colour: str) -> list[str]:
    places = [(scale.x(x), scale.y(y)) for x, y in points]
    joined = " ".join(f"{x:.0f},{y:.0f}" for x, y in places)
    if len(places) > _DOTS_MAX:
        places = []
    dots = [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3.5" fill="{colour}"/>' for x, y in places]
    return [f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def plot(lines: Mapping[str, Points], title: str, *, is_even: bool = False) -> str:
    """The picture; the band shows what is within 20 %; is_even: across it is not logarithmic."""
    scale = _Scale(lines, is_even=is_even)
    shapes = [_text(_LEFT, 26, title, 'font-weight="bold"'), *_axes(scale)]
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        shapes += _line(scale, points, colour)
        at = _TOP + 20 * (number + 1)
        shapes.append(_text(_WIDTH - _RIGHT + 16, at, name, f'fill="{colour}"'))
    style = "<style>text{font:12px sans-serif}line{stroke:#ddd}</style>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    back = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    return "\n".join([head, style, back, *shapes, "</svg>"]) + "\n"
