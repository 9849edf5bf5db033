"""The arbiter of hms.conf, examined: `hms arbiter status` and `hms arbiter check`."""

from collections.abc import Iterator

from hms.boot.entries import Config, Node
from hms.boot.replicating import arbiter_password, arbiter_tls
from hms.errors.catalogue import NotSupported
from hms.server.arbiter.etcd_examination import examine_etcd, look_at_etcd
from hms.server.arbiter.examination import Endpoint, Finding
from hms.server.arbiter.postgresql_examination import examine_postgresql, look_at_postgresql

__all__ = ["endpoints_of", "findings_of", "require_arbiter"]


def require_arbiter(config: Config) -> None:
    """NotSupported for a configuration without one."""
    if config.arbiter is None:
        raise NotSupported(
            feature=f"hms arbiter with {config.path}, which has none",
            instead="Add [arbiter], and a [replica.NAME] for each copy.",
        )


def endpoints_of(config: Config) -> list[Endpoint]:
    """Each endpoint at a glance."""
    said = config.arbiter
    assert said is not None, "see require_arbiter"
    if said.kind == "postgresql":
        return look_at_postgresql(said.endpoints[0], said.lease_s, arbiter_password(config))
    return look_at_etcd(said.endpoints, said.lease_s, arbiter_tls(config))


def findings_of(config: Config, node: Node, count: int) -> Iterator[Finding]:
    """All that can be asked. count: reads and writes that are timed."""
    said = config.arbiter
    assert said is not None, "see require_arbiter"
    domain = config.domain.name
    if said.kind == "postgresql":
        password = arbiter_password(config)
        return examine_postgresql(said.endpoints[0], said.lease_s, password, domain, count)
    folder = f"{said.prefix}/{domain}/{node.name}"
    return examine_etcd(said.endpoints, said.lease_s, arbiter_tls(config), folder, count)
