"""A report as one file for a browser: no script, nothing that is loaded from elsewhere."""

from html import escape

from hms.history.reports.curve import COLOURS, draw
from hms.history.reports.table import Curve, Report
from hms.history.reports.words import shown

__all__ = ["as_html"]

_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; color: #222; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .25em .8em; border-bottom: 1px solid #ddd; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: #555; }
.grid { stroke: #e4e4e4; } .legend span { margin-right: 1.2em; } .bad { color: #b00020; }
"""


def as_html(report: Report, about: str) -> str:
    """The report; about: a line that says of what and when."""
    notes = "".join(
        f"<p{'' if report.is_good else ' class=bad'}>{escape(note)}</p>" for note in report.notes
    )
    curves = "".join(draw(curve) + _legend(curve) for curve in report.curves)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(report.title)}</h1><p>{escape(about)}</p>{notes}{curves}{_table(report)}"
        "</body></html>\n"
    )


def _legend(curve: Curve) -> str:
    names = [name for name, points in curve.lines.items() if points]
    spans = (
        f'<span style="color:{COLOURS[i % len(COLOURS)]}">&#9632; {escape(name)}</span>'
        for i, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(spans)}</p>' if names else ""


def _table(report: Report) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in report.head)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in report.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(value: object) -> str:
    kind = ' class="number"' if isinstance(value, int | float) else ""
    return f"<td{kind}>{escape(shown(value))}</td>"
