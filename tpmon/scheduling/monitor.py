"""The monitor: which server offers which service, and whose turn it is. Sans-IO.

Theory of operation. A server (a connection that advertised services) runs as many calls at a time
as it has places, one unless it says otherwise. A call goes to the server of its service whose turn
it is, the one that has been idle longest, or waits; a server that becomes idle takes the waiting
call of the highest priority, of several the oldest (call_scheduler.py). A call ends once: by its
result, by its deadline (TPETIME), by the loss of its server or because it ran past its service's
limit (TPESVCERR), or because nobody offers its service any more (TPENOENT). A server whose call
ended before has one place less until it returns; past the service's limit its process is ended.

The messages of one session run one after the other (F-E2), also when the one before them is not
wanted any more. They are taken out of their queue only when a server is free
(listener_dispatch.py).

A lost server that the node had started comes back: its services are expected for a while, and
calls of them wait. Time is known from what comes in and from tick(), so what needs it may come a
tick late. Conversations: conversation_relay.py; who offers what: service_registry.py.
"""

from collections.abc import Callable, Mapping

import msgspec

from hms.errors.catalogue import (
    ForwardLimit,
    InvalidArgument,
    ServerLost,
    ServiceHung,
    ServiceNotFound,
    ServiceTimeout,
)
from hms.server.service_monitor import Answer, Invoke, Kill, Load, Origin, Say
from hms.wire.service_codes import TPFAIL, TPSUCCESS
from hms.wire.structures import CallHead, InvokeHead, ResultHead
from tpmon.scheduling.call_scheduler import CALL_BYTES_WAITING_MAX, CallScheduler
from tpmon.scheduling.conversation_relay import MODES, ConversationRelay
from tpmon.scheduling.listener_dispatch import ListenerDispatch
from tpmon.scheduling.monitor_state import Call, Rules, Server, Service
from tpmon.scheduling.service_registry import ServiceRegistry

__all__ = ["Answer", "Invoke", "Kill", "Load", "Monitor", "Origin", "Rules", "Say"]

TIMEOUT_MS_MAX = 1 << 40
FORWARDS_MAX = 16


