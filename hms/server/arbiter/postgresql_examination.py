"""A PostgreSQL is examined as an arbiter: reached, TLS, version, what it keeps, clock, a row that
is compared, latency."""

import os
import time
from collections.abc import Iterator
from typing import Any, Final

from hms.errors.catalogue import ArbiterUnavailable, ArbiterUnsuitable
from hms.errors.tree import HmsError
from hms.server.arbiter.examination import (
    CHECK_NAME,
    Endpoint,
    Finding,
    Verdict,
    clock_finding,
    latency_findings,
    timed,
    verdict_of,
)
from hms.server.arbiter.postgresql import Statements

__all__ = ["examine_postgresql", "look_at_postgresql"]

LEFT_OVER_S: Final = 60
"""The row of a check that died is removed by a later one when it is older."""
SETTINGS: Final = ("fsync", "synchronous_commit", "full_page_writes", "synchronous_standby_names")
_FACTS: Final = """SELECT current_setting('server_version'), pg_is_in_recovery(),
    current_setting('default_transaction_read_only'),
    extract(epoch FROM clock_timestamp())::float8"""
_TLS: Final = "SELECT ssl, version, cipher FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
_INSERT: Final = """INSERT INTO hms_arbiter (domain, node, version, value, lease_until)
    VALUES (%s, %s, 1, 'one', clock_timestamp() + %s * interval '1 second')
    ON CONFLICT DO NOTHING RETURNING version"""
_READ: Final = "SELECT value, version FROM hms_arbiter WHERE domain = %s AND node = %s"
_CHANGE: Final = """UPDATE hms_arbiter SET version = version + 1, value = %s
    WHERE domain = %s AND node = %s AND version = %s RETURNING version"""
_WRITE: Final = """UPDATE hms_arbiter SET value = 'again' WHERE domain = %s AND node = %s
    RETURNING version"""
_DELETE: Final = "DELETE FROM hms_arbiter WHERE domain = %s AND node = %s RETURNING version"
_SWEEP: Final = """DELETE FROM hms_arbiter WHERE domain = %s AND node LIKE %s
    AND lease_until < clock_timestamp() RETURNING version"""


def look_at_postgresql(address: str, lease_s: float, password: str | None) -> list[Endpoint]:
    """The server at a glance. Raises ArbiterDriverMissing."""
    asked = Statements(address, lease_s, password)
    try:
        version, is_standby, _, _ = asked.one(_FACTS)
        settings = {name: str(asked.one(f"SHOW {name}")[0]) for name in SETTINGS}
        _, taken_s = timed(lambda: asked.one(_FACTS))
    except (ArbiterUnavailable, ArbiterUnsuitable) as fault:
        return [Endpoint(asked.shown, fault=fault.detail)]
    finally:
        asked.close()
    role = "standby" if is_standby else "primary"
    latency_ms = round(taken_s * 1000, 1)
    return [Endpoint(asked.shown, f"PostgreSQL {version}", role, latency_ms, settings)]


def examine_postgresql(
    address: str, lease_s: float, password: str | None, domain: str, count: int
) -> Iterator[Finding]:
    """All that is to be known of a PostgreSQL. count: reads and writes that are timed. Raises
    ArbiterDriverMissing."""
    asked = Statements(address, lease_s, password)
    try:
        yield from _Server(asked, lease_s, domain).examine(count)
    finally:
        asked.close()


