"""An etcd is examined, endpoint by endpoint: reached, TLS, version, its cluster, clock, lease, a
key that is compared, latency."""

import base64
import math
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

from hms.errors.catalogue import ArbiterUnsuitable
from hms.server.arbiter.etcd import Tls, check_version, client_of, reason_of
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

__all__ = ["examine_etcd", "look_at_etcd"]

EXACT_S: Final = 1.0
"""A Date of HTTP tells whole seconds."""
CERTIFICATE_DAYS: Final = 14
_NEVER: Final = "the arbiter must do that, or two machines could lead at once"


def look_at_etcd(endpoints: Sequence[str], lease_s: float, tls: Tls) -> list[Endpoint]:
    """Each endpoint at a glance. Raises ArbiterDriverMissing."""
    return [_Member(one, lease_s, tls).glance() for one in endpoints]


def examine_etcd(
    endpoints: Sequence[str], lease_s: float, tls: Tls, folder: str, count: int
) -> Iterator[Finding]:
    """All that is to be known of an etcd. folder: below which the node's keys are; count: reads and
    writes that are timed. Raises ArbiterDriverMissing."""
    clusters: dict[str, str] = {}
    for endpoint in endpoints:
        member = _Member(endpoint, lease_s, tls)
        try:
            yield from member.examine(folder, count)
        finally:
            member.close()
        if member.cluster:
            clusters[endpoint] = member.cluster
    if len(set(clusters.values())) > 1:
        each = ", ".join(f"{where} is of {which}" for where, which in clusters.items())
        why = "they are two etcds, and each would have a leader of its own"
        cure = "Name the members of one etcd in endpoints."
        yield Finding(",".join(clusters), "cluster", Verdict.FAIL, each, why, cure)


