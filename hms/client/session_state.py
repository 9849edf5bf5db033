"""What a session is to the node, and what becomes of it over a reconnect. No socket or clock.

A lost connection takes an open transaction with it: then the session is doomed until the next
commit, which raises, or rollback. A Commit on its way when the connection was lost is in doubt
until OpenSession is answered with the number of the last commit that took effect.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from hms.client.core.link import Link, State
from hms.client.core.listener_outcomes import Reject, Retry
from hms.client.core.pending_requests import OnLoss, Pending, reason_of
from hms.client.prefetch_buffer import PrefetchBuffer
from hms.client.send_buffer import Sender, SendFrame
from hms.client.settlement import Settling
from hms.constants import AckMode
from hms.errors.catalogue import (
    AcknowledgeLost,
    CommitInDoubt,
    IllegalState,
    TransactionRolledBack,
)
from hms.errors.tree import HmsError
from hms.wire.frames import Kind
from hms.wire.structures import (
    CloseSession,
    Commit,
    OpenProducer,
    OpenSession,
    Recover,
    Request,
    Rollback,
)

OTHER_LOG = "its answer was lost, and only another log answers"
FORGOTTEN = "the node has forgotten this session: too many others have worked since"


class SessionState(Settling):
    """See the module."""

    is_xa = False

    def __init__(
        self, link: Link, ack_mode: AckMode, *, is_transacted: bool, is_asynchronous: bool
    ) -> None:
        super().__init__(link, ack_mode, is_transacted=is_transacted)
        self.number = link.new_handle()
        self.senders: dict[int, tuple[Sender, OpenProducer]] = {}
        self.asked_senders: dict[int, Sender] = {}
        self.is_closed = False
        self.is_doomed = False
        self.has_futures = False
        """Whether something was sent whose outcome a future, or its callback, is told."""
        self.failed_send: BaseException | None = None
        """Why the open transaction can only be rolled back: not all that was sent is in it."""
        self.on_end: Callable[[], None] | None = None
        self.opening = OpenSession(self.number, int(ack_mode), is_transacted, is_asynchronous)
        self.error: HmsError | None = None
        self._is_open = False
        self._commits = 0
        self._commit: _Commit | None = None
        self._in_doubt: _Commit | None = None

    # ---- open, lost, restored, closed

    def open(self) -> Pending:
        """Ask the node for the session."""
        self.link.participants.append(self)
        return self.link.request(
            self.opening, Pending("OpenSession", OnLoss.REPEAT, then=self._opened)
        )

    def _opened(self, pending: Pending) -> None:
        self._is_open, self.error = pending.error is None, pending.error
        if self.is_transacted and pending.error is None:
            # Not 0 for a client that came back under its old uid: its numbers go on.
            self._commits = int(pending.value()["last_commit"])

    @property
    def last_commit(self) -> int:
        """The number of the last commit that was asked for, or that had taken effect at opening."""
        return self._commits

    def restore(self) -> None:
        """Open again what was open; what was only being opened is still asked for."""
        if not self._is_open:
            return
        self._again(self.opening, self._restored)
        for number, (sender, opening) in self.senders.items():
            again = msgspec.structs.replace(opening, sent_before=sender.last_sequence)
            self._again(again, partial(self._sender_back, number))
        for prefetched in self.prefetch_buffers.values():
            if prefetched.is_open and prefetched.error is None:
                self._again(prefetched.opening, partial(_prefetch_buffer_back, prefetched))

    def _again(self, opening: Request, then: Callable[[Pending], None]) -> None:
        self.link.request(opening, Pending(type(opening).__name__, OnLoss.DONE, then=then))

    def _restored(self, pending: Pending) -> None:
        if not pending.is_answered:
            return
        if pending.error is not None:
            self.link.report(pending.error)
        doubtful, self._in_doubt = self._in_doubt, None
        if doubtful is None:
            return
        self.link.doubts.pop(doubtful, None)
        if pending.error is not None:
            doubtful.failed(doubtful.in_doubt(f"the session is refused: {pending.error}"))
            self.link.woken.append(doubtful)
        elif not doubtful.is_done:  # else another log answered, which knows nothing of it
            self._decide_by(doubtful, pending.value())

    def _decide_by(self, doubtful: "_Commit", said: dict[str, Any]) -> None:
        """The log that may hold the commit says how far the session has come."""
        if said.get("forgotten"):
            doubtful.failed(doubtful.in_doubt(FORGOTTEN))
            self.link.woken.append(doubtful)
        else:
            self._decide(doubtful, took_effect=int(said["last_commit"]) >= doubtful.number)

    def _decide(self, commit: "_Commit", *, took_effect: bool) -> None:
        if took_effect:
            commit.done()
        else:
            commit.failed(TransactionRolledBack(reason="the connection was lost before the commit"))
        self.link.woken.append(commit)

    def register(self, sender: Sender, opening: OpenProducer, pending: Pending) -> None:
        """OpenProducer was answered: keep it, to open it again."""
        is_wanted = self.asked_senders.pop(sender.number, None) is not None
        if pending.error is None and is_wanted:
            self.senders[sender.number] = (sender, opening)
        sender.granted(pending.error, () if pending.error else batch_of(pending))

    def _sender_back(self, number: int, pending: Pending) -> None:
        if number not in self.senders:
            return  # it was closed meanwhile
        if pending.error is not None:
            self.senders.pop(number)[0].granted(pending.error)
            self.link.report(pending.error)
        elif pending.payload:
            said = pending.value()
            sender, _ = self.senders[number]
            if "last_sequence" in said and not said.get("forgotten"):
                lost = sender.lost_of(self.link.log, int(said["last_sequence"]))
                if lost is not None:
                    self.link.report(lost)

    def lost(self, error: HmsError) -> None:  # noqa: ARG002 - whatever the reason
        """The connection took all with it that was not settled."""
        if self.link.is_drained and self.link.state is not State.ENDED:
            self._moved()
            return
        doubtful, self._in_doubt = self._in_doubt, None
        self.file_held = None
        if self._commit is not None and not self._commit.is_done:
            doubtful = self._commit
        elif self.has_work:
            self.is_doomed = self.is_transacted
        self._commit = None
        self.has_work = False
        if self.link.state is not State.ENDED:
            self._in_doubt = doubtful
            if doubtful is not None:
                self.link.doubts[doubtful] = None
        else:
            self._ended()
        self._report_lost(self.in_doubt(), "during")
        for prefetched in list(self.prefetch_buffers.values()):
            self._lost_id = max(prefetched.seen, default=self._lost_id)
            self._report_lost(prefetched.lost(), "before")
        self.forget_left()

    def _moved(self) -> None:
        """The node has all that was settled, and took nothing else: a transaction of which it has
        nothing goes on at the next primary."""
        self.file_held = None
        self.in_doubt()
        for prefetched in list(self.prefetch_buffers.values()):
            self._lost_id = max(prefetched.seen, default=self._lost_id)
            self._report_lost(prefetched.lost(), "before")
        self.forget_left()

    def drain(self) -> None:
        """The node begins nothing new; see Participant."""
        if self.is_closed:
            return
        items = self._held_back_items()
        if self.ack_mode is not AckMode.NONE:
            for prefetched in self.prefetch_buffers.values():
                items += prefetched.give_back()
        self.say(items)

    def taken_back(self, prefetched: PrefetchBuffer) -> None:
        """The node closed a consumer: what was not settled comes again, flagged. A transaction that
        has received of it is rolled back there, which its commit() tells."""
        if self.file_held is not None and self.file_held[0] is prefetched:
            self.file_held = None
        self._lost_id = max(prefetched.seen, default=self._lost_id)
        self._report_lost(self.in_doubt_of(prefetched.number), "during")
        self._report_lost(prefetched.lost(), "before")
        self.forget_left()

    def _ended(self) -> None:
        if self.on_end is not None:
            self.link.calls.append(self.on_end)

    def _report_lost(self, message_ids: Iterable[int], when: str) -> None:
        if self.is_transacted:
            return
        for message_id in message_ids:
            self.link.report(AcknowledgeLost(message_id=f"{message_id:012x}", when=when))

    def _left(self, pending: Pending) -> None:
        """CloseSession was answered, after all that was said before it is safe, or will not be."""
        if not pending.is_answered:
            self._report_lost(self.in_doubt(), "during")

    def begin_close(self) -> None:
        """Take nothing new from now on."""
        self.is_closing = True
        for prefetched in self.prefetch_buffers.values():
            prefetched.allowance = 0
        self.link.woken.append(None)

    def close(self) -> Pending:
        """Settle what was seen, and close; a transaction is rolled back."""
        self.is_closed = True
        self.file_done()
        self.settle()
        for prefetched in self.prefetch_buffers.values():
            self.give_back(prefetched)
            self.link.receivers.pop(prefetched.number, None)
        self.forget()
        pending = Pending("CloseSession", OnLoss.DONE, then=self._left)
        if self.link.state is State.UP:
            is_doubtful = any(one.has_doubts or one.unconfirmed for one in self.all_senders)
            return self.link.request(CloseSession(self.number, is_doubtful), pending)
        if not self._is_open:  # what was never granted is asked for again
            again = Pending("CloseSession", OnLoss.REPEAT)
            self.link.request(CloseSession(self.number), again)
        pending.done()  # the lost connection has closed it, and it will not be opened again
        return pending

    @property
    def all_senders(self) -> list[Sender]:
        """Its senders, those too that the node has not granted yet."""
        return [*(sender for sender, _ in self.senders.values()), *self.asked_senders.values()]

    def leave_sends(self) -> None:
        """It is closed while its node is not there: what that may have is in doubt, as nobody will
        be there to whom it could answer."""
        for sender in self.all_senders:
            if sender.link is self.link and self.link.state is not State.UP:
                sender.leave(self.link.error)

    def forget(self) -> None:
        """Do not open it again."""
        if self in self.link.participants:
            self.link.participants.remove(self)

    def leave(self) -> Pending | None:
        """The connection closes cleanly, and so does the session."""
        return self.close()

    # ---- transactions

    def must_be_transacted(self, what: str, *, wanted: bool = True) -> None:
        """IllegalState when the session is of the other kind."""
        if self.is_transacted is not wanted:
            kind = "transacted" if self.is_transacted else "not transacted"
            raise IllegalState(what=what, detail=f"the session is {kind}")

    def must_be_xa(self) -> None:
        """IllegalState when the session can work in no branch."""
        if not self.is_xa:
            raise IllegalState(what="resource", detail="the session is no XA session")

    def commit(self) -> "_Commit | None":
        """Ask for the commit; None when there is nothing to commit."""
        if not self.has_work:
            return None
        self.settle()
        for prefetched in self.prefetch_buffers.values():
            prefetched.transaction_ended()
        self.has_work = False
        self._commits += 1
        self._commit = _Commit("Commit", number=self._commits, session=self)
        self.link.request(Commit(self.number, self._commits), self._commit)
        return self._commit

    def commit_refused(self, commit: "_Commit", error: HmsError) -> None:
        """The node keeps its transaction open, to be committed again or rolled back. With one that
        nobody waits for any more it has what was done since too: that is rolled back with it."""
        self.has_work = True
        if commit is not self._commit:
            self.send_failed(error)

    def forget_commit(self) -> None:
        """Its caller waits no longer."""
        for commit in (self._commit, self._in_doubt):
            if commit is not None:
                self.link.doubts.pop(commit, None)
        self._commit = self._in_doubt = None

    def send_failed(self, error: BaseException) -> None:
        """A send of the open transaction was refused, or nobody knows: the rest must not take
        effect without it."""
        if self.is_transacted and self.failed_send is None:
            self.failed_send = error

    def judge_only(self, verdict: Reject | Retry) -> None:
        """What is to become of the message that the transaction has received; of several nobody
        knows which one is meant."""
        taken = [
            (prefetched, *prefetched.taken_of_transaction)
            for prefetched in self.prefetch_buffers.values()
        ]
        if self.link.state is State.UP and sum(count for _, count, _ in taken) == 1:
            prefetched, message_id = next(
                (prefetched, last) for prefetched, count, last in taken if count
            )
            self.judge(prefetched, message_id, verdict)

    def rollback(self, why: str = "") -> Pending | None:
        """Ask for the rollback, and say why; None when the lost connection has brought it about."""
        self.is_doomed = self.has_work = False
        if self.link.state is not State.UP:
            self._withdraw_sends()
            self.failed_send = None
            return None
        self.failed_send = None
        self.settle()
        for asked in self.link.asked.values():
            if isinstance(asked, SendFrame) and asked.sender.number in self.senders:
                asked.is_rolled_back = True
        return self._restart(Rollback(self.number, why))

    def recover(self) -> Pending | None:
        """Ask for what was not acknowledged to be delivered again; None when it will be anyway, or
        in NONE, where nothing is unacknowledged."""
        self._lost_id = 0  # they come again in any case
        if self.link.state is not State.UP or self.ack_mode is AckMode.NONE:
            return None
        self.file_seen()
        self.settle()
        self.say(
            [
                item
                for prefetched in self.prefetch_buffers.values()
                for item in prefetched.fail_seen()
            ]
        )
        return self._restart(Recover(self.number))

    def fail(
        self, prefetched: PrefetchBuffer, message_id: int, fault: Exception | None = None
    ) -> None:
        """The listener could not cope with the message; with order kept, what was delivered behind
        it is taken back too, and comes again after it (F-E9)."""
        super().fail(prefetched, message_id, fault)
        if prefetched.is_ordered and self.link.state is State.UP:
            self.recover()

    def _restart(self, request: Request) -> Pending:
        self.file_held = None
        for prefetched in self.prefetch_buffers.values():
            prefetched.next_epoch()
        self.forget_left()
        return self.link.request(request, Pending(type(request).__name__, OnLoss.DONE))

    def _withdraw_sends(self, reason: str = "rollback() was called") -> None:
        """What was sent while there was no connection, and what still waits to be sent, belongs to
        the transaction that ends here: it must not go out later, as work of the next one."""
        error = TransactionRolledBack(reason=reason)
        for sender in self.all_senders:
            sender.drop_packs(error)
        for correlation, asked in list(self.link.asked.items()):
            if isinstance(asked, SendFrame) and asked.sender.number in self.senders:
                del self.link.asked[correlation]
                asked.failed(error)


def batch_of(pending: Pending) -> Sequence[int]:
    """How many messages and bytes a producer's destination takes at once, if the node says so."""
    said = pending.value() if pending.payload else None
    return said.get("batch", ()) if isinstance(said, dict) else ()


