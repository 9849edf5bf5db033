"""When certificates end: the one date that is read of a file of certificates, without a library."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

__all__ = ["ends_ms"]

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_VERSION: Final = 0xA0
_TWO_DIGITS: Final = 0x17
_LONG: Final = 0x80
_VALIDITY: Final = 3
"""Its place among the fields behind the version: serial, algorithm, issuer, validity (RFC 5280)."""


def ends_ms(path: Path) -> int:
    """When the first certificate of a file in PEM ends, since 1970 UTC; 0 for what cannot be read:
    its user says so."""
    ends = []
    with suppress(OSError, ValueError, IndexError):
        for part in path.read_text().split(_BEGIN)[1:]:
            text = _BEGIN + part.partition(_END)[0] + _END
            ends.append(_end_of(ssl.PEM_cert_to_DER_cert(text)))
    return min(ends, default=0)


def _end_of(certificate: bytes) -> int:
    signed = _fields(_fields(certificate)[0][1])[0][1]
    fields = [one for one in _fields(signed) if one[0] != _VERSION]
    tag, text = _fields(fields[_VALIDITY][1])[1]
    form = "%y%m%d%H%M%SZ" if tag == _TWO_DIGITS else "%Y%m%d%H%M%SZ"
    end = datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC)
    return round(end.timestamp() * 1000)


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    return list(_each(data))


def _each(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of what stands in DER one after the other."""
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size & _LONG:
            digits = size & ~_LONG
            size = int.from_bytes(data[at : at + digits], "big")
            at += digits
        yield tag, data[at : at + size]
        at += size
