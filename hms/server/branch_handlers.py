"""Requests on distributed transactions, applied to the engine and, for listeners, the monitor."""

from collections.abc import Callable
from typing import Any

from hms.engine.effects import Deliver, Effects, PromptReply, Reply
from hms.engine.xa.branch_commands import BranchCommands
from hms.engine.xa.xa_codes import Answer, Code
from hms.server.service_monitor import ServiceMonitor
from hms.wire import branch_requests as wire

__all__ = ["BranchHandlers"]

Asked = Callable[[int, Any, int, Effects], Any]
_PROMPT = (wire.BeginGlobal, wire.EndGlobal, wire.ForgetDecision)
"""Of the decision log, but nothing that has to be durable: who commits behind another transaction
of the same connection would wait for that one's sync."""


class BranchHandlers:
    """Applies one request at a time; the caller holds the engine's lock."""

    def __init__(self, branches: BranchCommands, monitor: ServiceMonitor) -> None:
        self._branches = branches
        self._monitor = monitor
        self._answers: dict[type, Asked] = {
            wire.XaStart: self._start,
            wire.XaEnd: self._end,
            wire.XaTake: self._take,
            wire.XaPrepare: lambda number, r, now, fx: branches.prepare(
                r.xid, now, fx, is_again=r.is_again, by=number
            ),
            wire.XaCommit: self._commit,
            wire.XaRollback: lambda number, r, now, fx: branches.rollback(
                r.xid, now, fx, by=number
            ),
            wire.XaForget: lambda _, r, now, fx: branches.forget(r.xid, now, fx),
            wire.XaRecover: lambda _, r, __, fx: branches.recover(r.after, r.count_max, fx),
            wire.BeginGlobal: self._begin_global,
            wire.Decide: self._decide,
            wire.EndGlobal: lambda number, r, now, fx: branches.end_global(
                number, r.gtrid, now, fx
            ),
            wire.AskDecision: lambda _, r, __, fx: branches.ask(r.gtrid, fx),
            wire.NoteDecision: self._note,
            wire.ForgetDecision: lambda _, r, __, fx: branches.forget_decision(r.gtrid, fx),
            wire.ListDecisions: lambda _, r, __, fx: branches.decisions(r.after, r.count_max, fx),
            wire.ListActive: lambda number, _, __, ___: branches.active(number),
        }
        self.handlers: dict[type, Callable[..., None]] = dict.fromkeys(self._answers, self._apply)
        """By the type of the request, as hms/server/request_handlers.py has them."""
        self.slices: dict[type, Callable[[int, Any, int, Effects], bool]] = {
            wire.XaPrepare: lambda number, r, now_ms, fx: branches.ready_some(
                [r.xid], number, now_ms, fx, is_vote=True
            ),
            wire.XaCommit: lambda number, r, now_ms, fx: branches.ready_some(
                [r.xid], number, now_ms, fx
            ),
            wire.Decide: lambda number, r, now_ms, fx: branches.ready_some(
                r.branches, number, now_ms, fx
            ),
            wire.ListActive: lambda number, r, _, __: branches.active_some(number, r),
        }
        """The same of what is done under holds of the lock before their own."""

    def _apply(
        self, connection: int, correlation: int, request: Any, now_ms: int, fx: Effects
    ) -> None:
        at = len(fx.out)
        value = self._answers[type(request)](connection, request, now_ms, fx)
        plain = value.plain() if isinstance(value, Answer) else value
        reply = PromptReply if isinstance(request, _PROMPT) else Reply
        fx.out.insert(at, reply(connection, correlation, plain))

    def _start(self, connection: int, request: wire.XaStart, now_ms: int, fx: Effects) -> Answer:
        fx.must_wait = True  # what was acknowledged before is safe then
        return self._branches.start(
            connection, request.session, request.xid, request.flags, request.timeout_ms, now_ms
        )

    def _end(self, connection: int, request: wire.XaEnd, now_ms: int, fx: Effects) -> Answer:
        return self._branches.end(
            connection, request.session, request.xid, request.flags, now_ms, fx
        )

    def _take(self, connection: int, request: wire.XaTake, _: int, __: Effects) -> Answer:
        """Only the server that runs the call may say whose its message is."""
        deliver = self._monitor.message_of(connection, request.call)
        if not isinstance(deliver, Deliver):
            return Answer(Code.NOTA, "this connection runs no such call of a listener")
        listener = (deliver.connection, deliver.consumer)
        return self._branches.take(connection, request.session, listener, deliver.messages)

    def _commit(self, connection: int, request: wire.XaCommit, now_ms: int, fx: Effects) -> Answer:
        return self._branches.commit(
            request.xid,
            now_ms,
            fx,
            is_one_phase=request.is_one_phase,
            is_again=request.is_again,
            by=connection,
        )

    def _begin_global(
        self, connection: int, request: wire.BeginGlobal, now_ms: int, _: Effects
    ) -> None:
        self._branches.begin_global(
            connection, request.gtrid, request.timeout_ms, request.name, now_ms
        )

    def _decide(
        self, connection: int, request: wire.Decide, now_ms: int, fx: Effects
    ) -> dict[str, Any]:
        return self._branches.decide(
            connection, request.gtrid, request.participants, request.branches, now_ms, fx
        )

    def _note(self, _: int, request: wire.NoteDecision, now_ms: int, fx: Effects) -> None:
        self._branches.note(request.gtrid, request.participants, now_ms, fx)
