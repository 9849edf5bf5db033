"""The filter that drops what opens a connection from locked addresses, asked of the kernel."""

import socket

import pytest
import zmq

import hms
from hms.server.accepted_sockets import Arrivals, Callers
from hms.server.address_faults import rebind
from hms.server.listening_filter import ADDRESSES_MAX, attach, program
from hms.server.logins.callers import Caller, caller_at, network_text, source_of
from hms.server.logins.login_limits import LOCKED_MS, NEVER_LOCKED, Lock, LoginLimits
from tests.support.waiting import wait_until

LOCKED, FREE = "127.0.1.5", "127.0.1.6"
REFUSED_S, COMES_S = 0.2, 60.0


@pytest.fixture
def listening():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        yield found


def comes_in(listening, source, within_s=COMES_S):
    with socket.socket(listening.family) as caller:
        caller.settimeout(within_s)
        if source:
            caller.bind((source, 0))
        try:
            caller.connect(listening.getsockname())
        except TimeoutError:
            return False
        return True


@pytest.mark.parametrize("count", [1, ADDRESSES_MAX])
def test_locked_addresses_do_not_come_in_and_all_others_do(listening, count):
    """The last of many too: a condition of a filter jumps 255 steps at most."""
    others = [f"10.0.{number >> 8}.{number & 255}" for number in range(count - 1)]

    assert attach(listening.fileno(), program([*others, LOCKED]))

    assert not comes_in(listening, LOCKED, REFUSED_S)
    assert comes_in(listening, FREE)
    assert attach(listening.fileno(), b"")
    assert comes_in(listening, LOCKED)


def test_a_network_of_ipv6_is_dropped_as_a_whole():
    """Addresses are counted by their first 64 bits."""
    with socket.socket(socket.AF_INET6) as listening:
        listening.bind(("::1", 0))
        listening.listen()
        others = [f"2001:db8:0:{number:x}" for number in range(ADDRESSES_MAX - 1)]

        assert attach(listening.fileno(), program([*others, "0:0:0:0"]))

        assert not comes_in(listening, "", REFUSED_S)
        assert attach(listening.fileno(), program(others))
        assert comes_in(listening, "")


