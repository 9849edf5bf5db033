"""An arbiter in etcd 3.4 or later, over its JSON gateway (extra etcd).

    PREFIX/DOMAIN/NODE/config      the configuration
    PREFIX/DOMAIN/NODE/leader      who leads, bound to an etcd lease: it is gone when that ends
    PREFIX/DOMAIN/NODE/preferred   who alone may campaign, for one lease

Every change is a transaction that compares revisions. The locks of etcd are not used. 3.5.0 to
3.5.2 are refused: they may lose data in a crash. A call goes to one endpoint; after a fault, which
means that nobody knows, the next call goes to the next one.
"""

import base64
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from hms.errors.catalogue import ArbiterDriverMissing, ArbiterUnavailable, ArbiterUnsuitable
from hms.server.arbiter.interface import (
    Configuration,
    Leader,
    Seen,
    Standing,
    decode_configuration,
    encode,
    has_ended,
    led_by,
    may_campaign,
    next_epoch,
)
from hms.server.arbiter.watching import watch_with

__all__ = ["EtcdArbiter", "Tls", "check_version", "client_of", "reason_of"]

API: Final = "/v3/"
Tls = tuple[str | None, str | None, str | None]
"""Files: the authority's certificate, the client's own, its key."""
NO_TLS: Final[Tls] = (None, None, None)
LIMIT_MIN_S: Final = 0.5
_POOL: Final = re.compile(r"^HTTPS?Connection(Pool)?\([^)]*\): ")
"""What the HTTP client says before the fault: the endpoint, which is told already."""
_NO_LEASE: Final = "requested lease not found"
_LEAST, _BAD = (3, 4, 0), ((3, 5, 0), (3, 5, 2))


