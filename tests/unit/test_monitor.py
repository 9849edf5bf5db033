"""The monitor: whose turn it is, how each call ends, what is refused."""

import pytest

from field_buffer.catalogue import (
    InvalidArgument,
    ServerLost,
    ServiceLimit,
    ServiceNotFound,
    ServiceTimeout,
    TooManyRequests,
)
from tpmon import monitor as monitors
from tpmon import turns
from tpmon.monitor import TPFAIL, TPSUCCESS, Answer, Invoke, Load, Monitor, Origin
from tpmon.protocol.structures import CallHead, InvokeHead, ResultHead

S1, S2, CLIENT, OTHER = 1, 2, 10, 11


class Rig:
    """A monitor, and what it wanted done since it was last asked."""

    def __init__(self, **options):
        self.monitor = Monitor(**options)

    def effects(self):
        effects, self.monitor.effects = self.monitor.effects, []
        return effects

    def serve(self, connection, *services, name=""):
        self.monitor.introduce(connection, name)
        for service in services:
            self.monitor.advertise(connection, service)

    def call(
        self, service, data=b"", *, client=CLIENT, correlation=1, timeout_ms=0, now_ms=0, **more
    ):
        head = CallHead(service, timeout_ms, **more)
        self.monitor.call(Origin(client, correlation), head, data, now_ms)

    def listen(self, service, data, *, client=CLIENT, session=1, consumer=1):
        origin = Origin(client, 0, session, data, consumer)
        self.monitor.listen(origin, InvokeHead(service, 0, 0, is_message=True), data)

    def finish(self, invoke, rval=TPSUCCESS, data=b"", **more):
        self.monitor.result(invoke.connection, ResultHead(invoke.head.call, rval, **more), data)


@pytest.fixture
def rig():
    return Rig()


def _answer(effects):
    (answer,) = effects
    assert isinstance(answer, Answer)
    return answer


def _invoke(effects):
    (invoke,) = effects
    assert isinstance(invoke, Invoke)
    return invoke


def test_a_call_runs_on_its_server_and_its_result_goes_to_whoever_asked(rig):
    """It is what a TP monitor is for."""
    rig.serve(S1, "ECHO")

    rig.call("ECHO", b"hello", correlation=7, kind=1)
    invoke = _invoke(rig.effects())
    rig.finish(invoke, data=b"world", rcode=3, kind=2)

    assert (invoke.connection, invoke.head.service, invoke.data) == (S1, "ECHO", b"hello")
    assert invoke.head.kind == 1
    assert rig.effects() == [
        Answer(Origin(CLIENT, 7), ResultHead(0, TPSUCCESS, rcode=3, kind=2), b"world")
    ]


def test_a_call_goes_to_the_server_that_has_been_idle_longest(rig):
    """Otherwise one process works while its siblings sleep."""
    rig.serve(S1, "ECHO")
    rig.serve(S2, "ECHO")

    taken = []
    for _ in range(4):
        rig.call("ECHO")
        taken.append(_invoke(rig.effects()))
        rig.finish(taken[-1])
        rig.effects()

    assert [invoke.connection for invoke in taken] == [S1, S2, S1, S2]


def test_a_busy_server_gets_its_next_call_only_after_its_result(rig):
    """A handler runs alone in its process; a second INVOKE would wait there, unseen by others."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO", b"1")
    rig.call("ECHO", b"2")
    first = _invoke(rig.effects())

    rig.finish(first)

    answer, second = rig.effects()
    assert (first.data, second.data) == (b"1", b"2")
    assert isinstance(answer, Answer)


def test_a_server_of_two_services_takes_the_call_that_waits_longest(rig):
    """A busy service must not starve another that the same process offers."""
    rig.serve(S1, "A", "B")
    rig.call("A", b"running")
    running = _invoke(rig.effects())
    for number, service in enumerate("BABA"):
        rig.call(service, b"%d" % number)

    taken = []
    while running:
        taken.append(running.data)
        rig.finish(running)
        running = next((e for e in rig.effects() if isinstance(e, Invoke)), None)

    assert taken == [b"running", b"0", b"1", b"2", b"3"]


def test_a_call_of_a_service_that_nobody_offers_is_refused(rig):
    """The caller learns it at once instead of by a timeout."""
    with pytest.raises(ServiceNotFound):
        rig.call("ECHO")

    assert rig.effects() == []


def test_a_result_that_carries_an_error_or_another_rval_is_a_failure(rig):
    """A listener's message must not be acknowledged because a server sent a number we do not know."""
    rig.serve(S1, "ECHO")
    for more in ({"rval": 9}, {"rval": TPSUCCESS, "error_number": 6003}):
        rig.call("ECHO")
        rig.finish(_invoke(rig.effects()), **more)
        assert _answer(rig.effects()).head.rval == TPFAIL


