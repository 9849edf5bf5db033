"""An arbiter: what hms.conf says of it, checked."""

from collections.abc import Iterator
from urllib.parse import SplitResult, parse_qs, urlsplit

from hms.boot.check import Found, Report
from hms.boot.kinds_cluster import is_loopback
from hms.boot.sections.replica_sections import places

__all__ = ["check_arbiter"]

_SECURE = ("require", "verify-ca", "verify-full")
_WRITES = ("read-write", "primary")
_UNUSED_OF_POSTGRESQL = {
    key: f"is etcd's; of PostgreSQL {word}= in endpoints"
    for key, word in (
        ("ca_file", "sslrootcert"),
        ("cert_file", "sslcert"),
        ("key_file", "sslkey"),
    )
}


def check_arbiter(arbiter: Found, report: Report) -> None:
    """Report what could not be asked, or not safely."""
    kind, endpoints = arbiter.values["kind"], arbiter.values["endpoints"]
    if not arbiter.is_good("kind", "endpoints") or kind is None or endpoints is None:
        return
    path = (*arbiter.path, "endpoints")
    seen = set[str]()
    for one in endpoints:
        fault = _endpoint_fault(one, kind)
        if not fault and _known_as(one) in seen:
            fault = f"{one!r} is there twice"
        seen.add(_known_as(one))
        if fault:
            report.add(path, f"{arbiter.title} endpoints: {fault}")
    if kind == "postgresql" and len(endpoints) > 1:
        text = "of PostgreSQL there is one: name its standby in it, HOST:PORT,HOST:PORT"
        report.add(path, f"{arbiter.title} endpoints: {text}")
    unused = _UNUSED_OF_POSTGRESQL if kind == "postgresql" else _unused_of_etcd(endpoints)
    for key, fault in unused.items():
        if arbiter.values[key] is not None and arbiter.is_good(key):
            report.add((*arbiter.path, key), f"{arbiter.title} {key}: {fault}")
    _check_pair(arbiter, kind, report)


def _known_as(endpoint: str) -> str:
    return endpoint.replace("//localhost", "//127.0.0.1").rstrip("/").lower()


def _endpoint_fault(endpoint: str, kind: str) -> str:
    """What is wrong with it; "" nothing."""
    if endpoint.startswith("postgresql://") != (kind == "postgresql"):
        wanted = "postgresql://" if kind == "postgresql" else "http:// or https://"
        return f"kind {kind!r} wants {wanted}"
    parts = urlsplit(endpoint)
    if kind == "etcd" and not parts.hostname:
        return f"{endpoint!r} names no host"
    if kind == "etcd" and (parts.path.strip("/") or parts.query or parts.fragment):
        return f"{endpoint!r} has a path: it ends with the port, such as https://etcd1:2379"
    if "service" in parse_qs(parts.query):
        return f"{endpoint!r} has a service: name the host"
    return _way_fault(endpoint, parts)


def _way_fault(endpoint: str, parts: SplitResult) -> str:
    if len(places(parts)) > 1 and not _asks_the_primary(parts):
        add = f"target_session_attrs={_WRITES[0]}"
        return f"{endpoint!r} names several hosts: add {add}, else a standby may be asked"
    if not _is_safe(parts):
        instead = "use https://" if parts.scheme != "postgresql" else "add ?sslmode=verify-full"
        return f"{endpoint!r} is beyond loopback and not encrypted: {instead}"
    return ""


def _asks_the_primary(parts: SplitResult) -> bool:
    said = parse_qs(parts.query).get("target_session_attrs", [])
    return bool(said) and said[-1] in _WRITES


def _is_safe(parts: SplitResult) -> bool:
    if parts.scheme != "postgresql":
        return parts.scheme == "https" or is_loopback(parts.hostname or "")
    modes = parse_qs(parts.query).get("sslmode", [])
    if modes and all(mode in _SECURE for mode in modes):
        return True
    return all(is_loopback(host) or host.startswith("/") for host in _hosts(parts))


def _hosts(parts: SplitResult) -> Iterator[str]:
    """As libpq reads them: of the address, and of its query."""
    asked = parse_qs(parts.query)
    named = [one.hostname or "" for one in places(parts)]
    for text in (*named, *asked.get("host", []), *asked.get("hostaddr", [])):
        yield from filter(None, text.split(","))


def _unused_of_etcd(endpoints: tuple[str, ...]) -> dict[str, str]:
    """Keys that would do nothing, and why."""
    found = {"password": "etcd is asked without one: use cert_file and key_file"}
    if not any(one.startswith("https://") for one in endpoints):
        text = "with http:// nothing is encrypted: use https:// in endpoints"
        found |= dict.fromkeys(_UNUSED_OF_POSTGRESQL, text)
    return found


def _check_pair(arbiter: Found, kind: str, report: Report) -> None:
    both = ("cert_file", "key_file")
    for key, other in (both, both[::-1]):
        lacks = arbiter.values[key] is not None and arbiter.values[other] is None
        if kind == "etcd" and lacks and arbiter.is_good(*both):
            report.add((*arbiter.path, key), f"{arbiter.title} needs {other} beside {key}")