class Monitor:
    """Services, servers and calls of one node.

    first_call: the number of the first call; a node that boots again must not repeat numbers that
    a server may still be answering. rules: by service; block_ms: how long a call waits for which
    neither caller nor service says it, 0 for ever; node: its name, for errors.
    """

    def __init__(
        self,
        first_call: int = 1,
        rules: Mapping[str, Rules] | None = None,
        block_ms: int = 0,
        bytes_waiting_max: int = CALL_BYTES_WAITING_MAX,
        node: str = "",
    ) -> None:
        calls = self._calls = CallScheduler(first_call, rules or {}, bytes_waiting_max, node)
        registry = self._registry = ServiceRegistry(calls)
        conversations = self._conversations = ConversationRelay(calls, registry)
        listeners = self._listeners = ListenerDispatch(calls, registry)
        self._block_ms, self._is_beginning = block_ms, False
        self.effects, self.changed, self.times = calls.effects, calls.changed, calls.times
        self.number_from = calls.number_from
        self.introduce, self.advertise = registry.introduce, registry.advertise
        self.unadvertise, self.release_orphans = registry.unadvertise, registry.release_orphans
        self.group_of, self.services_of = registry.group_of, registry.services_of
        self.connections_of = registry.connections_of
        self.load, self.is_offered = registry.load, registry.is_offered
        self.describe, self.describe_groups = registry.describe, registry.describe_groups
        self.durations, self.server_durations = registry.durations, registry.server_durations
        self.describe_absent = registry.describe_absent
        self.talk = conversations.talk
        self.listen, self.listen_at = listeners.listen, listeners.listen_at
        self.withdraw, self.settled = listeners.withdraw, listeners.settled
        self.recovered, self.closed = listeners.recovered, listeners.closed
        self.running_of, self.feed = listeners.running_of, listeners.feed
        self.listeners_missing = listeners.listeners_missing

    @property
    def bytes_waiting(self) -> int:
        """Data of calls that wait for a server."""
        return self._calls.bytes_waiting

    def begins(self) -> None:
        """The node starts its servers: a call of what nobody offers yet waits."""
        self._is_beginning = True

    def begun(self) -> None:
        """They are there, or cannot be."""
        self._is_beginning = False
        self._registry.expect_no_more()

    # calls

    def calls_of(self, connection: int) -> int:
        """How many calls of a connection have not ended, conversations too."""
        return self._calls.asked.get(connection, 0)

    def call(self, origin: Origin, head: CallHead, data: bytes, now_ms: int) -> None:
        """A client's CALL."""
        calls = self._calls
        calls.times.now_ms = now_ms
        service = calls.services.get(head.service)
        if service is None or not (service.servers or service.is_offered):
            if not self._is_beginning:
                raise ServiceNotFound(service=head.service, at=calls.at)
            service = self._registry.expect(head.service)
        if head.mode not in MODES:
            raise InvalidArgument(what="mode", detail=f"{head.mode} is no mode of a call")
        timeout_ms = self._timeout_ms(head, service)
        if not service.idle or service.running >= service.running_max:
            calls.check_room(service, len(data), may_wait=head.may_wait)
        deadline_ms = now_ms + timeout_ms if timeout_ms else 0
        invoke = InvokeHead(
            head.service,
            0,
            deadline_ms,
            head.kind,
            client=origin.connection,
            mode=head.mode,
            transaction=head.transaction,
            trace=head.trace,
            user=origin.user,
        )
        call = Call(origin, invoke, data, deadline_ms, timeout_ms, head.is_reply_wanted)
        if head.mode:
            self._conversations.begin(call)
        connection = origin.connection
        calls.asked[connection] = calls.asked.get(connection, 0) + 1
        calls.start(call)

    def result(self, connection: int, head: ResultHead, data: bytes, now_ms: int = 0) -> None:
        """A server ended a call; a result that nobody waits for any more is dropped."""
        self._calls.times.now_ms = max(self._calls.times.now_ms, now_ms)
        server = self._registry.servers.get(connection)
        call = server.running.get(head.call) if server is not None else None
        if server is None or call is None:
            return
        name = call.head.service
        self._count(server, call, head)
        self._calls.free(server, call)
        if head.forward and not call.is_ended:
            self._forward(call, head, data)
        else:
            rval = TPSUCCESS if head.rval == TPSUCCESS and not head.error_number else TPFAIL
            plain = msgspec.structs.replace(
                head,
                call=0,
                rval=rval,
                forward="",
                elapsed_us=0,
                branches=(*call.branches, *head.branches),
            )
            self._calls.end(call, plain, data)
        self._calls.now_idle(server)
        service = self._calls.services.get(name)
        if service is not None and service.waiting:
            self._calls.fill(service)

    def message_of(self, connection: int, number: int) -> object:
        """What a listener was given that this server runs the service for now; else None."""
        server = self._registry.servers.get(connection)
        call = server.running.get(number) if server is not None else None
        return None if call is None or call.is_ended else call.origin.token

    def lost(self, connection: int) -> None:
        """A connection ended: its running call failed, its own calls are not wanted any more."""
        self._conversations.client_left(connection)
        self._calls.asked.pop(connection, None)
        for call in self._calls.running.values():
            if call.origin.connection == connection:
                call.is_wanted = False
        self._listeners.connection_lost(connection)
        self._calls.take_out(lambda call: call.origin.connection == connection)
        server = self._registry.servers.pop(connection, None)
        if server is None:
            return
        self._calls.not_idle(server)
        self._break_off(server)
        for service in sorted(server.services):
            self._registry.take_away(server, service, is_expected=bool(server.name))

    def tick(self, now_ms: int, comes_back: Callable[[str], bool] = lambda _: False) -> None:
        """End calls whose time is over, and give up services whose server did not come back.
        comes_back: whether the node starts a process of that [server.NAME] again."""
        self._calls.times.now_ms, self._calls.times.due_ms = now_ms, None
        for call in list(self._calls.running.values()):
            if 0 < call.deadline_ms <= now_ms:
                self._time_out(call)
        for server in list(self._registry.servers.values()):
            self._limit(server, now_ms)
        for call in self._calls.take_out(lambda call: 0 < call.deadline_ms <= now_ms):
            self._time_out(call)
        self._registry.tick(now_ms, comes_back)
        self._calls.tick_tallies(now_ms)
        self._await_next()

    def _await_next(self) -> None:
        """The first of all that will be over."""
        waiting = (call for service in self._calls.services.values() for call in service.waiting)
        running = self._calls.running.values()
        ends = [c.deadline_ms for calls in (waiting, running) for c in calls if c.deadline_ms]
        for server in self._registry.servers.values():
            for call in server.running.values():
                limit_ms = self._calls.services[call.head.service].rules.limit_ms
                if limit_ms and not call.is_hung:
                    ends.append(call.began_ms + limit_ms)
        if ends:
            self._calls.await_until(min(ends))

    # inside

    def _timeout_ms(self, head: CallHead, service: Service) -> int:
        """How long the caller waits; 0 for ever. A conversation has no end of its own."""
        if not 0 <= head.timeout_ms <= TIMEOUT_MS_MAX:
            raise InvalidArgument(what="timeout_ms", detail=f"{head.timeout_ms} is out of range")
        if head.mode:
            return 0
        return head.timeout_ms or service.rules.block_ms or self._block_ms

    def _limit(self, server: Server, now_ms: int) -> None:
        """A service that runs past its limit: its caller is told, its process ended."""
        is_late = False
        for call in list(server.running.values()):
            limit_ms = self._calls.services[call.head.service].rules.limit_ms
            if limit_ms and not call.is_hung and now_ms >= call.began_ms + limit_ms:
                call.is_hung = server.is_hung = is_late = True
                self._calls.not_idle(server)
                hung = ServiceHung(service=call.head.service, limit_s=_seconds(limit_ms))
                self._calls.fail(call, hung)
        if is_late and server.name:
            self._calls.effects.append(Kill(server.name))

    def _break_off(self, server: Server) -> None:
        for call in list(server.running.values()):
            tally = self._registry.tally_of(server)
            tally.failed_with(f"lost while it ran {call.head.service}")
            lost = ServerLost(service=call.head.service, reason="the server that ran it ended")
            self._calls.fail(call, lost)
            self._calls.free(server, call)
            if call.head.service in self._calls.services:
                self._calls.fill(self._calls.services[call.head.service])

    def _forward(self, call: Call, head: ResultHead, data: bytes) -> None:
        """The service handed its call on to another one; the caller's deadline stays."""
        self._calls.running.pop(call.number, None)
        call.forwards, call.number = call.forwards + 1, 0
        if call.forwards > FORWARDS_MAX or call.head.mode:  # a conversation stays where it is
            self._calls.fail(call, ForwardLimit(count=call.forwards, service=head.forward))
        elif not self._registry.is_offered(head.forward):
            self._calls.fail(call, ServiceNotFound(service=head.forward, at=self._calls.at))
        else:
            call.head = InvokeHead(
                head.forward,
                0,
                call.deadline_ms,
                head.kind,
                client=call.head.client,
                transaction=call.head.transaction,
                trace=call.head.trace,
                user=call.origin.user,
            )
            call.branches += head.branches
            call.data = data
            self._calls.start(call)

    def _count(self, server: Server, call: Call, head: ResultHead) -> None:
        """Into the counts of the service, which has it already if it ended before, and of the
        server."""
        error = "" if head.rval == TPSUCCESS and not head.error_number else _said(head)
        name, tallies = call.head.service, []
        if not call.is_ended:
            service = self._calls.services.get(name)
            tallies.append(self._calls.tally(name) if service is None else service.tally)
        if server.group:
            tallies.append(self._registry.tally_of(server))
        for tally in tallies:
            tally.ended(head.elapsed_us)
            if error:
                tally.failed_with(error)

    def _time_out(self, call: Call) -> None:
        timeout_s = _seconds(call.timeout_ms)
        self._calls.fail(call, ServiceTimeout(service=call.head.service, timeout_s=timeout_s))


def _said(head: ResultHead) -> str:
    """What a result failed with; nothing when it did not. A server's fields are not trusted."""
    if head.error_number:
        return f"HMS-{head.error_number} {head.error_fields.get('detail', '')}".rstrip()
    return "" if head.rval == TPSUCCESS or head.forward else f"TPFAIL, rcode {head.rcode}"


def _seconds(milliseconds: int) -> int | float:
    whole, rest = divmod(milliseconds, 1000)
    return milliseconds / 1000 if rest else whole