class _Member:
    """One endpoint. cluster: which etcd it is of, once that is known."""

    def __init__(self, endpoint: str, lease_s: float, tls: Tls) -> None:
        self._endpoint, self._lease_s, self._tls = endpoint, lease_s, tls
        self._client = client_of(endpoint, lease_s, tls)
        self.cluster = ""

    def close(self) -> None:
        """Let go of the connection."""
        self._client.session.close()

    def glance(self) -> Endpoint:
        """Version, role, and how long a linearizable read takes."""
        try:
            version, _ = self._version()
            role = self._role(self._ask("maintenance/status", {}))
            _, taken_s = timed(lambda: self._ask("kv/range", {"key": _coded(CHECK_NAME)}))
        except Exception as error:  # noqa: BLE001 - whatever it is, it says nothing
            return Endpoint(self._endpoint, fault=reason_of(error))
        finally:
            self.close()
        settings = {"keeps": "each write synced by a majority"}
        latency_ms = round(taken_s * 1000, 1)
        return Endpoint(self._endpoint, f"etcd {version}", role, latency_ms, settings)

    def examine(self, folder: str, count: int) -> Iterator[Finding]:
        """Each check; what cannot be asked any more ends them."""
        try:
            (version, date), taken_s = timed(self._version)
            yield self._ok("reach", f"answers in {taken_s * 1000:.1f} ms")
            after_s = time.time()
            yield self._tls_finding()
            yield self._version_finding(version)
            yield self._member_finding(self._ask("maintenance/status", {}))
            theirs_s = parsedate_to_datetime(date).timestamp() + EXACT_S / 2
            yield clock_finding(self._endpoint, theirs_s, after_s - taken_s, after_s, EXACT_S)
            yield from self._kept(f"{folder}/{CHECK_NAME}-{os.urandom(8).hex()}", count)
        except Exception as error:  # noqa: BLE001 - kinds of faults are not told apart
            why = "it could not be asked further"
            cure = "Look whether it runs and is reached from here, and what its log says."
            yield Finding(self._endpoint, "reach", Verdict.FAIL, reason_of(error), why, cure)

    def _version(self) -> tuple[str, str]:
        client = self._client
        said = client.session.get(f"{client.base_url}/version", timeout=client.timeout)
        said.raise_for_status()
        return str(said.json()["etcdserver"]), str(said.headers["Date"])

    def _version_finding(self, version: str) -> Finding:
        try:
            check_version(self._endpoint, version)
        except ArbiterUnsuitable as fault:
            return self._fail("version", f"etcd {version}", fault.detail, "Upgrade etcd.")
        return self._ok("version", f"etcd {version}")

    def _tls_finding(self) -> Finding:
        where = urlsplit(self._endpoint)
        if where.scheme != "https":
            return self._ok("tls", "not encrypted, on this machine alone")
        host, port = where.hostname or "127.0.0.1", where.port or 2379
        authority, own, key = self._tls
        context = ssl.create_default_context(cafile=authority)
        if own is not None:
            context.load_cert_chain(own, key)
        wait_s = max(self._lease_s / 3, 0.5)
        with (
            socket.create_connection((host, port), wait_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            protocol, certificate = secured.version(), secured.getpeercert() or {}
        ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)
        days = (ends - datetime.now(UTC)).days
        value = f"{protocol}, the certificate of {host} ends in {days} days"
        if own is None:
            why = "it asks for no certificate of ours: any machine that reaches it could lead"
            cure = "Set cert_file and key_file, and client-cert-auth at etcd."
        elif days < CERTIFICATE_DAYS:
            why, cure = "then nobody can take over", "Renew it."
        else:
            return self._ok("tls", value)
        return Finding(self._endpoint, "tls", Verdict.WARN, value, why, cure)

    def _member_finding(self, said: Any) -> Finding:
        self.cluster = str(said["header"]["cluster_id"])
        role, errors = self._role(said), said.get("errors") or []
        value = f"{role}, term {said.get('raftTerm', '?')}, {said.get('dbSize', '0')} bytes"
        if role == "no leader":
            return self._fail("member", value, "it writes nothing", "Boot a majority of etcd.")
        if errors:
            why = "; ".join(map(str, errors))
            return self._fail("member", value, why, "etcdctl alarm list says more.")
        return self._ok("member", value)

    @staticmethod
    def _role(said: Any) -> str:
        leader = str(said.get("leader", "0"))
        if leader == "0":
            return "no leader"
        return "leader" if leader == str(said["header"]["member_id"]) else "follower"

    def _kept(self, name: str, count: int) -> Iterator[Finding]:
        """A key of the check's own, bound to a lease: it is gone also when this process dies."""
        asked_s = math.ceil(self._lease_s)
        lease = self._ask("lease/grant", {"TTL": asked_s})
        try:
            yield self._lease_finding(asked_s, int(lease["TTL"]))
            key, put = _coded(name), self._put(name, lease["ID"])
            yield self._compared(key, put)
            times_s = {
                "read": self._times(count, lambda: self._ask("kv/range", {"key": key})),
                "write": self._times(count, lambda: self._ask("kv/put", put(b"again"))),
            }
        finally:
            self._ask("kv/lease/revoke", {"ID": lease["ID"]})
        is_gone = not self._ask("kv/range", {"key": key}).get("kvs")
        why, cure = "the key outlived its lease", "Look at etcd's log."
        yield verdict_of(
            self._endpoint,
            "lease.end",
            "the key goes with its lease" if is_gone else "the key is there still",
            is_good=is_gone,
            why=why,
            cure=cure,
        )
        yield from latency_findings(self._endpoint, times_s, self._lease_s)

    def _lease_finding(self, asked_s: int, given_s: int) -> Finding:
        value = f"{given_s} s for {asked_s} s"
        if given_s == asked_s:
            return self._ok("lease", value)
        why = "a take-over waits for so long"
        cure = "Shorten etcd's election-timeout: no lease is shorter than one and a half of it."
        return Finding(self._endpoint, "lease", Verdict.WARN, value, why, cure)

    def _compared(self, key: str, put: Callable[[bytes], dict[str, Any]]) -> Finding:
        """Made once and not twice; changed by who knows its revision, and by nobody else."""
        absent = {"key": key, "target": "VERSION", "result": "EQUAL", "version": "0"}
        faults = []
        if not self._does(absent, put(b"one")):
            faults.append("a key that was not there could not be made")
        if self._does(absent, put(b"two")):
            faults.append("a key was made twice")
        kvs = self._ask("kv/range", {"key": key}).get("kvs", [{}])
        if base64.b64decode(kvs[0].get("value", "")) != b"one":
            faults.append("what was written is not what is read")
        revision = str(kvs[0].get("mod_revision", "0"))
        same = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision}
        if not self._does(same, put(b"three")):
            faults.append("a change of what nobody else had changed was refused")
        if self._does(same, put(b"four")):
            faults.append("a change of what had changed meanwhile was done")
        value = "; ".join(faults) or "made once, read back, changed by its revision alone"
        return verdict_of(
            self._endpoint,
            "compare_and_set",
            value,
            is_good=not faults,
            why=_NEVER,
            cure="Use an etcd that does, without a proxy that answers in its place.",
        )

    def _does(self, condition: dict[str, Any], put: dict[str, Any]) -> bool:
        asked = {"compare": [condition], "success": [{"requestPut": put}], "failure": []}
        return bool(self._ask("kv/txn", asked).get("succeeded"))

    @staticmethod
    def _put(name: str, lease: str) -> Callable[[bytes], dict[str, Any]]:
        def put(value: bytes) -> dict[str, Any]:
            said = base64.b64encode(value).decode()
            return {"key": _coded(name), "value": said, "lease": lease}

        return put

    @staticmethod
    def _times(count: int, ask: Callable[[], Any]) -> list[float]:
        return [timed(ask)[1] for _ in range(count)]

    def _ask(self, path: str, said: dict[str, Any]) -> Any:
        return self._client.post(self._client.get_url(path), json=said)

    def _ok(self, check: str, value: str) -> Finding:
        return Finding(self._endpoint, check, Verdict.OK, value)

    def _fail(self, check: str, value: str, why: str, cure: str) -> Finding:
        return Finding(self._endpoint, check, Verdict.FAIL, value, why, cure)


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
