"""The past in the console: what happened to a message or at a destination, and replays.

The history is read in this process, without Spark, newest first, and for a few seconds at most: a
page that did not see all of it says so, and with which command the rest is read. A user who
may browse a place may see what happened there; the node is asked for each place.
"""

import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import hms
from hms.boot.web.console_orders import Refused
from hms.boot.web.console_sessions import ConsoleSession
from hms.boot.web.http_server import Request
from hms.boot.web.markup import alert, button, choice, field, form, link, table, text, typed
from hms.boot.web.page_group import PageGroup, Shown
from hms.engine.settings import REPLAY_QUEUE
from hms.errors.catalogue import DestinationNotFound, InvalidArgument, NotAuthorized
from hms.errors.tree import HmsError
from hms.history.ledger import Entry
from hms.history.replay import check, source_name, wanted_options
from hms.history.scan import PathName
from hms.history.scope import parse_scope
from hms.history.trace import Step, ids_of_trace, last_steps, parse_ids
from hms.history.wanted import Wanted

__all__ = ["History", "HistoryPlace"]

STEPS_MAX = 200
IDS_MAX = 50
RUNS_MAX = 100
SEARCH_S = 5.0
WAIT_S = 5.0
ANY_QUEUE = "queue:*"


@dataclass(frozen=True, slots=True)
class HistoryPlace:
    """Where the history of a node is. path: of its store, now; address: of the node; config: a
    configuration whose first node it is, None where there is none."""

    path: Callable[[], PathName]
    address: str
    config: Path | None = None

    def words(self, *, with_node: bool = False) -> list[str]:
        """How a command is told that it is meant. with_node: one that sends to the node, too."""
        if self.config is not None:
            return ["--config", str(self.config.absolute())]
        node = ["--connect", self.address] if with_node else []
        return [*node, "--path", str(self.path())]


