"""What each address of hms web answers.

/livez  /readyz  /healthz       from the node's state file, without asking the node
/metrics                        sums over all destinations; of a machine that stands by what it has
/metrics/destinations           a series for each destination whose name matches ?name=PATTERN
"""

import gzip
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from hms.boot.monitoring.families import (
    CONTENT_TYPE,
    OPENMETRICS_TYPE,
    SERIES_OF_A_PLACE,
    down_text,
    exposition,
    standby_text,
)
from hms.boot.monitoring.health import Health
from hms.boot.web.http_server import Answer, Request
from hms.boot.web.node_link import NodeLink
from hms.errors.tree import HmsError
from hms.wire.operations import ROWS_MAX

__all__ = ["Site"]

NAMES_MAX = 1000
GZIP_FROM = 1400
GONE = ("down", "failed", "starting", "recovering")
"""It takes no connections; to find that out would take as long as a connection may."""
STANDBY = "standby"
JSON_TYPE = "application/json"
NOTHING: Mapping[str, Any] = {"node": "", "replica": "", "version": "", "store": ""}


class Site:
    """handle() in any thread. health: of the node, now; names: patterns of destinations that
    /metrics shows too; series_max: the most series of one answer; figures: of the process of this
    machine while it stands by."""

    def __init__(
        self,
        node: str,
        health: Callable[[], Health],
        link: NodeLink,
        names: str = "",
        series_max: int = 20_000,
        console: Callable[[Request], Answer | None] = lambda _: None,
        figures: Callable[[], Mapping[str, Any]] = lambda: NOTHING,
    ) -> None:
        self._node = node
        self._health = health
        self._link = link
        self._names = names
        self._series_max = series_max
        self._console = console
        self._figures = figures
        self._routes: dict[str, Callable[[Request], Answer]] = {
            "/livez": self._live,
            "/readyz": self._ready,
            "/healthz": self._details,
            "/metrics": self._metrics,
            "/metrics/destinations": self._destinations,
        }

    def handle(self, request: Request) -> Answer:
        """The answer to a request."""
        route = self._routes.get(request.path)
        if route is None:
            page = self._console(request)
            if page is not None:
                return page
            return Answer(b"there is no such page\n", status=HTTPStatus.NOT_FOUND)
        if request.method != "GET":
            return Answer(b"only GET\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
        return route(request)

    def _live(self, _: Request) -> Answer:
        health = self._health()
        return _judged(health.is_live, health.text)

    def _ready(self, request: Request) -> Answer:
        health = self._health()
        if request.argument("for") == "producers":
            return _judged(health.is_ready_for_producers, health.text_for_producers)
        return _judged(health.is_ready, health.text)

    def _details(self, _: Request) -> Answer:
        health = self._health()
        status = HTTPStatus.OK if health.is_live else HTTPStatus.SERVICE_UNAVAILABLE
        text = json.dumps(health.details(), indent=1).encode() + b"\n"
        return Answer(text, JSON_TYPE, status)

    def _metrics(self, request: Request) -> Answer:
        return self._exposed(request, self._names)

    def _destinations(self, request: Request) -> Answer:
        names = " ".join(request.arguments.get("name", ["*"]))
        if len(names) > NAMES_MAX:
            text = f"name has more than {NAMES_MAX} characters\n".encode()
            return Answer(text, status=HTTPStatus.BAD_REQUEST)
        return self._exposed(request, names, is_of_places=True)

    def _exposed(self, request: Request, names: str, *, is_of_places: bool = False) -> Answer:
        is_open = "application/openmetrics-text" in request.headers.get("accept", "")
        kind = OPENMETRICS_TYPE if is_open else CONTENT_TYPE
        state = self._health().state
        limit = min(self._series_max // SERIES_OF_A_PLACE, ROWS_MAX)
        if state == STANDBY:  # who is asked for the node's figures is the one that leads
            about = standby_text(self._figures(), is_open=is_open, is_of_places=is_of_places)
            return Answer(about.encode(), kind)
        if state in GONE:
            return Answer(down_text(self._node, state, is_open=is_open).encode(), kind)
        try:
            said: dict[str, Any] = self._link.ask("metrics.show", names=names, limit=limit)
        except HmsError:
            return Answer(down_text(self._node, state, is_open=is_open).encode(), kind)
        text = exposition(
            said, series_max=self._series_max, is_open=is_open, is_of_places=is_of_places
        )
        data, headers = text.encode(), {"Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", "") and len(data) > GZIP_FROM:
            data = gzip.compress(data, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        return Answer(data, kind, headers=headers)


def _judged(is_good: bool, text: str) -> Answer:
    status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(f"{text}\n".encode(), status=status)
