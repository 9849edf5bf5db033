"""The ledger of a run: how far it has come, kept where its messages go.

A run has one message in the queue HMS.REPLAY of the node that takes its messages. It is taken and
written anew in the very transaction that sends them. So whatever dies at whatever moment, what the
message says is what the node has: nothing is sent twice, and nothing is left out. The client's
secret follows from the run: a process that resumes a run takes over the connection of one that
still lives, and that one's transaction is rolled back before the ledger is read.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import hms
from hms.client.connection import Connection
from hms.client.profiles.profiled import tool_connection
from hms.engine.settings import REPLAY_QUEUE
from hms.errors.catalogue import HistoryError, ReplayConflict, RequestTimeout
from hms.errors.tree import HmsError
from hms.history.sink_link import client_secret

__all__ = ["Connect", "Entry", "Ledger", "forget_run", "known_runs", "open_ledger"]

PATIENCE_S = 30.0
RUN_PROPERTY = "run"


@dataclass(frozen=True, slots=True)
class Entry:
    """How far a run has come: of the history up to next_offset everything is sent, and the run ends
    before until_offset. meant: what it was begun with; store, boot: who wrote what stands before
    until_offset, see Writer."""

    run: str
    source: str
    meant: dict[str, str] = field(default_factory=dict)
    next_offset: int = 0
    until_offset: int = 0
    sent: int = 0
    copies: int = 0
    unmarked: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    is_done: bool = False
    store: str = ""
    boot: str = ""
    files: int = 0

    @classmethod
    def of(cls, message: hms.Message) -> Self:
        """The entry that a message of the queue holds."""
        try:
            return cls(**json.loads(message.body))
        except (TypeError, ValueError) as fault:
            detail = f"message {message.message_id} in {REPLAY_QUEUE} is none of a replay: {fault}"
            raise HistoryError(detail=detail) from fault

    def message(self) -> hms.Message:
        """The message that holds the entry."""
        return hms.Message.text(json.dumps(asdict(self)), {RUN_PROPERTY: self.run})

    def check(self, source: str, meant: dict[str, str]) -> None:
        """ReplayConflict unless the run was begun with the same."""
        known, now = {"source": self.source, **self.meant}, {"source": source, **meant}
        for name in sorted(known.keys() | now.keys()):
            was, wanted = known.get(name, "nothing"), now.get(name, "nothing")
            if was != wanted:
                raise ReplayConflict(run=self.run, what=name, was=was, now=wanted)


class Ledger:
    """The entry of one run, and the transaction in which it is carried on."""

    def __init__(self, connection: Connection, run: str) -> None:
        # The first thing that is opened: the node keeps commits by the session's number too.
        self.session = connection.session(transacted=True)
        self._run = run
        self._producer = self.session.producer(hms.Queue(REPLAY_QUEUE))
        self._consumer: hms.Consumer | None = None
        self._is_known = False

    def read(self) -> Entry | None:
        """What is known of the run; None for a new one. To be asked first, and once."""
        assert self._consumer is None, "what is out to the consumer cannot be browsed"
        queue, selector = hms.Queue(REPLAY_QUEUE), _selector(self._run)
        with self.session.browser(queue, selector) as browser:
            entries = [Entry.of(message) for message in browser]
        assert len(entries) <= 1, "one message for each run"
        self._consumer = self.session.consumer(queue, selector=selector, prefetch=1)
        self._is_known = bool(entries)
        return entries[0] if entries else None

    def note(self, entry: Entry) -> None:
        """Write in the open transaction that the run has come so far. What was submitted before
        crosses the wire meanwhile; its confirmation is not waited for here."""
        self._take()
        self._producer.send(entry.message())

    def commit(self) -> None:
        """Make final what the session has sent, and what it has noted."""
        self.session.commit()
        self._is_known = True

    def forget(self) -> None:
        """The run is not known any more."""
        self._take()
        self.session.commit()
        self._is_known = False

    def _take(self) -> None:
        assert self._consumer is not None, "read() comes first"
        if self._is_known and self._consumer.receive(timeout_s=PATIENCE_S) is None:
            raise RequestTimeout(what=f"the ledger of run {self._run}", timeout_s=PATIENCE_S)


Connect = Callable[..., Connection]
"""Opens a connection with options of Connection."""


@contextmanager
def open_ledger(address: str, run: str, connect: Connect | None = None) -> Iterator[Ledger]:
    """The ledger of a run on a connection of its own. What is not committed is rolled back.
    connect: with another login than that of this process."""
    options: dict[str, Any] = {
        "client_name": "hms history replay",
        "client_secret": client_secret(f"replay {run}", 0),
        "reconnect": False,
    }
    connection = (
        connect(**options) if connect else tool_connection(Connection, address, **options).open()
    )
    try:
        yield Ledger(connection, run)
    except BaseException:
        with suppress(HmsError):
            connection.close()
        raise
    connection.close()


def known_runs(address: str) -> list[Entry]:
    """The runs that a node knows, in order of their names."""
    made = tool_connection(Connection, address, client_name="hms history runs")
    with made.open() as connection:
        session = connection.session()
        with session.browser(hms.Queue(REPLAY_QUEUE)) as browser:
            return sorted((Entry.of(message) for message in browser), key=lambda entry: entry.run)


def forget_run(address: str, run: str) -> Entry | None:
    """Take a run out of the ledger, so that the same command sends anew; None if it is unknown."""
    with open_ledger(address, run) as ledger:
        entry = ledger.read()
        if entry is not None:
            ledger.forget()
        return entry


def _selector(run: str) -> str:
    text = run.replace("'", "''")
    return f"{RUN_PROPERTY} = '{text}'"