class History:
    """clock: seconds that run evenly."""

    def __init__(self, place: HistoryPlace, clock: Callable[[], float] = time.monotonic) -> None:
        self._place = place
        self._clock = clock
        self._search = threading.Lock()
        self.group = PageGroup({"/history": self._history, "/replay": self._replay})

    # what happened

    def _history(self, request: Request, session: ConsoleSession) -> Shown:
        given = {
            name: request.argument(name).strip()
            for name in ("id", "destination", "from", "to", "trace")
        }
        asked = [
            field("id", "Message ids", given["id"]),
            field("destination", "Destination, such as queue:orders", given["destination"]),
            field("from", "From (UTC), such as 2026-05-01T08:00", given["from"]),
            field("to", "Until", given["to"]),
            field("trace", "Trace id, or traceparent", given["trace"]),
            button("Search"),
        ]
        parts: list[Any] = [
            form("/history", asked, {}, "get"),
            text(link("/replay", "Replay messages of the past")),
        ]
        if any(given[name] for name in ("id", "destination", "trace")):
            try:
                parts += self._found(given, request, session)
            except HmsError as error:
                parts.append(alert(error))
        elif given["from"] or given["to"]:
            parts.append(alert("Say which messages, or which destination."))
        return "History", parts

    def _found(
        self, given: dict[str, str], request: Request, session: ConsoleSession
    ) -> Iterator[Any]:
        options = {name: given[name] for name in ("destination", "from", "to") if given[name]}
        scope = parse_scope(options)
        ids = parse_ids(given["id"].replace(",", " ").split())
        if len(ids) > IDS_MAX:
            raise InvalidArgument(what="id", detail=f"the console takes at most {IDS_MAX}")
        path = self._place.path()
        with self._searching(request) as is_over:
            is_whole = True
            if given["trace"]:
                ids |= ids_of_trace(path, given["trace"], scope, is_over)
                is_whole = not is_over()
            steps: list[Step] = []
            if ids or not given["trace"]:
                wanted = replace(scope, message_ids=ids)
                steps, is_all = last_steps(path, wanted, STEPS_MAX, is_over)
                is_whole &= is_all
        seen = _Sight(session)
        rows = [_row(step) for step in steps if seen.of(step)]
        if not is_whole:
            yield alert(
                f"Only the newest part of the history was read, for {SEARCH_S:g} seconds. Say a "
                "time, or read all of it on the node's machine:"
            )
            yield typed(self._trace_command(given))
        if seen.hidden:
            yield text(
                f"What happened at {seen.hidden} places that you may not browse is left out."
            )
        caption = f"The last {len(rows)}" if len(steps) == STEPS_MAX else f"{len(rows)} events"
        yield table(rows, caption, "The history knows nothing of it.")

    @contextmanager
    def _searching(self, request: Request) -> Iterator[Callable[[], bool]]:
        """One search at a time; gives what says that its time is over."""
        if not self._search.acquire(timeout=WAIT_S):
            raise Refused("Another search goes on. Try again soon.")
        try:
            request.take_time(4 * SEARCH_S)
            until_s = self._clock() + SEARCH_S
            yield lambda: self._clock() >= until_s
        finally:
            self._search.release()

    def _trace_command(self, given: dict[str, str]) -> str:
        words = ["hms", "history", "trace", *given["id"].replace(",", " ").split()]
        words += ["--traceparent", given["trace"]] if given["trace"] else []
        if not (given["id"] or given["trace"]):
            words += ["ID"]
        words += [w for name in ("from", "to") if given[name] for w in (f"--{name}", given[name])]
        return shlex.join([*words, *self._place.words()])

    # replays

    def _replay(self, request: Request, session: ConsoleSession) -> Shown:
        given = {
            name: request.argument(name).strip()
            for name in ("destination", "into", "from", "to", "selector", "rate", "run")
        }
        takes_copies = request.argument("copies") == "yes"
        asked = [
            field("destination", "Were sent to", given["destination"], is_needed=True),
            field("into", "Go into", given["into"], is_needed=True),
            field("from", "From (UTC), such as 2026-05-01T08:00", given["from"]),
            field("to", "Until", given["to"]),
            field("selector", "Selector", given["selector"]),
            field("rate", "Messages a second", given["rate"]),
            field("run", "Name of the run", given["run"]),
            choice("copies", "Also what a replay had brought", is_chosen=takes_copies),
            button("Show the commands"),
        ]
        parts: list[Any] = [form("/replay", asked, {}, "get")]
        if given["destination"] or given["into"]:
            try:
                parts += self._commands(given, takes_copies=takes_copies)
            except HmsError as error:
                parts.append(alert(error))
        parts += self._runs(session)
        return "Replay", parts

    def _commands(self, given: dict[str, str], *, takes_copies: bool) -> Iterator[Any]:
        """Checked as the command does, before anybody types them."""
        if not (given["destination"] and given["into"]):
            raise InvalidArgument(what="destination and into", detail="both are needed")
        options = wanted_options(
            given["destination"], given["from"], given["to"], given["selector"]
        )
        Wanted(given["into"], options, takes_copies, given["run"])
        _check_rate(given["rate"])
        check(source_name(self._place.path()), options)
        words = ["hms", "history", "replay"]
        for name in ("destination", "into", "from", "to", "selector"):
            words += [f"--{name}", given[name]] if given[name] else []
        words += ["--copies"] if takes_copies else []
        more = [] if not given["rate"] else ["--rate", given["rate"]]
        more += ["--run-id", given["run"]] if given["run"] else []
        yield text("On the node's machine. This counts what would be sent, and sends nothing:")
        yield typed(shlex.join([*words, *self._place.words(with_node=True), "--dry-run"]))
        yield text("This sends it, each message once; the same command again goes on:")
        yield typed(shlex.join([*words, *more, *self._place.words(with_node=True)]))

    def _runs(self, session: ConsoleSession) -> Iterator[Any]:
        """What the node knows of replays and imports, as far as the user may browse it."""
        try:
            with session.connection() as connection, connection.session() as opened:
                browser = opened.browser(hms.Queue(REPLAY_QUEUE))
                with browser:
                    entries = [Entry.of(message) for message in islice(browser, RUNS_MAX)]
        except DestinationNotFound:
            entries = []
        except NotAuthorized as error:
            yield text(f"The runs are not shown: {error}")
            return
        rows = [
            {
                "run": one.run,
                "state": "complete" if one.is_done else "open",
                "into": one.meant.get("into", ""),
                "sent": one.sent,
                "next": one.next_offset,
                "ends before": one.until_offset,
            }
            for one in sorted(entries, key=lambda one: one.run)
        ]
        yield table(rows, "Runs of replays and imports", "No replay into this node is known.")


class _Sight:
    """What a user may see of the past: what happened at places that he may browse."""

    def __init__(self, session: ConsoleSession) -> None:
        self._session = session
        self._known: dict[str, bool] = {}

    @property
    def hidden(self) -> int:
        """So many places were left out."""
        return sum(not is_seen for is_seen in self._known.values())

    def of(self, step: Step) -> bool:
        """Whether this step is shown."""
        kind, _, name = step.destination.partition(":")
        place = f"retained:{name}" if kind == "topic" else f"queue:{name}"
        place = ANY_QUEUE if "?" in (kind, name) else place
        if place not in self._known:
            self._known[place] = self._may_browse(place)
        return self._known[place]

    def _may_browse(self, place: str) -> bool:
        try:
            with self._session.connection() as connection:
                asked = {"place": place, "limit": 1, "is_dry": True}
                connection.administer("message.list", asked)
        except NotAuthorized:
            return False
        except (DestinationNotFound, InvalidArgument):  # it is gone: that was said after the rest
            return True
        return True


def _row(step: Step) -> dict[str, Any]:
    at = datetime.fromtimestamp(step.time_ms / 1000, UTC).isoformat(" ", "milliseconds")
    return {
        "time (UTC)": at.partition("+")[0],
        "event": step.event,
        "message": link("/history", step.message_id, id=step.message_id),
        "destination": step.destination,
        "subscription": step.subscription,
        "cause": step.cause,
        "transaction": step.transaction,
        "audit": step.operation or "",
    }


def _check_rate(given: str) -> None:
    try:
        is_rate = not given or 0 < float(given) < float("inf")
    except ValueError:
        is_rate = False
    if not is_rate:
        raise InvalidArgument(what="rate", detail=f"{given!r} is no number of messages a second")