def test_a_call_without_a_reply_is_answered_to_nobody(rig):
    """TPNOREPLY: the caller has no correlation to which an answer could belong."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO", is_reply_wanted=False)

    rig.finish(_invoke(rig.effects()))

    assert rig.effects() == []


def test_advertising_twice_is_advertising_once(rig):
    """A request that is repeated after a reconnect must not fail, nor make one server look like two."""
    rig.serve(S1, "ECHO", "ECHO")

    assert rig.monitor.describe() == [{"name": "ECHO", "servers": 1, "idle": 1, "waiting": 0}]


# deadlines


def test_a_waiting_call_ends_at_its_deadline(rig):
    """The caller has stopped waiting; nobody needs it to run."""
    rig.serve(S1, "SLOW")
    rig.call("SLOW", b"long")
    rig.call("SLOW", b"short", timeout_ms=1500, now_ms=1000)
    rig.effects()

    rig.monitor.tick(2499)
    assert rig.effects() == []
    rig.monitor.tick(2500)

    head = _answer(rig.effects()).head
    assert (head.error_number, head.error_fields["timeout_s"]) == (ServiceTimeout.number, 1.5)


def test_a_result_after_the_deadline_is_dropped_and_frees_the_server(rig):
    """Each call is answered once, and a slow handler must not cost its server."""
    rig.serve(S1, "SLOW")
    rig.call("SLOW", timeout_ms=1000)
    late = _invoke(rig.effects())
    rig.monitor.tick(1000)
    assert _answer(rig.effects()).head.error_number == ServiceTimeout.number
    rig.call("SLOW", b"next")
    assert rig.effects() == []

    rig.finish(late, data=b"too late")

    assert _invoke(rig.effects()).data == b"next"


def test_the_services_own_limit_holds_when_it_is_shorter():
    """[service.NAME] timeout_s is the operator's word, whatever callers ask for."""
    rig = Rig(timeouts_ms={"SLOW": 1000})
    rig.serve(S1, "SLOW")
    for timeout_ms in (0, 5000):
        rig.call("SLOW", timeout_ms=timeout_ms)
        invoke = _invoke(rig.effects())
        rig.monitor.tick(1000)
        assert invoke.head.deadline_ms == 1000
        assert _answer(rig.effects()).head.error_fields["timeout_s"] == 1
        rig.finish(invoke)


def test_the_services_own_limit_ends_a_listeners_call_too():
    """A handler that hangs must not hold a message, and its session, for ever."""
    rig = Rig(timeouts_ms={"SLOW": 1000})
    rig.serve(S1, "SLOW")
    rig.listen("SLOW", b"m1")
    rig.listen("SLOW", b"m2")
    rig.effects()

    rig.monitor.tick(50_000)
    assert rig.effects() == []
    rig.monitor.tick(51_000)

    assert _answer(rig.effects()).origin.token == b"m1"


@pytest.mark.parametrize("timeout_ms", [-1, 1 << 63])
def test_a_timeout_that_is_no_time_is_refused(rig, timeout_ms):
    """A deadline beyond 64 bits could not be sent to the server, and would stop the node."""
    rig.serve(S1, "ECHO")

    with pytest.raises(InvalidArgument):
        rig.call("ECHO", timeout_ms=timeout_ms)