class _Commit(Pending, eq=False, kw_only=True):
    """A Commit; when the connection is lost the session finds out whether it took effect."""

    number: int
    session: SessionState
    is_bound: bool = True

    def in_doubt(self, reason: str) -> CommitInDoubt:
        """Whether it took effect is not known, and why."""
        link, session = self.session.link, self.session.number
        token = link.keys.token(self.log, link.hello.uid, session, self.number)
        return CommitInDoubt(commit=self.number, reason=reason, token=token)

    def estranged(self, why: str = "") -> None:  # noqa: ARG002 - a commit outlives epochs
        """The node that may have done it does not answer, another one does."""
        self.failed(self.in_doubt(OTHER_LOG))

    @property
    def is_kept(self) -> bool:
        """Behind the sends that it is for."""
        return not self.session.is_closed

    def answered(self, kind: Kind, payload: bytes, request: str = "") -> None:
        """Done, rolled back, or refused."""
        super().answered(kind, payload, request)
        if self.error is not None and not isinstance(self.error, TransactionRolledBack):
            self.session.commit_refused(self, self.error)

    def lost(self, error: HmsError) -> bool:
        """Neither repeated nor ended here: the session decides, unless it is closed meanwhile."""
        if self.session.is_closed:
            self.unanswered(error)
        return False

    def unanswered(self, error: HmsError) -> None:
        """All of it took effect, or nothing."""
        if not self.is_done:
            self.failed(self.in_doubt(f"its answer was lost ({reason_of(error)})"))


def _prefetch_buffer_back(prefetched: PrefetchBuffer, pending: Pending) -> None:
    if pending.error is not None:
        prefetched.closed(pending.error)
        prefetched.link.report(pending.error)