class _Server:
    """One server."""

    def __init__(self, asked: Statements, lease_s: float, domain: str) -> None:
        self._asked, self._lease_s = asked, lease_s
        self._key = (domain, f"{CHECK_NAME}-{os.urandom(8).hex()}")

    def examine(self, count: int) -> Iterator[Finding]:
        """Each check; what cannot be asked any more ends them."""
        try:
            before_s = time.time()
            facts, taken_s = timed(lambda: self._asked.one(_FACTS))
            yield self._ok("reach", f"connected and asked in {taken_s * 1000:.1f} ms")
            yield self._tls_finding()
            yield from self._fact_findings(facts)
            before_s = time.time()
            theirs_s = float(self._asked.one(_FACTS)[3])
            yield clock_finding(self._asked.shown, theirs_s, before_s, time.time(), 0.0)
            yield from self._kept(count)
        except HmsError as fault:
            why = "it could not be asked further"
            cure = "Look whether it runs and is reached from here, and what its log says."
            detail = str(fault.fields.get("detail", fault))
            yield Finding(self._asked.shown, "reach", Verdict.FAIL, detail, why, cure)

    def _tls_finding(self) -> Finding:
        is_secured, protocol, cipher = self._asked.one(_TLS)
        if not is_secured:  # hms.conf lets that pass on this machine alone
            return self._ok("tls", "not encrypted, on this machine alone")
        return self._ok("tls", f"{protocol}, {cipher}")

    def _fact_findings(self, facts: Any) -> Iterator[Finding]:
        version, is_standby, is_read_only, _ = facts
        yield self._ok("version", f"PostgreSQL {version}")
        yield verdict_of(
            self._asked.shown,
            "role",
            "a standby, which is only read" if is_standby else "the primary",
            is_good=not is_standby and is_read_only == "off",
            why="nothing can be written there",
            cure="Name the primary in endpoints.",
        )
        settings = {name: str(self._asked.one(f"SHOW {name}")[0]) for name in SETTINGS}
        said = ", ".join(f"{name} = {value or 'none'}" for name, value in settings.items())
        yield verdict_of(
            self._asked.shown,
            "keeps",
            said,
            is_good=settings["fsync"] == "on" and settings["full_page_writes"] == "on",
            why="after a power cut it may have lost what it has said to be so",
            cure="Set fsync and full_page_writes to on.",
        )

    def _kept(self, count: int) -> Iterator[Finding]:
        """A row of the check's own, of a node that cannot be."""
        self._asked.one(_SWEEP, (self._key[0], f"{CHECK_NAME}-%"))
        try:
            yield self._compared()
            times_s = {
                "read": self._times(count, _READ),
                "write": self._times(count, _WRITE),
            }
        finally:
            is_gone = self._asked.one(_DELETE, self._key) is not None
        if not is_gone:
            why = "the row was gone by itself"
            yield Finding(self._asked.shown, "keeps", Verdict.FAIL, "not what was written", why)
        yield from latency_findings(self._asked.shown, times_s, self._lease_s)

    def _compared(self) -> Finding:
        """Made once and not twice; changed by who knows its version, and by nobody else."""
        ask, key, faults = self._asked.one, self._key, []
        if ask(_INSERT, (*key, LEFT_OVER_S)) is None:
            faults.append("a row that was not there could not be made")
        if ask(_INSERT, (*key, LEFT_OVER_S)) is not None:
            faults.append("a row was made twice")
        row = ask(_READ, key)
        if row is None or (bytes(row[0]), row[1]) != (b"one", 1):
            faults.append("what was written is not what is read")
        if ask(_CHANGE, (b"two", *key, 1)) is None:
            faults.append("a change of what nobody else had changed was refused")
        if ask(_CHANGE, (b"three", *key, 1)) is not None:
            faults.append("a change of what had changed meanwhile was done")
        return verdict_of(
            self._asked.shown,
            "compare_and_set",
            "; ".join(faults) or "made once, read back, changed by its version alone",
            is_good=not faults,
            why="the arbiter must do that, or two machines could lead at once",
            cure="Use one PostgreSQL, without a pooler that answers in its place.",
        )

    def _times(self, count: int, statement: str) -> list[float]:
        return [timed(lambda: self._asked.one(statement, self._key))[1] for _ in range(count)]

    def _ok(self, check: str, value: str) -> Finding:
        return Finding(self._asked.shown, check, Verdict.OK, value)