# lost servers and clients


def test_the_loss_of_a_server_ends_the_call_that_it_ran(rig):
    """Whether the service took effect is unknown, so the caller must be told and decide."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO")
    rig.effects()

    rig.monitor.lost(S1)

    assert _answer(rig.effects()).head.error_number == ServerLost.number
    assert not rig.monitor.is_offered("ECHO")


def test_calls_that_wait_go_on_with_the_servers_that_are_left(rig):
    """They have not begun, so nothing speaks against running them elsewhere."""
    rig.serve(S1, "ECHO")
    rig.serve(S2, "ECHO")
    for data in (b"1", b"2", b"3"):
        rig.call("ECHO", data)
    _, second = rig.effects()

    rig.monitor.lost(S1)
    rig.effects()
    rig.finish(second)

    assert [e.data for e in rig.effects() if isinstance(e, Invoke)] == [b"3"]


def test_calls_that_wait_for_the_last_server_are_refused_when_it_leaves(rig):
    """Nobody will run them; who called a moment later was refused as well."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO", b"1")
    rig.call("ECHO", b"2", correlation=2)
    first = _invoke(rig.effects())

    rig.monitor.unadvertise(S1, "ECHO")

    answer = _answer(rig.effects())
    assert (answer.origin.correlation, answer.head.error_number) == (2, ServiceNotFound.number)
    rig.finish(first)
    assert _answer(rig.effects()).head.rval == TPSUCCESS


def test_calls_wait_for_a_server_that_the_node_starts_again(rig):
    """One crash of a handler should cost its caller a retry, not all other callers an error."""
    rig.serve(S1, "ECHO", name="echo:100")
    rig.monitor.lost(S1)
    rig.monitor.tick(0)

    rig.call("ECHO", b"meanwhile")
    rig.serve(S2, "ECHO", name="echo:101")

    assert _invoke(rig.effects()).data == b"meanwhile"


def test_a_server_that_does_not_come_back_is_given_up(rig):
    """After it, callers are refused at once again."""
    rig.serve(S1, "ECHO", name="echo:100")
    rig.monitor.lost(S1)
    rig.call("ECHO")
    rig.monitor.tick(0)
    assert rig.effects() == []

    rig.monitor.tick(monitors.EXPECTED_MS)

    assert _answer(rig.effects()).head.error_number == ServiceNotFound.number
    with pytest.raises(ServiceNotFound):
        rig.call("ECHO")
    assert rig.monitor.describe() == []


def test_the_calls_of_a_lost_client_are_not_run_any_more(rig):
    """Nobody reads the answer; what runs already is finished and dropped."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO", b"1")
    rig.call("ECHO", b"2")
    rig.call("ECHO", b"3", client=OTHER)
    first = _invoke(rig.effects())

    rig.monitor.lost(CLIENT)
    rig.finish(first)

    assert _invoke(rig.effects()).data == b"3"


def test_a_result_from_a_server_that_does_not_run_the_call_is_ignored(rig):
    """A server cannot end another one's call, nor one call twice."""
    rig.serve(S1, "ECHO")
    rig.serve(S2, "ECHO")
    rig.call("ECHO")
    invoke = _invoke(rig.effects())

    rig.finish(invoke._replace(connection=S2))
    rig.finish(invoke._replace(connection=CLIENT))
    rig.finish(invoke)
    rig.finish(invoke)

    assert len(rig.effects()) == 1


# listeners


def test_a_sessions_messages_run_one_after_the_other_however_many_servers_there_are(rig):
    """F-E2: one message at a time per session, in order."""
    rig.serve(S1, "L")
    rig.serve(S2, "L")
    rig.listen("L", b"m1", consumer=1)
    rig.listen("L", b"m2", consumer=2)
    rig.listen("L", b"other", session=2)

    first, other = rig.effects()
    rig.finish(first)

    assert (first.data, other.data) == (b"m1", b"other")
    answer, second = rig.effects()
    assert (answer.origin.token, second.data) == (b"m1", b"m2")