def test_a_connection_that_is_open_goes_on_when_its_address_is_locked(listening):
    """An accepted socket inherits the filter of the one that listens."""
    with socket.socket() as before:
        before.bind((LOCKED, 0))
        attach(listening.fileno(), program(["10.0.0.1"]))
        before.connect(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            attach(listening.fileno(), program([LOCKED]))
            before.sendall(b"sent")
            accepted.settimeout(COMES_S)
            assert accepted.recv(4) == b"sent"
            accepted.sendall(b"back")
            assert before.recv(4) == b"back"


def test_nothing_but_a_listening_tcp_socket_gets_a_filter(tmp_path):
    """The descriptor may be another's by now."""
    with socket.socket(socket.AF_UNIX) as local, socket.socket() as other:
        local.bind(str(tmp_path / "s"))
        local.listen()
        code = program([LOCKED])
        assert [attach(one, code) for one in (local.fileno(), other.fileno(), -1)] == [False] * 3
    assert program([]) == program(["uid 1000", "unknown"]) == b""


def test_a_listener_that_is_bound_anew_goes_on_dropping():
    """Libzmq makes another socket then, as when its key is changed."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        arrivals = Arrivals()
        callers = Callers(context, router, 10, 10.0, [], arrivals)
        try:
            router.bind("tcp://127.0.0.1:*")
            address = router.getsockopt_string(zmq.LAST_ENDPOINT)
            callers.drop((LOCKED,))
            callers.monitor.poll(COMES_S * 1000)
            callers.take_events()
            assert came_in(address, FREE)
            assert not came_in(address, LOCKED, REFUSED_S)

            callers.cut_all()
            rebind(router, address, "listen")
            wait_until(lambda: taken(callers, address))
            assert came_in(address, FREE)

            callers.drop(())
            assert came_in(address, LOCKED)
        finally:
            callers.close()
            arrivals.close()


def came_in(address, source, within_s=COMES_S):
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    with socket.socket() as caller:
        caller.settimeout(within_s)
        caller.bind((source, 0))
        try:
            caller.connect((host, int(port)))
        except TimeoutError:
            return False
        return True


def taken(callers, address):
    callers.take_events()
    return not came_in(address, LOCKED, REFUSED_S)


def failures(limits, source, count, now_ms=0):
    for _ in range(count):
        limits.take("victim", source, now_ms)
        limits.failed("victim", source, now_ms)


def test_an_address_is_locked_for_a_while_by_the_last_failure_that_it_has():
    """Its attempts count although the limit of the user refuses them before its own is reached. At
    the next attempt the handshakes of a whole round would have been made for nothing."""
    limits = LoginLimits(10, 20, 200)
    for source in (f"10.0.0.{number}" for number in range(50)):
        failures(limits, source, 9)
    assert limits.locked(0) == ()

    failures(limits, "10.0.0.7", 1)

    assert limits.locked(0) == limits.locked(LOCKED_MS - 1) == ("10.0.0.7",)
    assert limits.locked(LOCKED_MS) == ()


@pytest.mark.parametrize("source", [*NEVER_LOCKED, "10.0.0.1"])
def test_who_has_logged_in_from_there_is_not_locked_out_nor_is_the_machine_itself(source):
    """An attacker behind the address of a customer shuts no customer out."""
    limits = LoginLimits(10, 20, 200)
    failures(limits, "10.0.0.1", 11)
    assert limits.locked(0) == ("10.0.0.1",)
    limits.came("10.0.0.1", 0)

    failures(limits, source, 50)

    assert limits.locked(0) == ()


def test_attempts_that_are_not_refused_lock_no_address():
    """As many as it may fail come at once, with the right passwords: they are let in one by one."""
    limits = LoginLimits(10, 20, 200)
    assert all(limits.take("u", "10.0.0.1", 0) for _ in range(10))
    assert limits.locked(0) == ()
    limits.succeeded("u", "10.0.0.1", 0)
    limits.came("10.0.0.1", 0)

    assert not limits.failed("u", "10.0.0.1", 0)

    assert limits.locked(0) == ()


def test_the_latest_locks_hold_when_there_are_too_many():
    """What the kernel holds is bounded."""
    limits = LoginLimits(1, 20, 200)
    sources = [f"10.0.{number >> 8}.{number & 255}" for number in range(ADDRESSES_MAX + 5)]
    for source in sources:
        failures(limits, source, 1)
    assert limits.locked(0) == tuple(sources[5:])


def test_a_lock_that_is_released_is_none_and_its_failures_are_forgotten():
    """A flood that goes on is locked again, after as many failures as before."""
    limits = LoginLimits(3, 20, 200)
    failures(limits, "10.0.0.1", 5, now_ms=1000)
    assert limits.locks(1000) == {"10.0.0.1": Lock(1000, 1000 + LOCKED_MS, 3)}

    assert limits.release("10.0.0.1", 1000)

    assert not limits.release("10.0.0.1", 1000)
    assert limits.locks(1000) == {}
    failures(limits, "10.0.0.1", 2, now_ms=1000)
    assert limits.locked(1000) == ()
    failures(limits, "10.0.0.1", 1, now_ms=1000)
    assert limits.locked(1000) == ("10.0.0.1",)
    failures(limits, "10.0.0.1", 4, now_ms=1000 + LOCKED_MS)
    assert limits.locks(1000 + LOCKED_MS)["10.0.0.1"].since_ms == 1000 + LOCKED_MS


@pytest.mark.parametrize(
    ("text", "source", "shown"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("10.0.0.1/32", "10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("2001:db8::7", "2001:db8:0:0", "2001:db8::/64"),
        ("2001:db8::/64", "2001:db8:0:0", "2001:db8::/64"),
        ("::1", "::1", "::1"),
    ],
)
def test_an_address_is_typed_as_it_is_shown_or_as_it_comes(text, source, shown):
    """Operators copy either."""
    assert source_of(text) == source
    assert network_text(source) == shown


@pytest.mark.parametrize(
    "text", ["", "10.0.0", "10.0.0.0/8", "2001:db8::/32", "a.example", "uid 0"]
)
def test_what_is_no_address_is_refused(text):
    """A network would be released in part."""
    with pytest.raises(hms.InvalidArgument):
        source_of(text)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("2001:db8::1:2:3:4", "2001:db8:0:0"),
        ("2001:db8::5", "2001:db8:0:0"),
        ("fe80::1%eth0", "fe80:0:0:0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_failures_of_ipv6_are_counted_by_network(address, source):
    """However its zeros are written."""
    assert Caller("t", address).source == source


@pytest.mark.parametrize(
    ("caller", "remote"),
    [
        (Caller("t", "10.0.0.1"), "10.0.0.1"),
        (Caller("t", "::ffff:10.0.0.1"), "10.0.0.1"),
        (Caller("t", "2001:db8::5"), "2001:db8:0:0"),
        (Caller("t", "127.0.0.1"), ""),
        (Caller("t", "127.9.9.9"), ""),
        (Caller("t", "::ffff:127.0.0.1"), ""),
        (Caller("t", "::1"), ""),
        (Caller("ipc:///s", "", 1000, 1000), ""),
        (caller_at("t", "", ""), ""),
    ],
)
def test_this_machine_is_no_other_one(caller, remote):
    """Its connections are counted for no address."""
    assert caller.remote == remote