class EtcdArbiter:
    """See hms.server.arbiter.Arbiter. endpoints: such as http://127.0.0.1:2379."""

    def __init__(
        self,
        endpoints: Sequence[str],
        domain: str,
        node: str,
        lease_s: float,
        prefix: str = "hms",
        tls: Tls = NO_TLS,
    ) -> None:
        self._given = (list(endpoints), domain, node, lease_s, prefix, tls)
        self._endpoints = list(endpoints)
        self._folder = f"{prefix}/{domain}/{node}"
        self._lease_s, self._tls = lease_s, tls
        self._look_s = max(lease_s / 3 / len(self._endpoints), LIMIT_MIN_S)
        self._client: Any = None
        self._turn = 0
        self._seen = Seen()
        self._granted: Leader | None = None
        self._lease_id = ""

    def read(self) -> Standing | None:
        """See Arbiter."""
        config, leader, preferred = self._look()
        if config is None:
            return None
        now = self._seen.decode(_value(config), self._endpoint)
        who = None if leader is None else _leader(leader)
        return Standing(now, who, "" if preferred is None else _value(preferred).decode())

    def begin(self, first: Configuration) -> bool:
        """See Arbiter."""
        return self._transaction([_absent(self._key("config"))], [self._put_config(first)])

    def change(self, expected_version: int, new: Configuration) -> bool:
        """See Arbiter."""
        config, _, _ = self._look()
        if config is None:
            return False
        now = self._seen.decode(_value(config), self._endpoint)
        if now.version != expected_version or not led_by(now, new, self._granted):
            return False
        return self._transaction([_unchanged(config)], [self._put_config(new)])

    def force(self, expected_version: int, new: Configuration) -> bool:
        """See Arbiter."""
        config, leader, _ = self._look()
        if config is None:
            return False
        if self._seen.decode(_value(config), self._endpoint).version != expected_version:
            return False
        free = _absent(self._key("leader"))
        if leader is not None:
            free = _unchanged(leader)
            if _leader(leader).replica != new.members[0].name:
                return False
        return self._transaction([_unchanged(config), free], [self._put_config(new)])

    def campaign(self, expected_version: int, replica: str, start: int) -> Configuration | None:
        """See Arbiter."""
        config, leader, preferred = self._look()
        if config is None or leader is not None:
            return None
        now = self._seen.decode(_value(config), self._endpoint)
        if now.version != expected_version:
            return None
        if preferred is not None and not may_campaign(_value(preferred).decode(), replica):
            return None
        won = next_epoch(now, replica, start)
        granted = Leader(replica, won.epoch)
        lease = self._new_lease()
        conditions = [_unchanged(config), _absent(self._key("leader"))]
        if preferred is None:
            conditions.append(_absent(self._key("preferred")))
        if not self._transaction(
            conditions, [self._put_config(won), self._put_leader(granted, lease)]
        ):
            self._revoke(lease)
            return None
        self._granted, self._lease_id = granted, lease
        return won

    def renew(self) -> bool:
        """See Arbiter."""
        granted = self._granted
        if granted is None:
            return False
        kept = self._ask("lease/keepalive", {"ID": self._lease_id}).get("result", {})
        config, leader, _ = self._look()
        if config is None or decode_configuration(_value(config), self._endpoint).epoch != (
            granted.epoch
        ):
            return False
        if int(kept.get("TTL", 0)) > 0 and leader is not None:
            return str(leader.get("lease", "")) == self._lease_id
        if leader is not None:
            return False
        lease = self._new_lease()
        conditions = [_unchanged(config), _absent(self._key("leader"))]
        if not self._transaction(conditions, [self._put_leader(granted, lease)]):
            self._revoke(lease)
            return False
        self._lease_id = lease
        return True

    def resign(self, to: str = "") -> None:
        """See Arbiter."""
        granted = self._granted
        if granted is None:
            return
        if to:  # at once: who is to lead waits for it
            key, value = self._key("leader"), _leader_text(granted)
            put = {"key": self._key("preferred"), "value": _coded(to), "lease": self._new_lease()}
            ours = {"key": key, "target": "VALUE", "result": "EQUAL", "value": value}
            then = [{"requestPut": put}, {"requestDeleteRange": {"key": key}}]
            self._transaction([ours], then)
        self._revoke(self._lease_id)
        self._granted = None  # not before: asked again, it is done again

    def ended(self, granted: Leader) -> bool:
        """See Arbiter."""
        _, leader, _ = self._look()
        if leader is None or _leader(leader) != granted:
            return False
        said, lease = _coded(has_ended(granted.epoch)), self._new_lease()
        then = [
            {"requestDeleteRange": {"key": self._key("leader")}},
            {"requestPut": {"key": self._key("preferred"), "value": said, "lease": lease}},
        ]
        return self._transaction([_unchanged(leader)], then)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """See Arbiter."""
        own = EtcdArbiter(*self._given)
        return watch_with(own, callback, self._lease_s / 5)

    def close(self) -> None:
        """See Arbiter."""
        client, self._client = self._client, None
        if client is not None:
            client.session.close()

    # what etcd is asked

    @property
    def _endpoint(self) -> str:
        return self._endpoints[self._turn % len(self._endpoints)]

    def _key(self, name: str) -> str:
        return _coded(f"{self._folder}/{name}")

    def _put_config(self, new: Configuration) -> dict[str, Any]:
        value = base64.b64encode(encode(new)).decode()
        return {"requestPut": {"key": self._key("config"), "value": value}}

    def _put_leader(self, leader: Leader, lease: str) -> dict[str, Any]:
        value = _leader_text(leader)
        return {"requestPut": {"key": self._key("leader"), "value": value, "lease": lease}}

    def _look(self) -> tuple[Any, Any, Any]:
        """Configuration, leader and preferred, as of one moment."""
        names = ("config", "leader", "preferred")
        asked = [{"requestRange": {"key": self._key(name)}} for name in names]
        said = self._ask("kv/txn", {"compare": [], "success": asked, "failure": []})
        found = [one["response_range"].get("kvs", [None])[0] for one in said["responses"]]
        return found[0], found[1], found[2]

    def _transaction(self, conditions: list[Any], then: list[Any]) -> bool:
        said = self._ask("kv/txn", {"compare": conditions, "success": then, "failure": []})
        return bool(said.get("succeeded"))

    def _new_lease(self) -> str:
        said = self._ask("lease/grant", {"TTL": math.ceil(self._lease_s)})
        return str(said["ID"])

    def _revoke(self, lease: str) -> None:
        """End a lease; of one that has ended already nothing is left to do."""
        try:
            self._ask("kv/lease/revoke", {"ID": lease})
        except ArbiterUnavailable as fault:
            if _NO_LEASE not in str(getattr(fault.__cause__, "detail_text", "")):
                raise

    def _ask(self, path: str, said: dict[str, Any]) -> Any:
        """Whatever fails, also an answer that is none: unknown."""
        try:
            client = self._connected()
            return client.post(client.get_url(path), json=said)
        except (ArbiterDriverMissing, ArbiterUnsuitable):
            raise
        except Exception as error:
            endpoint = self._endpoint
            self.close()
            self._turn += 1
            raise ArbiterUnavailable(endpoint=endpoint, detail=reason_of(error)) from error

    def _connected(self) -> Any:
        """The client of a member that answers: nothing was asked yet, so the next one is tried. All
        that stand still are waited for no longer than one that does not end a call."""
        for left in range(len(self._endpoints) - 1, -1, -1):
            if self._client is not None:
                break
            made = self._made()
            try:
                at = f"{made.base_url}/version"
                version = made.session.get(at, timeout=self._look_s).json()
                check_version(self._endpoint, str(version["etcdserver"]))
            except Exception as error:
                made.session.close()
                if not left or isinstance(error, ArbiterUnsuitable):
                    raise
                self._turn += 1
            else:
                self._client = made
        return self._client

    def _made(self) -> Any:
        return client_of(self._endpoint, self._lease_s, self._tls)