def test_a_listeners_message_waits_for_its_service(rig):
    """A consumer may be opened before its server is started; the message stays unacknowledged."""
    rig.listen("L", b"m1")
    rig.monitor.tick(10**9)
    assert rig.effects() == []

    rig.serve(S1, "L")

    assert _invoke(rig.effects()).data == b"m1"


def test_a_lost_server_fails_the_listeners_message_and_the_next_one_follows(rig):
    """A message that kills its server must reach the dead letter queue, not kill for ever."""
    rig.serve(S1, "L")
    rig.listen("L", b"m1")
    rig.listen("L", b"m2", consumer=2)
    rig.effects()

    rig.monitor.lost(S1)
    answer = _answer(rig.effects())
    rig.serve(S2, "L")

    assert (answer.origin.token, answer.head.error_number) == (b"m1", ServerLost.number)
    assert _invoke(rig.effects()).data == b"m2"


def test_what_a_closed_consumer_left_waiting_is_not_run(rig):
    """The engine has given its messages to others: running them here would process them twice."""
    rig.serve(S1, "L")
    rig.listen("L", b"running", session=1, consumer=1)
    rig.listen("L", b"closed", session=1, consumer=1)
    rig.listen("L", b"open", session=1, consumer=2)
    running = _invoke(rig.effects())

    rig.monitor.withdraw(CLIENT, 1, 1)
    assert rig.effects() == []
    rig.finish(running)

    assert _invoke(rig.effects()).data == b"open"


def test_a_closed_session_leaves_nothing_behind(rig):
    """Sessions come and go for as long as the node runs."""
    for message in (b"m1", b"m2", b"m3"):
        rig.listen("L", message)

    rig.monitor.withdraw(CLIENT, 1)

    assert rig.effects() == []
    assert rig.monitor.describe() == []


# limits


def test_calls_beyond_the_limit_are_refused(rig, monkeypatch):
    """P8: a service that hangs must not fill the node's memory with calls."""
    monkeypatch.setattr(turns, "CALLS_WAITING_MAX", 2)
    rig.serve(S1, "SLOW")
    for _ in range(3):
        rig.call("SLOW")

    with pytest.raises(ServiceLimit):
        rig.call("SLOW")


def test_the_bytes_of_waiting_calls_are_limited(rig, monkeypatch):
    """P8: ten thousand calls of 16 MiB each would be within the limit of calls."""
    monkeypatch.setattr(turns, "CALL_BYTES_WAITING_MAX", 10)
    rig.serve(S1, "SLOW")
    rig.call("SLOW", b"running" * 100)
    running = _invoke(rig.effects())
    rig.call("SLOW", b"12345678")
    with pytest.raises(TooManyRequests):
        rig.call("SLOW", b"123")

    rig.finish(running)
    rig.call("SLOW", b"123")

    assert rig.monitor.describe()[0]["waiting"] == 1


@pytest.mark.parametrize("name", ["", "x" * 128, "a\nb"])
def test_a_name_that_cannot_be_shown_is_refused(rig, name):
    """Names go into logs and tables."""
    with pytest.raises(InvalidArgument):
        rig.monitor.advertise(S1, name)


def test_a_connection_cannot_offer_services_without_end(rig, monkeypatch):
    """P8: every table has a limit."""
    monkeypatch.setattr(monitors, "SERVICES_PER_SERVER_MAX", 2)
    rig.serve(S1, "A", "B")

    with pytest.raises(TooManyRequests):
        rig.monitor.advertise(S1, "C")


# looking


def test_the_load_of_each_server_counts_its_processes_and_waiting_calls(rig):
    """By it the node starts and ends processes between MIN and MAX."""
    rig.serve(S1, "A", "B", name="orders:100")
    rig.serve(S2, "A", "B", name="orders:101")
    rig.serve(3, "C", name="by hand")
    for service in "AABC":
        rig.call(service)

    assert rig.monitor.load() == [Load("orders", servers=2, busy=2, waiting=1)]
    assert rig.monitor.connections_of("orders:101") == [S2]
    assert rig.monitor.connections_of("") == []
