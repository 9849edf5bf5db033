"""Pages of the console about what the node was told: hms.conf with its defaults and where each
value stands, and what is other in the security file than what the node obeys.

Neither shows a secret: hms.conf names where one is, and of the security file the node tells digests
of those that differ. What a server's processes are given as variables may be anything, and is
hidden.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hms.boot.check import header
from hms.boot.config import sections_of, values_of
from hms.boot.counts import counted
from hms.boot.entries import Config
from hms.boot.locate import Parsed
from hms.boot.sections import Entry, Section
from hms.boot.web.console_orders import Form, Order
from hms.boot.web.console_pages import Shown
from hms.boot.web.http_server import Request
from hms.boot.web.markup import Html, button, field, form, join, link, shown, table
from hms.boot.web.node_place import NodePlace
from hms.errors.catalogue import ConfigError, NotSupported, SecurityFileError

__all__ = ["ConfigurationPages"]

ROWS = 100
DIGITS_MAX = 6
HIDDEN = "***"
_PASSWORD = re.compile(r"(://[^/@:\s]*):[^/@\s]*@")
_FROM_NODE = ("BOOT", "redelivery_limit", "redelivery_delay_s", "dead_letter", "expired_to")
"""What a queue or topic that does not say it has from its node."""
_SECRET = "secret "  # noqa: S105 - what a digest in place of one begins with
Path = tuple[str, ...]


class ConfigurationPages:
    """place: of the node; clock: seconds since 1970."""

    def __init__(self, place: NodePlace, clock: Callable[[], float] = time.time) -> None:
        self._place, self._clock = place, clock
        self.pages = {"/configuration": self._configuration, "/policy": _policy}
        self.orders: Mapping[str, Order] = {
            "reload_policy": Order("Reload", _preview_reload, _reload, lambda _: "/policy")
        }

    def _configuration(self, connection: Any, request: Request, _token: str) -> Shown:
        uptime_s = connection.administer("status").get("uptime_s", 0)
        try:
            config, file = self._place.read()
        except ConfigError as error:
            return "Configuration", [_faults("The node does not boot with this file", error)]
        wanted = request.argument("section")
        if wanted:
            return self._section(config, file, wanted)
        part, first = request.argument("name"), _number(request, "from")
        found = [one for one in _headers(config) if part in header(one[0])]
        rows = [
            {
                "section": link("/configuration", header(path), section=header(path)),
                "stands in": _line(file, path),
                "keys set": len(_given(file, path)),
            }
            for path, _, _ in found[first : first + ROWS]
        ]
        find = form("/configuration", [field("name", "Name has", part), button("Find")], {}, "get")
        caption = f"{len(rows)} of {counted(len(found), 'section')} of {self._place.path}"
        parts = [*self._is_changed(uptime_s), find, table(rows, caption, "No such section.")]
        if first + ROWS < len(found):
            further = {"name": part, "from": str(first + ROWS)}
            parts.append(Html(f"<p>{link('/configuration', 'Further sections', **further)}</p>"))
        security = link("/policy", "The security file")
        return "Configuration", [Html(f"<p>{security}</p>"), *parts]

    def _is_changed(self, uptime_s: float) -> list[Html]:
        """Whether the node works by what stood there before."""
        began_s = self._clock() - uptime_s
        if self._place.path.stat().st_mtime <= began_s:
            return []
        text = "The file was changed after the node had read it: it holds from the next boot on."
        return [Html(f'<p class="bad">{text}</p>')]

    def _section(self, config: Config, file: Parsed, wanted: str) -> Shown:
        back = Html(f"<p>{link('/configuration', 'All sections')}</p>")
        found = next((one for one in _headers(config) if header(one[0]) == wanted), None)
        if found is None:
            return "Configuration", [back, Html("<p>There is no such section.</p>")]
        path, section, entry = found
        given, of_node = _given(file, path), _of_node(config, section)
        rows = [
            {
                "key": name,
                "value": _written(name, value),
                "from": _source(file, path, name, given, of_node),
            }
            for name, value in values_of(config, section, entry).items()
        ]
        return wanted, [back, table(rows, wanted, "It has no keys.")]


def _headers(config: Config) -> Iterator[tuple[Path, Section, Entry]]:
    for section, name, entry in sections_of(config):
        yield (*section.path, name) if name else section.path, section, entry


def _given(file: Parsed, path: Path) -> Mapping[str, Any]:
    """The keys that the file itself has there."""
    found: Any = file.data
    for word in path:
        found = found.get(word, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _line(file: Parsed, path: Path) -> str:
    return f"line {file.line_of(path)}" if _given(file, path) else "defaults"


def _of_node(config: Config, section: Section) -> Path:
    """The section of the node that decides what a destination does not; () where none does."""
    is_place = section.path in (("hms", "queue"), ("hms", "topic"))
    return ("node", config.node().name) if is_place and len(config.nodes) == 1 else ()


def _source(file: Parsed, path: Path, name: str, given: Mapping[str, Any], of_node: Path) -> str:
    if name in given:
        return f"line {file.line_of((*path, name))}"
    if of_node and name in _FROM_NODE and name in _given(file, of_node):
        return f"line {file.line_of((*of_node, name))}, of the node"
    return "default"


def _written(name: str, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_written(name, one) for one in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if name == "environment":
        return f"{text.partition('=')[0]}={HIDDEN}"
    return _PASSWORD.sub(rf"\1:{HIDDEN}@", text)


def _policy(connection: Any, _request: Request, token: str) -> Shown:
    title = "The security file"
    reload = form("/order", [button("Reload", "reload_policy")], {"token": token})
    try:
        said = connection.administer("security.diff")
    except NotSupported:
        return title, [Html("<p>This node is open: it has no security file.</p>")]
    except SecurityFileError as error:
        return title, [_faults("What held before holds; the file cannot be taken over", error)]
    versions = f"The file has version {said['file']}, the node obeys version {said['running']}."
    parts: list[Any] = [Html(f"<p>{versions}</p>")]
    if said["rejected"]:
        parts.append(Html(f'<p class="bad">Not taken over: {shown(said["rejected"])}</p>'))
    rows = [_difference(one) for one in said["differences"]]
    caption = f"{len(rows)} of {counted(said['count'], 'difference')}"
    return title, [*parts, reload, table(rows, caption, "Nothing is other.")]


def _difference(row: Mapping[str, Any]) -> dict[str, Any]:
    where = ".".join(part for part in (row["section"], row.get("key", "")) if part)
    if "is" in row:
        told: Any = row["is"]
    elif "added" in row:
        parts = [f"+ {one}" for one in row["added"]] + [f"- {one}" for one in row["removed"]]
        told = "; ".join(parts) or "in another order"
    elif _is_secret(row["running"]) or _is_secret(row["file"]):
        told = "set" if row["running"] is None else "taken away"
        told = "another one" if None not in (row["running"], row["file"]) else told
    else:
        values = ("default" if one is None else one for one in (row["running"], row["file"]))
        told = " -> ".join(map(str, values))
    return {"where": where, "in the file": told}


def _is_secret(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_SECRET)


def _preview_reload(connection: Any, _given: Form) -> str:
    said = connection.administer("security.diff")
    return (
        f"The node takes version {said['file']} of the file over, in place of {said['running']}: "
        f"{counted(said['count'], 'difference')}; what is not allowed any more is closed."
    )


def _reload(connection: Any, _given: Form) -> str:
    said = connection.administer("security.reload")
    changed = ", ".join(said["changed"][:ROWS]) or "nothing is other"
    closed = f"; {said['closed']} closed" if said["closed"] else ""
    return f"Version {said['version']} holds: {changed}{closed}."


def _faults(title: str, error: ConfigError | SecurityFileError) -> Html:
    """Each fault of a file, with its line."""
    lines: Sequence[str] = str(error.fields.get("report", error)).splitlines()
    listed = join(Html(f"<li>{shown(line)}</li>") for line in lines[:ROWS])
    return Html(f'<p class="bad" role="alert">{shown(title)}:</p><ul>{listed}</ul>')


def _number(request: Request, name: str) -> int:
    text = request.argument(name)
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_number else 0
