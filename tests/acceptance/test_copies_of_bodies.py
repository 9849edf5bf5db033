"""A large body is copied no more often than it must be, from the sender's to the receiver's."""

import sys

import pytest

from bench.copies import Copies, measured

MOST = Copies(send_client=1, send_node=2, deliver_node=1, deliver_client=2)
"""Joined with its row, and lent to ZeroMQ; read by ZeroMQ, and taken out of its frame; joined with
its row, and lent to ZeroMQ; read by ZeroMQ, and taken out of its frame. Only ever lowered."""
BESIDE = 0.3
"""What goes beside a body, in copies of it."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="page faults are counted in /proc")
def test_a_body_of_a_mebibyte_is_copied_so_often():
    """Each copy is a fifth of a millisecond, and a mebibyte of fresh memory."""
    found = measured(1 << 20, bodies=10)
    over = [
        f"{name}: {copies:.2f}"
        for name, copies, most in zip(Copies._fields, found, MOST, strict=True)
        if copies > most + BESIDE
    ]
    assert not over
