"""Identities: a number that others see is no key to a client's connection (P12)."""

import pytest

import hms
from hms.wire import structures as wire
from hms.wire.client_identity import check_identity, uid_of
from hms.wire.frames import Kind
from tests.support.hello import hello_of
from tests.support.memory import SETTINGS, MemoryNode


@pytest.mark.parametrize(
    ("uid", "secret"),
    [
        (0, b""),
        (0, b"s" * 16),
        (uid_of(b"s" * 16), b""),
        (uid_of(b"s" * 15), b"s" * 15),
        (uid_of(b"s" * 65), b"s" * 65),
        (uid_of(b"s" * 16), b"t" * 16),
    ],
)
def test_a_number_without_its_secret_is_refused(uid, secret):
    """Number 0 is the node's own, short secrets can be guessed, and others' numbers are known."""
    with pytest.raises(hms.IdentityRefused):
        check_identity(uid, secret)


def test_a_secret_proves_its_number():
    """Who has the secret is let in."""
    check_identity(uid_of(b"s" * 16), b"s" * 16)


def test_a_stranger_who_knows_a_number_does_not_take_the_connection_over():
    """Message ids, file names and the log show uids to all."""
    node = MemoryNode(SETTINGS)
    victim = hello_of(7)
    node.send("victim", Kind.HELLO, wire.encode(victim))

    ((envelope, payload),) = node.send(
        "stranger", Kind.HELLO, wire.encode(wire.Hello(victim.uid, secret=b"x" * 16))
    )
    assert envelope.kind is Kind.ERROR
    assert isinstance(wire.decode_error(payload), hms.IdentityRefused)
    node.send("nobody", Kind.HELLO, wire.encode(wire.Hello(victim.uid)))

    request = wire.encode(wire.OpenSession(1))
    assert [e.kind for e, _ in node.send("victim", Kind.REQUEST, request)] == [Kind.REPLY]


def test_a_hello_shows_no_secret():
    """What stands in a log or a traceback is read by others."""
    assert "0007" not in repr(hello_of(7, resume=b"geheim"))
    assert "geheim" not in repr(hello_of(7, resume=b"geheim"))
