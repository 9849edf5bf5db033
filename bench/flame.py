"""Samples of stacks as a ranked table and as a flame graph in SVG."""

import html
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Frame", "graph", "ranked", "read", "tree"]

_WIDTH = 1600
_ROW = 17
_NARROW = 0.8
_COLOURS = ("#e4572e", "#f08a4b", "#f3a712", "#d8973c", "#c8553d")


@dataclass
class Frame:
    """A function where it was called, and how many samples were in it or in what it called."""

    name: str
    count: int = 0
    own: int = 0
    inner: "dict[str, Frame]" = field(default_factory=dict)


def read(path: Path) -> Counter[tuple[str, ...]]:
    """Stacks, outermost first, with their samples: a line is "a;b;c 12"."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in path.read_text(encoding="utf-8").splitlines():
        stack, _, count = line.rpartition(" ")
        found[tuple(stack.split(";"))] += int(count)
    return found


def tree(stacks: Counter[tuple[str, ...]]) -> Frame:
    """All stacks in one."""
    root = Frame("all")
    for stack, count in stacks.items():
        at = root
        at.count += count
        for name in stack:
            at = at.inner.setdefault(name, Frame(name))
            at.count += count
        at.own += count
    return root


def ranked(stacks: Counter[tuple[str, ...]], most: int = 30) -> list[tuple[str, float, float]]:
    """(function, its own share, share with what it calls), by its own share."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for stack, count in stacks.items():
        own[stack[-1]] += count
        for name in set(stack):
            whole[name] += count
    total = sum(own.values()) or 1
    return [(name, n / total, whole[name] / total) for name, n in own.most_common(most)]


def graph(root: Frame, title: str) -> str:
    """The flame graph; a rectangle tells its share when the mouse rests on it."""
    shapes: list[str] = []
    deepest = _draw(root, 0.0, float(_WIDTH), 0, root.count or 1, shapes)
    height = (deepest + 3) * _ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
    style = "<style>text{font:11px monospace}rect{stroke:#fff}</style>"
    name = f'<text x="4" y="{_ROW - 4}">{html.escape(title)}</text>'
    return "\n".join([f'{head}viewBox="0 0 {_WIDTH} {height}">', style, name, *shapes, "</svg>"])


def _draw(frame: Frame, x: float, width: float, depth: int, total: int, shapes: list[str]) -> int:
    y = (depth + 1) * _ROW
    share = f"{frame.count / total:.1%}"
    text = html.escape(frame.name)
    colour = _COLOURS[sum(frame.name.encode()) % len(_COLOURS)]
    shown = html.escape(frame.name[: int(width / 7)]) if width > 2 * _ROW else ""
    shapes.append(
        f'<g><title>{text} {share}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" '
        f'height="{_ROW}" fill="{colour}"/><text x="{x + 3:.1f}" y="{y + 12}">{shown}</text></g>'
    )
    deepest, at = depth, x
    for inner in sorted(frame.inner.values(), key=lambda one: one.name):
        part = width * inner.count / (frame.count or 1)
        if part >= _NARROW:
            deepest = max(deepest, _draw(inner, at, part, depth + 1, total, shapes))
        at += part
    return deepest
