"""Session: where producers and consumers come from, and what a transaction spans (F-B1 to F-B8)."""

from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Self

from field_buffer.catalogue import IllegalState, TransactionRolledBack
from hms.client.inbox import Inbox
from hms.client.listening import Listening
from hms.client.making import Making
from hms.client.opening import checked_kind
from hms.client.session_state import SessionState
from hms.constants import AckMode
from tpmon.client import Connection
from tpmon.link import State


class Session(Making):
    """See hms.connect(...).session(). Leaving its block closes it; a transacted one commits first,
    or rolls back when an exception leaves."""

    def __init__(
        self, connection: Connection, state: SessionState, *, is_asynchronous: bool
    ) -> None:
        self.connection = connection
        self.state = state
        self.is_asynchronous = is_asynchronous
        self.listening = Listening(self)
        with connection.lock:
            try:
                connection.answer_to(state.open())
            except BaseException:
                connection.link.participants.remove(state)
                raise

    @property
    def transacted(self) -> bool:
        """Whether its work takes effect at commit() only."""
        return self.state.is_transacted

    @property
    def ack_mode(self) -> AckMode:
        """How received messages are acknowledged."""
        return self.state.ack_mode

    # ---- transactions and acknowledgement

    def commit(self) -> None:
        """Make the transaction's sends and receipts final; TransactionRolledBack if it is lost."""
        state, connection = self.state, self.connection
        with connection.lock:
            self.check_open()
            state.must_be_transacted("commit()")
            self.wait_for_sends()
            if state.is_doomed:
                self._roll_back()
                raise TransactionRolledBack(reason="the connection was lost while it was open")
            pending = state.commit()
            if pending is None:
                return
            try:
                connection.answer_to(pending)
            finally:
                state.forget_commit()

    def rollback(self) -> None:
        """Drop the transaction's sends and give back what it received; always completes."""
        with self.connection.lock:
            self.check_open()
            self.state.must_be_transacted("rollback()")
            self._roll_back()

    def _roll_back(self) -> None:
        self.wait_for_sends(is_enough=lambda: not self.connection.is_connected)
        pending = self.state.rollback()
        if pending is not None:
            self.connection.answer_to(pending)

    def recover(self) -> None:
        """Have all that was not acknowledged delivered again, from the oldest on (F-B8)."""
        with self.connection.lock:
            self.check_open()
            self.state.must_be_transacted("recover()", wanted=False)
            pending = self.state.recover()
            if pending is not None:
                self.connection.answer_to(pending)

    def ack(self) -> None:
        """CLIENT: acknowledge all that this session has consumed so far; waits until durable."""
        with self.connection.lock:
            self.check_open()
            if self.state.ack_mode is not AckMode.CLIENT:
                raise IllegalState(what="ack()", detail="the session acknowledges by itself")
            self.state.check_nothing_lost()
            seen = [(inbox, list(inbox.seen)) for inbox in self.state.inboxes.values()]
            self._acknowledge(seen)

    def acknowledge(self, inbox: Inbox, message_id: int, *, is_upthrough: bool) -> None:
        """CLIENT: acknowledge this message, or all of its consumer that were consumed up to it."""
        with self.connection.lock:
            seen = list(inbox.seen) if is_upthrough else [message_id]
            upto = seen.index(message_id) + 1 if message_id in seen else 0
            self._acknowledge([(inbox, seen[:upto])])

    def _acknowledge(self, seen: list[tuple[Inbox, list[int]]]) -> None:
        pending = self.state.acknowledge(seen)
        if pending is not None:
            self.connection.answer_to(pending)

    # ---- its end

    def close(self) -> None:
        """Wait for confirmations, settle what was received, close; a transaction rolls back."""
        connection, state = self.connection, self.state
        self.listening.stop()
        with connection.lock:
            if state.is_closed:
                return
            self.wait_for_sends(is_enough=lambda: connection.link.state is State.ENDED)
            pending = state.close()
            connection.answer_to(pending)

    def wait_for_sends(self, is_enough: Callable[[], bool] = bool) -> None:
        """Until all of its sends have their outcome, lock held."""
        connection = self.connection
        senders = [sender for sender, _ in self.state.senders.values()]
        for sender in senders:
            sender.push()
        connection.flush()
        deadline = monotonic() + connection.request_timeout_s

        def is_settled() -> bool:
            return is_enough() or all(sender.is_idle for sender in senders)

        if not connection.wait_for(connection.link, is_settled, deadline):
            raise connection.too_late("send", connection.request_timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.state.is_transacted and not self.state.is_closed and error is None:
                self.commit()
        finally:
            self.close()


def open_session(
    connection: Connection,
    *,
    ack: AckMode = AckMode.AUTO,
    is_transacted: bool = False,
    is_xa: bool = False,
    is_asynchronous: bool = False,
) -> Session:
    """A session on any connection, also on the one of tpstart(); IllegalState, NotSupported."""
    mode = checked_kind(
        ack, is_transacted=is_transacted, is_xa=is_xa, is_asynchronous=is_asynchronous
    )
    state = SessionState(
        connection.link, mode, is_transacted=is_transacted, is_asynchronous=is_asynchronous
    )
    return Session(connection, state, is_asynchronous=is_asynchronous)
