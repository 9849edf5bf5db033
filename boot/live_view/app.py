"""The view: a head of figures, a page of rows, and keys. One question to the node a second.

A page that needs an answer beside the figures, such as the consumers of a destination, takes turns
with them. Questions run in threads of their own, one at a time, so that a node that does not answer
neither stops the keys nor keeps the view from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import Any, ClassVar, TypeVar

import click
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input, Static

from hms.boot.live_view.dialogs import Help, Question
from hms.boot.live_view.pages import PAGES, Row, destination_lines, in_order, place_of
from hms.boot.live_view.recorder import Recorder
from hms.boot.live_view.sources import Source
from hms.boot.monitoring.rates import COLUMNS, WIDTH, Rates, filled, head_of, plain
from hms.errors.catalogue import NotAuthorized
from hms.errors.tree import HmsError

__all__ = ["LiveView"]

ROWS_MAX = 200
"""Drawn each second; the filter finds the others."""
PAUSABLE = ("queue", "topic")
_T = TypeVar("_T")


class LiveView(App[None]):
    """source: what is asked; record: a file to write from the beginning, None for none."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head, #status, #keys, #empty { height: auto; width: 100%; }
    #keys { dock: bottom; height: 1; color: $text-muted; }
    #status { color: $text-accent; }
    #rows { height: 1fr; scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0; }
    #names { display: none; dock: bottom; height: 3; }
    #names.is-open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", "sort"),
        Binding("i", "turn", "order"),
        Binding("slash", "filter", "filter"),
        Binding("escape", "leave", "back"),
        Binding("v", "page('services')", "services"),
        Binding("c", "page('cluster')", "cluster"),
        Binding("a", "page('alerts')", "alerts"),
        Binding("d", "page('destinations')", "destinations"),
        Binding("p", "pause", "pause"),
        Binding("space", "freeze", "freeze"),
        Binding("w", "record", "record"),
        Binding("question_mark", "help", "keys"),
    ]

    def __init__(
        self,
        source: Source,
        *,
        every_s: float = 1.0,
        names: str = "*",
        sort: str = "messages",
        record: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__()
        self._source = source
        self._every_s = every_s
        self.names = names
        self.sort = sort
        self.is_turned = False
        self.is_frozen = False
        self.page = "destinations"
        self.opened = ""
        """Key of the row of the destination that is open."""
        self.message = ""
        self._is_lost = False
        """The message says that the node does not answer; its next answer takes it away."""
        self._folder = folder or Path()
        self._recorder = Recorder(record)
        self._rates = Rates()
        self._said: dict[str, Any] | None = None
        self._view: dict[str, Any] | None = None
        self._beside: Any = None
        """The last answer to what the page asks beside the figures."""
        self._refusal = ""
        """Why the page is not answered; it is not asked again, as each refusal is audited."""
        self._is_turn_of_page = False
        self._is_asking = asyncio.Lock()
        self._columns_of = ""
        self._cursors: dict[str, str] = {}
        """Key of the row under the cursor, by page."""

    def compose(self) -> ComposeResult:
        """Head, page, keys."""
        yield Static("", id="head", markup=False)
        yield Static("", id="status", markup=False)
        yield DataTable[Text](id="rows", cursor_type="row", cell_padding=0)
        yield Static("", id="empty", markup=False)
        yield Static(_KEYS_LINE, id="keys", markup=False)
        yield Input(placeholder="destinations, such as orders*", id="names")

    def on_mount(self) -> None:
        """The first look at once."""
        self.query_one("#rows").focus()
        self.set_interval(self._every_s, self._tick)
        self._tick()
        self._draw()

    def on_unmount(self) -> None:
        """What was recorded is whole; a question that hangs is left to itself."""
        self._recorder.end()
        if not self._is_asking.locked():
            self._source.close()

    # asking

    def _tick(self) -> None:
        if not self.is_frozen and not self._is_asking.locked():
            self.run_worker(self._look(), exit_on_error=True)

    async def _look(self) -> None:
        async with self._is_asking:
            try:
                if self._wants_page() and self._is_turn_of_page:
                    self._is_turn_of_page = False
                    await self._look_beside()
                else:
                    self._is_turn_of_page = True
                    await self._look_at_figures()
            except HmsError as fault:
                self.message, self._is_lost = fault.describe(is_shell=True), True
            except click.ClickException as fault:
                self.is_frozen, self.message = True, fault.message
            except OSError as fault:
                self.message = f"nothing is recorded any more: {fault.strerror}"
        self._draw()

    async def _look_at_figures(self) -> None:
        said = await _in_background(lambda: self._source.look(self.names))
        if said is None:
            self.is_frozen, self.message = True, "the recording ends here"
            return
        if self._view is None or self._is_lost:
            self.message, self._is_lost = "", False
        self._said, view = said, self._rates.view(said)
        self._view = view or self._view
        self._recorder.note(said)

    def _wants_page(self) -> bool:
        if not PAGES[self.page].verb or self._refusal or not self._source.is_node:
            return False
        return self.page != "destination" or self.opened.partition(":")[0] in PAUSABLE

    async def _look_beside(self) -> None:
        page, opened = self.page, self.opened
        arguments = {"destination": opened} if page == "destination" else {}
        try:
            said = await _in_background(lambda: self._source.ask(PAGES[page].verb, **arguments))
        except (NotAuthorized, HmsError) as fault:
            if (page, opened) == (self.page, self.opened):
                self._refusal = fault.describe(is_shell=True)
            return
        if (page, opened) == (self.page, self.opened):
            self._beside = said

    # keys

    def action_sort(self, by: int) -> None:
        """By another column."""
        self.sort = COLUMNS[(COLUMNS.index(self.sort) + by) % len(COLUMNS)]
        self._draw()

    def action_turn(self) -> None:
        """The smallest first."""
        self.is_turned = not self.is_turned
        self._draw()

    def action_filter(self) -> None:
        """Ask for the names."""
        field = self.query_one("#names", Input)
        field.value = self.names
        field.add_class("is-open")
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The names were typed."""
        self.names = event.value.strip() or "*"
        self._close_filter()
        self._tick()
        self._draw()

    def _close_filter(self) -> None:
        self.query_one("#names").remove_class("is-open")
        self.query_one("#rows").focus()

    def action_leave(self) -> None:
        """Out of the filter or a page."""
        if self.query_one("#names").has_class("is-open"):
            self._close_filter()
        else:
            self.action_page("destinations")

    def action_page(self, name: str, opened: str = "") -> None:
        """Another page; what it asks for comes with the next look."""
        self.page, self.opened = name, opened
        self._beside, self._refusal, self.message = None, "", ""
        self._is_turn_of_page = True
        self._draw()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter: the destination under the cursor."""
        if self.page == "destinations" and event.row_key.value:
            self.action_page("destination", event.row_key.value)

    def action_freeze(self) -> None:
        """Ask nothing, and keep what is shown."""
        self.is_frozen = not self.is_frozen
        self.message = ""
        self._draw()

    def action_record(self) -> None:
        """Begin a recording, or end it."""
        if self._recorder.is_on:
            path = self._recorder.path
            self._recorder.end()
            self.message = f"recorded: hms top --play {path}"
        elif self._said is None:
            self.message = "there is nothing to record yet"
        else:
            name = f"hms-top-{self._said['node']}-{self._said['now_ms']}.jsonl"
            try:
                self._recorder.begin(self._folder / name)
                self.message = ""
            except OSError as fault:
                self.message = f"{fault.filename}: {fault.strerror}"
        self._draw()

    def action_help(self) -> None:
        """The keys."""
        self.push_screen(Help())

    def action_pause(self) -> None:
        """Pause the destination, or resume it, after a question."""
        row = place_of(self._said, self._chosen()) if self._said else None
        if not self._source.is_node:
            self.message = "a recording takes no orders"
        elif row is None:
            self.message = "choose a queue or a topic first"
        elif row["kind"] not in PAUSABLE or row["destination"].endswith("*"):
            self.message = "queues and topics can be paused, each by its own name"
        else:
            self.push_screen(Question(_question(row)), lambda is_yes: self._order(row, is_yes))
        self._draw()

    def _chosen(self) -> str:
        if self.page == "destination":
            return self.opened
        table = self._table()
        if self.page != "destinations" or not table.row_count:
            return ""
        return self._key_at(table)

    def _order(self, row: dict[str, Any], is_yes: bool | None) -> None:
        if is_yes:
            self.run_worker(self._pause(row), exit_on_error=True)

    async def _pause(self, row: dict[str, Any]) -> None:
        word = "resume" if row["paused"] else "pause"
        name, verb = row["destination"], f"{row['kind']}.{word}"
        async with self._is_asking:
            try:
                await _in_background(lambda: self._source.ask(verb, name=name, what="BOTH"))
                self.message = f"{plain(name)} is {word}d"
            except HmsError as fault:
                self.message = fault.describe(is_shell=True)
        self._draw()

    # drawing

    def _draw(self) -> None:
        if not self.is_running or not self.screen_stack:
            return
        base = self.screen_stack[0]
        base.query_one("#head", Static).update("\n".join(self._head()))
        base.query_one("#status", Static).update("\n".join(self._status()))
        page = PAGES[self.page]
        rows = [] if self._view is None else page.rows(self._sorted(self._view), self._beside)
        self._fill(rows[:ROWS_MAX])
        empty = base.query_one("#empty", Static)
        empty.display = not rows
        empty.update("\n".join(wrap(plain(self._missing()), WIDTH)))

    def _missing(self) -> str:
        page = PAGES[self.page]
        if self._refusal or self._view is None:
            return self._refusal or "the rates of two looks come"
        if page.verb and not self._source.is_node:
            return "a recording has the figures alone"
        if self.page == "destination" and not self._wants_page():
            return "its consumers are those of its queue or topic"
        if page.verb and self._beside is None:
            return "the node is asked" if not self.is_frozen else "frozen: the node is not asked"
        return page.empty

    def _sorted(self, view: dict[str, Any]) -> dict[str, Any]:
        rows = in_order(view["destinations"], self.sort, is_turned=self.is_turned)
        return {**view, "destinations": rows}

    def _head(self) -> list[str]:
        if self._view is None or self._said is None:
            return ["hms top"]
        if self.page != "destination":
            return head_of(self._view)
        row = place_of(self._said, self.opened)
        if row is None:
            return [plain(f"{self.opened} is not among the destinations that are shown")[:WIDTH]]
        return destination_lines(row, self._said["now_ms"])

    def _status(self) -> list[str]:
        order = "smallest first" if self.is_turned else "largest first"
        if self.sort in ("destination", "kind"):
            order = "from z to a" if self.is_turned else "from a to z"
        parts = [PAGES[self.page].title]
        if self.page == "destinations":
            parts += [f"by {self.sort}, {order}", plain(f"names {self.names}")[:40]]
            left_out = self._said["left_out"] if self._said else 0
            parts += [f"{left_out} more left out: filter"] if left_out else []
        parts += ["FROZEN"] if self.is_frozen else []
        parts += [f"recording to {self._recorder.path}"] if self._recorder.is_on else []
        lines = filled(parts)
        lines += wrap(plain(self.message), WIDTH)
        return [plain(line)[:WIDTH] for line in lines]

    def _table(self) -> "DataTable[Text]":
        return self.screen_stack[0].query_one("#rows", DataTable)

    def _fill(self, rows: list[Row]) -> None:
        """The rows of the page; the cursor stays on its row, wherever that is now."""
        table = self._table()
        if table.row_count:
            self._cursors[self._columns_of] = self._key_at(table)
        kept = self._cursors.get(self.page, "")
        if self._columns_of == self.page:
            table.clear()
        else:
            self._columns_of = self.page
            table.clear(columns=True)
            for title, width in PAGES[self.page].columns:
                table.add_column(Text(title), width=width)
        drawn = set[str]()
        for row in rows:
            pairs = zip(row.cells, PAGES[self.page].columns, strict=True)
            cells = (_cell(text, width) for text, (_, width) in pairs)
            table.add_row(*cells, key=None if row.key in drawn else row.key)
            drawn.add(row.key)
        at = next((n for n, row in enumerate(rows) if row.key == kept), 0)
        if rows:
            table.move_cursor(row=at)

    @staticmethod
    def _key_at(table: "DataTable[Text]") -> str:
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or ""


def _question(row: dict[str, Any]) -> str:
    name = f"{row['kind']} {plain(row['destination'])}"
    if row["paused"]:
        return f"Resume {name}? It is paused: {row['paused']}."
    return f"Pause {name}? Sends to it wait, then fail; consumers get nothing."


def _cell(text: str, width: int) -> Text:
    """Cut so that a blank stands before the next column; a name neither colours nor moves it."""
    said = plain(text)
    return Text(said if len(said) < width else said[: width - 2] + "~", no_wrap=True)


async def _in_background(work: Callable[[], _T]) -> _T:
    """What work gives. Its thread does not keep the process from ending, as those of a pool do."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(value: Any, fault: BaseException | None) -> None:
        if done.cancelled():
            return
        if fault is None:
            done.set_result(value)
        else:
            done.set_exception(fault)

    def run() -> None:
        value, fault = None, None
        try:
            value = work()
        except BaseException as raised:  # noqa: BLE001 - told where it is waited for
            fault = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, fault)

    threading.Thread(target=run, name="hms-top", daemon=True).start()
    return await done


_KEYS_LINE = "s sort  / filter  Enter open  p pause  Space freeze  w record  v c a d  ? keys"
