"""A line plot in SVG: sizes on a logarithmic axis, or minutes on an even one, cost relative to the
first above. matplotlib draws it, which the extra bench has."""

import argparse
import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["picture_file", "plot"]

_BAND = 1.2
"""What counts as flat."""
_DOTS_MAX = 20
Points = Sequence[tuple[float, float]]


def picture_file(text: str) -> Path:
    """The option of a picture, refused before an hour of measuring where nothing could draw it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("needs matplotlib: pip install '.[bench]'")
    return Path(text)


def plot(lines: Mapping[str, Points], title: str, *, is_even: bool = False) -> str:
    """The picture; the band shows what is within 20 %; is_even: across it is not logarithmic."""
    from matplotlib import rc_context  # noqa: PLC0415 - only for who wants a picture
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "axes.grid": True}):
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.subplots()
        for name, points in lines.items():
            axes.plot(*zip(*points, strict=True), ".-"[len(points) > _DOTS_MAX :], label=name)
        axes.axhspan(1 / _BAND, _BAND, color="green", alpha=0.12)
        axes.set_xscale("linear" if is_even else "log")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:g} x")
        axes.set_title(title)
        figure.legend(loc="outside right upper", frameon=False)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()
