"""Why a node cannot listen at an address, and what to do."""

import errno
import os

import zmq

from hms.errors.catalogue import AddressUnusable

__all__ = ["rebind", "unusable"]

REBINDS_MAX = 5000

_IN_USE = (
    "Another process listens there: `ss -ltnp` names it, hms status whether it is this node. Stop "
    "that one, or change {key} in hms.conf"
)
_NOT_OURS = (
    "This machine has no such address: `ip address` lists its own. Correct {key} in hms.conf"
)
_DENIED = (
    "The node's user may not listen there, as below port 1024 or in another's folder. Change {key} "
    "in hms.conf"
)
_OTHERWISE = "Correct {key} in hms.conf"
_CURES = {
    errno.EADDRINUSE: _IN_USE,
    errno.EADDRNOTAVAIL: _NOT_OURS,
    errno.ENODEV: _NOT_OURS,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
}


def rebind(socket: "zmq.Socket[bytes]", address: str, key: str) -> None:
    """Listen at an address anew, which cuts who is connected there; AddressUnusable."""
    socket.unbind(address)
    for _ in range(REBINDS_MAX):
        try:
            socket.bind(address)
        except zmq.ZMQError as fault:
            if fault.errno != zmq.EADDRINUSE:
                raise unusable(address, fault, key) from fault
            socket.poll(1, 0)  # its I/O thread has not closed it yet
        else:
            return
    raise unusable(address, zmq.ZMQError(zmq.EADDRINUSE), key)


def unusable(address: str, fault: zmq.ZMQError, key: str) -> AddressUnusable:
    """key: where the configuration has the address."""
    number = fault.errno or 0
    cure = _CURES.get(number, _OTHERWISE).format(key=key)
    detail = os.strerror(number).lower() if number in _CURES else str(fault)
    return AddressUnusable(address=address, detail=detail, instead=cure)
