"""A filter in the kernel that drops what opens a connection from locked addresses.

Encryption costs the node 0.7 ms for each new connection, in libzmq and before anybody can ask who
it is. So the kernel drops the SYN of an address that has failed too often: a classic packet filter
(SO_ATTACH_FILTER) on the listening socket, for which Linux asks no privilege. Accepted sockets
inherit the filter; as it drops nothing but a SYN without an ACK, it changes nothing for them.
"""

import contextlib
import ctypes
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable

__all__ = ["ADDRESSES_MAX", "attach", "program"]

ADDRESSES_MAX = 256
"""So the program stays within the memory that the kernel has for options of a socket."""
_ATTACH, _DETACH = 26, 27
"""SO_ATTACH_FILTER and SO_DETACH_FILTER of asm-generic/socket.h."""
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD, _LOAD_BYTE, _AND, _IF, _JUMP, _RETURN = 0x20, 0x30, 0x54, 0x15, 0x05, 0x06
_NETWORK = 0xFFF00000
"""SKF_NET_OFF of linux/filter.h: offsets from here are in the IP header, others in that of TCP."""
_FLAGS_AT, _SYN, _SYN_ACK = 13, 0x02, 0x12
_SOURCE_4_AT, _SOURCE_6_AT = 12, 8
_ALL = 0xFFFFFFFF

_Step = tuple[int, int, int, int]
_PASS: _Step = (_RETURN, 0, 0, _ALL)
_DROP: _Step = (_RETURN, 0, 0, 0)


def program(sources: Iterable[str]) -> bytes:
    """The instructions for at most ADDRESSES_MAX addresses, IPv6 as its /64 such as 2001:db8:0:1;
    b"" when there are none. Other texts are left out. Each address is followed by its own DROP, so
    that no jump is longer than the 8 bits that a condition has."""
    four, six = list[int](), list[tuple[int, int]]()
    for source in list(sources)[:ADDRESSES_MAX]:
        with contextlib.suppress(ValueError):
            if ":" in source:
                network = ipaddress.IPv6Address(f"{source}::" if "::" not in source else source)
                high = int(network) >> 64
                six.append((high >> 32, high & _ALL))
            else:
                four.append(int(ipaddress.IPv4Address(source)))
    if not four and not six:
        return b""
    of_four = [(_LOAD, 0, 0, _NETWORK + _SOURCE_4_AT)]
    for address in four:
        of_four += [(_IF, 0, 1, address), _DROP]
    of_four.append(_PASS)
    of_six = list[_Step]()
    for first, second in six:
        of_six += [(_LOAD, 0, 0, _NETWORK + _SOURCE_6_AT), (_IF, 0, 3, first)]
        of_six += [(_LOAD, 0, 0, _NETWORK + _SOURCE_6_AT + 4), (_IF, 0, 1, second), _DROP]
    of_six.append(_PASS)
    steps: list[_Step] = [
        (_LOAD_BYTE, 0, 0, _FLAGS_AT),
        (_AND, 0, 0, _SYN_ACK),
        (_IF, 1, 0, _SYN),
        _PASS,
        (_LOAD_BYTE, 0, 0, _NETWORK),
        (_AND, 0, 0, 0xF0),
        (_IF, 1, 0, 0x40),
        (_JUMP, 0, 0, len(of_four)),
        *of_four,
        *of_six,
    ]
    return b"".join(_INSTRUCTION.pack(*step) for step in steps)


def attach(descriptor: int, code: bytes) -> bool:
    """Have a listening TCP socket drop what a program of program() says, b"": nothing. False when
    it is no such socket any more, or the system has no filters."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        return False
    try:
        listening = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return False
    with listening:
        return _set(listening, code)


def _set(listening: socket.socket, code: bytes) -> bool:
    if listening.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        if not listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        if not code:
            listening.setsockopt(socket.SOL_SOCKET, _DETACH, 0)
            return True
        held = ctypes.create_string_buffer(code, len(code))
        head = struct.pack("HP", len(code) // _INSTRUCTION.size, ctypes.addressof(held))
        listening.setsockopt(socket.SOL_SOCKET, _ATTACH, head)
    except OSError:
        return False
    return True
