"""[arbiter] and [replica.NAME]: a node with a copy of its log on a second machine."""

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from msgspec import Meta, field

from hms.boot import database_kinds, kinds, kinds_cluster
from hms.boot.kinds import Refused, shown
from hms.boot.sections.section import ABSENT, Entry, Named, Section, key, reads

__all__ = ["ARBITER", "REPLICA", "Arbiter", "Replica", "places"]


def _endpoints(value: Any) -> tuple[str, ...]:
    """A list of addresses, http://, https:// or postgresql://, without a password."""
    if not isinstance(value, list) or not value:
        raise Refused(f'must be a list such as ["https://etcd1:2379"], not {shown(value)}')
    for one in value:
        known = isinstance(one, str) and one.startswith(("http://", "https://", "postgresql://"))
        if not known:
            raise Refused(f"{shown(one)} is no http://, https:// or postgresql:// address")
        try:
            parts = urlsplit(one)
            _ = [place.port for place in places(parts)]
        except ValueError as fault:
            raise Refused(f"is no address: {fault}") from fault
        if parts.password is not None or "password=" in parts.query:
            raise Refused("a password does not stand in hms.conf: name it in password")
    return tuple(value)


def places(endpoint: SplitResult) -> list[SplitResult]:
    """Where an endpoint is: of PostgreSQL libpq takes several, HOST:PORT,HOST:PORT."""
    if endpoint.scheme != "postgresql":
        return [endpoint]
    return [urlsplit(f"//{one}") for one in endpoint.netloc.rpartition("@")[2].split(",")]


def _address(value: Any) -> str:
    """An address of the machine, tcp://HOST:PORT."""
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        is_good = parts.scheme == "tcp" and parts.hostname and parts.port and not parts.path
    except ValueError:
        is_good = False
    if not is_good:
        raise Refused(f"must be such as tcp://10.0.0.1:7710, not {shown(value)}")
    return str(value)


def _listen(value: Any) -> tuple[str, ...]:
    """A list of addresses, tcp://HOST:PORT."""
    if not isinstance(value, list) or not value:
        raise Refused(f'must be a list such as ["tcp://10.0.0.1:7700"], not {shown(value)}')
    return tuple(_address(one) for one in value)


Name = Annotated[str, reads(kinds.name)]
Secret = Annotated[str, reads(database_kinds.secret)]
Endpoints = Annotated[tuple[str, ...], reads(_endpoints)]
Address = Annotated[str, reads(_address)]
Listen = Annotated[tuple[str, ...], reads(_listen)]
PublicKey = Annotated[str, reads(kinds_cluster.public_key)]


class Arbiter(Entry, frozen=True, kw_only=True):
    """Who decides which replica of a node leads: an etcd or a PostgreSQL."""

    kind: Annotated[Literal["etcd", "postgresql"], key(example="etcd")]
    """etcd 3.4 or later (extra etcd), or PostgreSQL (extra sql)."""
    endpoints: Annotated[Endpoints, key(example=["https://etcd1:2379", "https://etcd2:2379"])]
    """Where it is; of PostgreSQL one, "postgresql://USER@HOST/NAME", where HOST may be
    HOST:PORT,HOST:PORT with ?target_session_attrs=read-write for a server and its standby."""
    prefix: Name = "hms"
    """What its keys in etcd begin with."""
    ca_file: Annotated[Path | None, key(otherwise="none", example="keys/etcd-ca.pem")] = None
    """The certificate of the authority that signed etcd's."""
    cert_file: Annotated[Path | None, key(otherwise="none", example="keys/etcd-node.pem")] = None
    """The node's own certificate for etcd."""
    key_file: Annotated[Path | None, key(otherwise="none", example="keys/etcd-node.key")] = None
    """The key of that certificate."""
    password: Annotated[
        Secret | None, key(otherwise="none", example="env:HMS_ARBITER_PASSWORD")
    ] = None
    """Where PostgreSQL's password is, never the password itself: "env:NAME" or "file:PATH"."""
    lease_s: Annotated[float, Meta(ge=3, le=120)] = 5
    """How long a primary may be silent before another replica takes over."""


class Replica(Named, frozen=True, kw_only=True):
    """A copy of a node's log, with its machine; a node has none, or two to seven."""

    nodename: Annotated[Name, key(otherwise="the only node of this file", example="NODE1")] = field(
        name="NODENAME"
    )
    """The node it is a copy of."""
    address: Annotated[Address, key(example="tcp://10.0.0.1:7710")]
    """Where the other replicas find this one; beyond loopback all need keys."""
    listen: Annotated[
        Listen | None,
        key(otherwise="clients are told no address", example=["tcp://10.0.0.1:7700"]),
    ] = None
    """Where clients find it, as all replicas tell them: then one address of the node suffices."""
    mode: Literal["SYNC", "ASYNC"] = "SYNC"
    """ASYNC: it gets the log and never counts: nothing waits for it, and it never takes over by
    itself. For a copy in another city; one replica at least is SYNC."""
    engine_roll: Literal["STANDBY", "ACTIVE"] = "STANDBY"
    """ACTIVE: the preferred one, which leads again by itself with failback = "AUTO"."""
    key_file: Annotated[Path | None, key(otherwise="none", example="keys/replica-a.key")] = None
    """The file with its key pair, on its machine; hms config keys writes it."""
    scrub_s: Annotated[float, Meta(ge=0.01, le=86_400)] = 60
    """A segment of its log that is not written any more is read in every so many seconds, to find
    bits that were damaged."""
    standby: Literal["HOT", "WARM"] = "HOT"
    """HOT: while it follows it applies what is confirmed, so that a take-over need not read the
    log; that takes the memory of a primary. WARM: the log is read at the take-over."""
    public_key: Annotated[
        PublicKey | None, key(otherwise="none", example="rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7")
    ] = None
    """Its public key, by which the others know it."""


ARBITER = Section(("arbiter",), Arbiter, "# [arbiter]", later={"user": ABSENT})

REPLICA = Section(
    ("replica",),
    Replica,
    "# [replica.a]",
    later={
        "rank": ABSENT,
        "copy_history": f"the history is always copied: {ABSENT}",
        "store": "stands in [node.NAME] of that machine",
    },
)
