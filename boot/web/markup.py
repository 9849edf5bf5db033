"""HTML of the console: everything that is not markup of ours is escaped, without exception."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import urlencode

__all__ = [
    "Html",
    "alert",
    "area",
    "button",
    "choice",
    "field",
    "file_form",
    "form",
    "join",
    "link",
    "page",
    "shown",
    "table",
    "text",
    "time_text",
    "typed",
]

NAVIGATION = (
    ("/", "Overview"),
    ("/destinations", "Destinations"),
    ("/letters", "Dead letters"),
    ("/topics", "Topics"),
    ("/clients", "Connections"),
    ("/services", "Services"),
    ("/transactions", "Transactions"),
    ("/schedules", "Schedules"),
    ("/history", "History"),
    ("/cluster", "Cluster"),
    ("/users", "Users"),
    ("/audit", "Audit"),
    ("/backups", "Backups"),
    ("/configuration", "Configuration"),
)


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def shown(value: Any) -> Html:
    """A value of the node, as text."""
    if isinstance(value, Html):
        return value
    text = "" if value is None else str(value)
    plain = "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
    return Html(escape(plain, quote=True))


def join(parts: Iterable[Any]) -> Html:
    """One behind the other."""
    return Html("".join(map(shown, parts)))


def link(path: str, text: Any, **arguments: Any) -> Html:
    """To a page of the console."""
    query = f"?{urlencode(arguments, doseq=True)}" if arguments else ""
    return Html(f'<a href="{escape(path + query)}">{shown(text)}</a>')


def field(name: str, said: str, value: str = "", *, is_needed: bool = False) -> Html:
    """A line to type in, with its label."""
    needed = " required" if is_needed else ""
    return Html(
        f'<label>{shown(said)} <input name="{escape(name)}" value="{shown(value)}"{needed}></label>'
    )


def area(name: str, said: str, value: str = "") -> Html:
    """Several lines to type in, with their label; a line break before them is not one of them."""
    return Html(
        f'<label class="wide">{shown(said)} <textarea name="{escape(name)}" rows="12" '
        f'spellcheck="false">\n{shown(value)}</textarea></label>'
    )


def choice(name: str, said: str, *, is_chosen: bool = False) -> Html:
    """A box to tick, with its label."""
    chosen = " checked" if is_chosen else ""
    return Html(
        f'<label class="choice"><input type="checkbox" name="{escape(name)}" value="yes"{chosen}> '
        f"{shown(said)}</label>"
    )


def text(said: Any) -> Html:
    """A paragraph."""
    return Html(f"<p>{shown(said)}</p>")


def alert(said: Any) -> Html:
    """What is wrong."""
    return Html(f'<p class="bad" role="alert">{shown(said)}</p>')


def typed(lines: Any) -> Html:
    """Lines of a terminal."""
    return Html(f"<pre>{shown(lines)}</pre>")


def button(text: str, value: str = "", path: str = "") -> Html:
    """What sends its form; path: to somewhere else than its other buttons do."""
    chosen = f' name="action" value="{escape(value)}"' if value else ""
    where = f' formaction="{escape(path)}"' if path else ""
    return Html(f"<button{chosen}{where}>{shown(text)}</button>")


def form(
    path: str, parts: Iterable[Any], hidden: Mapping[str, str | Sequence[str]], method: str = "post"
) -> Html:
    """hidden: what is sent besides; a token for every form that orders something."""
    kept = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{shown(value)}">'
        for name, values in hidden.items()
        for value in ([values] if isinstance(values, str) else values)
    )
    return Html(f'<form method="{method}" action="{escape(path)}">{kept}{join(parts)}</form>')


def file_form(path: str, said: str, parts: Iterable[Any], hidden: Mapping[str, str]) -> Html:
    """A form with a file, which comes behind everything else; said: what the file is."""
    kept = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{shown(value)}">'
        for name, value in hidden.items()
    )
    return Html(
        f'<form method="post" action="{escape(path)}" enctype="multipart/form-data">{kept}'
        f'{join(parts)}<label>{shown(said)} <input type="file" name="file" required></label>'
        f"{button('Check the file')}</form>"
    )


def table(rows: Sequence[Mapping[str, Any]], caption: str, empty: str) -> Html:
    """A row for each; the names of the columns are those of the first."""
    if not rows:
        return Html(f"<p>{shown(empty)}</p>")
    head = "".join(f'<th scope="col">{shown(name)}</th>' for name in rows[0])
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-label="{shown(name)}">{shown(cell)}</td>' for name, cell in row.items()
        )
        + "</tr>"
        for row in rows
    )
    return Html(
        f"<table><caption>{shown(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def time_text(at_ms: int) -> str:
    """A time as people write it; nothing for none."""
    if not at_ms:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def page(title: str, node: str, body: Iterable[Any], here: str = "", user: Any = "") -> bytes:
    """A whole page."""
    entries = "".join(
        f'<li><a href="{path}"{" aria-current=page" if path == here else ""}>{text}</a></li>'
        for path, text in NAVIGATION
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{shown(title)} - {shown(node)}</title>"
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/console.css"></head><body>'
        '<a class="skip" href="#main">To the content</a>'
        f'<header><p class="node">HMS {shown(node)}</p><nav aria-label="Pages"><ul>{entries}</ul>'
        f"</nav>{shown(user)}</header>"
        f'<main id="main"><h1>{shown(title)}</h1>{join(body)}</main></body></html>\n'
    ).encode()