def client_of(endpoint: str, lease_s: float, tls: Tls) -> Any:
    """Of one endpoint; nothing is asked yet. ArbiterDriverMissing."""
    try:
        import etcd3gw  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ArbiterDriverMissing(driver="etcd3gw", extra="etcd") from error
    where = urlsplit(endpoint)
    authority, own, key = tls
    made = etcd3gw.Etcd3Client(
        host=where.hostname or "127.0.0.1",
        port=where.port or 2379,
        protocol=where.scheme,
        ca_cert=authority,
        cert_cert=own,
        cert_key=key,
        timeout=max(lease_s / 3, LIMIT_MIN_S),
        api_path=API,
    )
    if authority is not None:  # else REQUESTS_CA_BUNDLE would be taken instead of it
        made.session.trust_env = False
    return made


def check_version(endpoint: str, version: str) -> None:
    """ArbiterUnsuitable for one that is too old, or may lose data in a crash."""
    found = tuple(int(part) for part in version.partition("-")[0].split("."))
    if found < _LEAST or _BAD[0] <= found <= _BAD[1]:
        detail = f"etcd {version} is refused: 3.4 or later is needed, and not 3.5.0 to 3.5.2"
        raise ArbiterUnsuitable(endpoint=endpoint, detail=detail)


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _value(found: Any) -> bytes:
    return base64.b64decode(found.get("value", ""))  # an empty one is left out


def _leader_text(leader: Leader) -> str:
    return _coded(f"{leader.replica} {leader.epoch}")


def _leader(found: Any) -> Leader:
    name, _, epoch = _value(found).decode(errors="replace").rpartition(" ")
    return Leader(name, int(epoch) if epoch.isdigit() else 0)


def _absent(key: str) -> dict[str, Any]:
    return {"key": key, "target": "VERSION", "result": "EQUAL", "version": "0"}


def _unchanged(found: Any) -> dict[str, Any]:
    revision = found["mod_revision"]
    return {"key": found["key"], "target": "MOD", "result": "EQUAL", "mod_revision": revision}


def reason_of(error: Exception) -> str:
    """The fault in one line, without what the HTTP client wraps it in."""
    about = error.args[0] if error.args else None
    text = " ".join(str(getattr(about, "reason", None) or error).split())
    return _POOL.sub("", text)[:300] or type(error).__name__
