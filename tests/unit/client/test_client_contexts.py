"""The ZeroMQ context that all connections of a process share."""

import zmq

from hms.client.core.transport import contexts


def test_a_process_may_have_thousands_of_connections():
    """ZeroMQ's own limit of 1,023 sockets is reached with 341 connections; the 342nd would be told
    that no node answers."""
    context = contexts.acquire()
    try:
        assert context.get(zmq.MAX_SOCKETS) == 8192
    finally:
        contexts.release(waits=True)
