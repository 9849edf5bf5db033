"""Clusters: what hms.conf says of nodes that act as one, checked and handed to engine and links."""

from hms.boot.check import Found, Report
from hms.boot.destinations import Homes
from hms.boot.entries import Config, Group, Node
from hms.boot.kinds import did_you_mean
from hms.boot.kinds_cluster import is_loopback
from hms.boot.link_keys import keys_since
from hms.boot.sections import DOMAIN, NODE, QUEUE, SVRGROUP, TOPIC
from hms.boot.sizes import frame_bytes_max
from hms.engine.cluster.cluster_settings import ClusterSettings, GlobalQueue, Scope
from hms.errors.catalogue import LinkKeyError, NotSupported
from hms.server.links.keys import read_key_file
from hms.server.links.link_settings import LinkPeer, LinkSettings

OFFER_ROOM_BYTES = 1 << 20
"""What an offer takes beside its messages."""


def check_clusters(every: list[Found], homes: Homes, report: Report) -> None:
    """Report what keeps nodes from being a cluster."""
    groups = [f for f in every if f.section is SVRGROUP and f.values["hmsport"] is not None]
    linked = {_node_of(group, every) for group in groups}
    _check_addresses(groups, report)
    _check_master(every, linked, report)
    for group in groups:
        _check_keys(group, groups, report)
    databases = {f.name for f in every if f.section is NODE and f.values["database"] is not None}
    places = [f for f in every if f.section in {QUEUE, TOPIC} and f.values["global_"] == "Y"]
    for place in places:
        here = homes(place) or frozenset()
        for name in sorted(here - linked):
            text = f"{place.title} GLOBAL: node {name} has no HMSPORT in its server group"
            report.add((*place.path, "GLOBAL"), text)
        for name in sorted(here & linked & databases):
            text = f"{place.title} GLOBAL: node {name} keeps messages in a database, not in a log"
            report.add((*place.path, "GLOBAL"), text)


def _node_of(group: Found, every: list[Found]) -> str | None:
    names = [found.name for found in every if found.section is NODE]
    wanted: str | None = group.values["nodename"]
    return names[0] if wanted is None and len(names) == 1 else wanted


def _check_master(every: list[Found], linked: set[str | None], report: Report) -> None:
    """A master that is no member would leave nobody to change anything."""
    for domain in (found for found in every if found.section is DOMAIN):
        master = domain.values["config_master"]
        if master is None or master in linked:
            continue
        names = tuple(sorted(name for name in linked if name is not None))
        text = f"{domain.title} config_master: node {master!r} is in no cluster"
        hint = did_you_mean(master, names) or "; it needs HMSPORT in its server group"
        report.add((*domain.path, "config_master"), text + hint)


def _check_addresses(groups: list[Found], report: Report) -> None:
    taken: dict[tuple[str, int], Found] = {}
    for group in groups:
        address = group.values["link_host"], group.values["hmsport"]
        owner = taken.setdefault(address, group)
        if owner is not group:
            text = f"{group.title} HMSPORT {address[1]} of {address[0]} is that of {owner.title}"
            report.add((*group.path, "HMSPORT"), f"{text} already")


def _check_keys(group: Found, groups: list[Found], report: Report) -> None:
    """All nodes have keys, or none; beyond loopback all."""
    has_file = group.values["link_key_file"] is not None
    has_public = group.values["link_public_key"] is not None
    anybody = any(one.values["link_public_key"] is not None for one in groups)
    host = group.values["link_host"]
    if has_file != has_public:
        missing = "link_public_key" if has_file else "link_key_file"
        report.add(group.path, f"{group.title} needs {missing} beside the other half of its key")
    elif anybody and not has_public:
        report.add(group.path, f"{group.title} needs link_key_file: other nodes have keys")
    elif not has_public and group.is_good("link_host") and not is_loopback(host):
        text = f"{group.title} link_host {host} is beyond loopback: every node needs link_key_file"
        report.add((*group.path, "link_host"), text)


def _others(config: Config, node: Node) -> list[Group]:
    """The groups of the other nodes of the cluster."""
    groups = [other.group for other in config.nodes.values()]
    return [one for one in groups if one.hmsport is not None and one is not node.group]


def cluster_settings(config: Config, node: Node) -> ClusterSettings | None:
    """What the engine is told; None for a node that is alone. NotSupported with a database."""
    if node.group.hmsport is None:
        return None
    if node.database is not None:
        raise NotSupported(
            feature="a node with HMSPORT and a database", instead="Let it keep a log in store."
        )
    queues = [
        GlobalQueue(queue.name, queue.gqthr, queue.gqmaxreq, queue.gqfull, _scope(queue.delivery))
        for queue in config.queues_of(node)
        if queue.global_ == "Y"
    ]
    peers = [(group.hmsindex, group.nodename) for group in _others(config, node)]
    topics = tuple(topic.name for topic in config.topics_of(node) if topic.global_ == "Y")
    interval_ms = round(node.group.hmsgqint * 1000)
    master = config.domain.config_master or ""
    return ClusterSettings(
        tuple(peers),
        interval_ms,
        tuple(queues),
        topics,
        master,
        is_config_master=master in ("", node.name),
    )


def _scope(word: str) -> Scope:
    return Scope(word.lower())


def link_settings(config: Config, node: Node) -> LinkSettings:
    """What the links are told; LinkKeyError. The largest message of any node gets through, so that
    a node with a lower limit can refuse it: a frame above the limit would cut the link."""
    group = node.group
    keys = None if group.link_key_file is None else read_key_file(group.link_key_file)
    own = keys_since(group.link_key_file, node.name, group.link_public_key or "")
    if keys is not None and keys.public.decode() not in own:
        detail = f"link_public_key of [svrgroup.{group.name}] is not that of {group.link_key_file}"
        raise LinkKeyError(detail=detail)
    peers = [_peer(group, one) for one in _others(config, node)]
    every = [one for one in config.nodes.values() if one.group.hmsport is not None]
    frame_bytes = max(frame_bytes_max(one.max_message_bytes, one.segment_bytes) for one in every)
    return LinkSettings(
        config.domain.name,
        node.name,
        group.hmsindex,
        group.link_address,
        tuple(peers),
        group.hmsheartbeat,
        frame_bytes + OFFER_ROOM_BYTES,
        keys,
        _told_to_clients(config, node),
    )


def _peer(group: Group, other: Group) -> LinkPeer:
    """Another node; of keys that it had since hms.conf was written the last two are let in."""
    known = keys_since(group.link_key_file, other.nodename, other.link_public_key or "")
    key, *following = known[-2:]
    return LinkPeer(other.hmsindex, other.nodename, other.link_address, key, "".join(following))


def _told_to_clients(config: Config, node: Node) -> tuple[str, ...]:
    """Where clients of other nodes find this one."""
    listeners = config.listeners
    return tuple(listeners[a].address if a in listeners else a for a in node.listen)
