"""Sending exactly once: a task that is tried again, or a whole run, sends nothing twice (F-D9).

The messages of a part are cut into chunks, the same ones at every attempt. A chunk is one
transaction, in a session of its own, of a client whose secret is made of run and part. The
session's number is the chunk's, the number of its only commit is drawn from what the chunk holds.
The node remembers the last commit of each client and session, also over a crash, and tells it when
the session is opened: 0 for a chunk to be sent, the very number for one that is done. Any other
says that the rows came in another order, or are others, than at the attempt before; then nothing is
passed over silently. An attempt that still runs loses its connection to the newer one.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from types import TracebackType
from typing import NamedTuple, Self

import hms
from hms.client.connection import Connection
from hms.client.core.link import Link
from hms.client.opening_steps import Opening
from hms.client.session import Session
from hms.client.session_state import SessionState
from hms.constants import AckMode
from hms.errors.catalogue import CommitInDoubt, ConnectionLost, SinkError, TransactionRolledBack
from hms.errors.tree import HmsError
from hms.wire.structures import CloseSession, OpenSession

__all__ = ["CHUNK_BYTES", "CHUNK_ROWS", "ExactSender", "Outgoing", "Sent", "client_secret"]

CHUNK_ROWS = 4096
CHUNK_BYTES = 8 * 1024 * 1024
ATTEMPTS_MAX = 10
"""So often in a row a chunk is tried when its transaction is lost with the connection."""
_FIRST_SESSION = 1 << 31
"""Numbers from here on are given to nothing else of a connection."""

Destination = hms.Queue | hms.Topic


class Outgoing(NamedTuple):
    """A message, where it goes, and all that it consists of."""

    destination: Destination
    message: hms.Message
    content: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a part: rows confirmed now, rows confirmed by an attempt before, chunks."""

    rows: int = 0
    repeated: int = 0
    chunks: int = 0


def client_secret(run_id: str, part: int) -> bytes:
    """The secret by which a part of a run is known to the node, in its next attempt as well."""
    return blake2b(f"{run_id}\0{part}".encode(), digest_size=16).digest()


class ExactSender:
    """Sends the messages of one part of a run; leaving its block disconnects."""

    def __init__(
        self,
        address: str,
        run_id: str,
        part: int,
        *,
        client_name: str = "hms history",
        chunk_rows: int = CHUNK_ROWS,
        chunk_bytes: int = CHUNK_BYTES,
        persistent: bool = True,
        ttl_s: float = 0,
    ) -> None:
        self._address, self._name = address, client_name
        self._run_id, self._part = run_id, part
        self._rows_max, self._bytes_max = chunk_rows, chunk_bytes
        self._persistent, self._ttl_s = persistent, ttl_s
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(is_good=kind is None)

    def send(
        self, messages: Iterable[Outgoing], on_chunk: Callable[[int], object] | None = None
    ) -> Sent:
        """Send what is not sent yet; every message is confirmed when this returns.

        on_chunk is called with the size of each chunk behind its confirmation. SinkError when an
        attempt before had other messages, and what the node refuses.
        """
        sent = repeated = chunks = 0
        for chunk in self._chunks(messages):
            chunks += 1
            if self._send(chunks, chunk):
                sent += len(chunk)
            else:
                repeated += len(chunk)
            if on_chunk is not None:
                on_chunk(len(chunk))
        return Sent(sent, repeated, chunks)

    def _chunks(self, messages: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
        """Cut by number and size alone, so that every attempt cuts alike."""
        chunk: list[Outgoing] = []
        size = 0
        for one in messages:
            more = sum(map(len, one.content))
            if chunk and (len(chunk) == self._rows_max or size + more > self._bytes_max):
                yield chunk
                chunk, size = [], 0
            chunk.append(one)
            size += more
        if chunk:
            yield chunk

    def _send(self, index: int, chunk: list[Outgoing]) -> bool:
        """One transaction, tried again when it is lost; False for a chunk that was done before."""
        number = _number_of(chunk)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return self._try(index, number, chunk)
            except (TransactionRolledBack, ConnectionLost, CommitInDoubt):
                if attempt == ATTEMPTS_MAX:
                    raise
                self._close(is_good=False)
        raise AssertionError

    def _try(self, index: int, number: int, chunk: list[Outgoing]) -> bool:
        session = _open_session(self._connected(), _FIRST_SESSION + index)
        state = session.state
        assert isinstance(state, _ChunkState)
        if state.last_commit:
            session.close()
            self._check_alike(index, state.last_commit, number)
            return False
        state.number_commit(number)
        for destination, messages in _by_destination(chunk).items():
            producer = session.producer(destination, persistent=self._persistent, ttl_s=self._ttl_s)
            producer.send_many(messages)
        session.commit()
        session.close()
        return True

    def _check_alike(self, index: int, before: int, number: int) -> None:
        if before == number:
            return
        detail = (
            f"part {self._part} of run {self._run_id} has been sent before with other rows, or "
        )
        detail += f"in another order (chunk {index}); sort the frame, or give the run another id"
        raise SinkError(detail=detail)

    def _connected(self) -> Connection:
        """The connection, made for the first chunk: a part without rows needs none."""
        if self._connection is None:
            secret = client_secret(self._run_id, self._part)
            connection = Connection(self._address, client_name=self._name, client_secret=secret)
            self._connection = connection.open()
        return self._connection

    def _close(self, *, is_good: bool) -> None:
        """Disconnect; behind a failure, what that says is of no interest any more."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if is_good:
            connection.close()
            return
        with suppress(HmsError):
            connection.close()


def _number_of(chunk: list[Outgoing]) -> int:
    """A number drawn from all that a chunk holds."""
    digest = blake2b(digest_size=4)
    for one in chunk:
        parts = (f"{one.destination.kind}:{one.destination.name}".encode(), *one.content)
        digest.update(b"".join(len(part).to_bytes(4, "little") for part in parts))
        for part in parts:
            digest.update(part)
    return int.from_bytes(digest.digest(), "little") or 1


def _by_destination(chunk: list[Outgoing]) -> dict[Destination, list[hms.Message]]:
    found: dict[Destination, list[hms.Message]] = {}
    for one in chunk:
        found.setdefault(one.destination, []).append(one.message)
    return found


class _ChunkState(SessionState):
    """A session that has the number of its chunk, and commits under a number of its content."""

    def __init__(self, link: Link, number: int) -> None:
        super().__init__(link, AckMode.AUTO, is_transacted=True, is_asynchronous=False)
        self.number = number
        self.opening = OpenSession(number, int(AckMode.AUTO), is_transacted=True)

    def number_commit(self, number: int) -> None:
        """The next commit has this number."""
        self._commits = number - 1


def _open_session(connection: Connection, number: int) -> Session:
    with connection.lock:
        state = _ChunkState(connection.link, number)
        opening = Opening(state.open(), state.forget, CloseSession(number))
        connection.flush()
    connection.run(opening.granted(connection.requests))
    return Session(connection, state, is_asynchronous=False)
