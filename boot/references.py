"""Faults between sections of hms.conf: names that lead nowhere, things that two nodes share."""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hms.boot.check import Found, Report
from hms.boot.clusters import check_clusters
from hms.boot.counts import counted
from hms.boot.database_kinds import MARIADB, POSTGRESQL, SQLITE
from hms.boot.destinations import Homes, check_destinations
from hms.boot.kinds import did_you_mean
from hms.boot.kinds_cluster import one_host
from hms.boot.replica_checks import check_replicas
from hms.boot.sections import (
    DOMAIN,
    LISTENER,
    NODE,
    QUEUE,
    RESOURCE,
    SERVER,
    SUBSCRIPTION,
    SVRGROUP,
    TOPIC,
    Section,
)
from hms.boot.sizes import check_sizes

_OF_BROKER = {QUEUE, TOPIC, SUBSCRIPTION}
_OPENS = {"postgresql": POSTGRESQL, "mariadb": (MARIADB,), "sqlite": (SQLITE,)}


def check_references(every: list[Found], report: Report) -> None:
    """Report every fault between the sections."""
    every = _without_repeated(every)
    nodes, groups = _of(every, NODE), _of(every, SVRGROUP)
    if not nodes:
        report.add((), "there is no node: add a section [node.NAME]")
    _check_groups(groups, nodes, report)
    _check_places(every, groups, report)
    _check_limits(nodes, _of(every, DOMAIN), report)
    _check_shared(nodes, report)
    _check_secured(nodes, _of(every, LISTENER), report)
    _check_processes(_of(every, SERVER), report)
    _check_resources(_of(every, RESOURCE), report)
    check_destinations(every, _homes(groups, nodes), report)
    check_clusters(every, _homes(groups, nodes), report)
    check_replicas(every, report)


def _without_repeated(every: list[Found]) -> list[Found]:
    """The first section of each name; that there is a second is a fault by itself."""
    firsts: dict[tuple[Section, str], Found] = {}
    for found in every:
        firsts.setdefault((found.section, found.name), found)
    return list(firsts.values())


def _of(every: list[Found], section: Section) -> list[Found]:
    return [found for found in every if found.section is section]


def _check_groups(groups: list[Found], nodes: list[Found], report: Report) -> None:
    names = tuple(node.name for node in nodes)
    for group in groups:
        _check_node_name(group, names, report)
        if group.values["svgtype"] == "TMAX":
            _check_no_broker_keys(group, report)
    brokers = [group for group in groups if group.values["svgtype"] == "HMS"]
    of_node = {node.name: [g for g in brokers if _node_of(g, names) == node.name] for node in nodes}
    for node, found in of_node.items():
        for group in found[1:]:
            text = f"{group.title} is a second HMS group on node {node}; {found[0].title} is one"
            report.add(group.path, text)
    _check_indexes(nodes, of_node, report)


def _check_node_name(group: Found, names: tuple[str, ...], report: Report) -> None:
    wanted, path = group.values["nodename"], (*group.path, "NODENAME")
    if wanted is None and len(names) > 1 and group.is_good("nodename"):
        report.add(
            group.path, f"{group.title} needs NODENAME: this file has {counted(len(names), 'node')}"
        )
    if wanted is not None and wanted not in names:
        hint = did_you_mean(wanted, names)
        report.add(path, f"{group.title} NODENAME: there is no node {wanted!r}{hint}")


def _check_no_broker_keys(group: Found, report: Report) -> None:
    for word in ("HMSINDEX", "HMSMAXTHR", "HMSMAXDBTHR", "HMSPORT"):
        if word.lower() in group.given:
            text = f'{group.title} {word}: only a group with SVGTYPE = "HMS" has it'
            report.add((*group.path, word), text)


def _node_of(group: Found, names: tuple[str, ...]) -> str | None:
    wanted: str | None = group.values["nodename"]
    return names[0] if wanted is None and len(names) == 1 else wanted


def _check_indexes(nodes: list[Found], of_node: dict[str, list[Found]], report: Report) -> None:
    """Two nodes with one HMSINDEX would give the same message ids."""
    taken: dict[int, str] = {}
    for node in nodes:
        group = next(iter(of_node[node.name]), None)
        index = group.values["hmsindex"] if group else 1
        owner = taken.setdefault(index, node.name)
        if owner != node.name and (group is None or group.is_good("hmsindex")):
            where = group or node
            text = f"{where.title} HMSINDEX {index} is that of node {owner} already"
            report.add((*where.path, "HMSINDEX"), f"{text}; give each node its own")


def _check_places(every: list[Found], groups: list[Found], report: Report) -> None:
    known = {group.name: group.values["svgtype"] for group in groups}
    for found in every:
        wanted = found.values.get("svgname")
        if wanted is None:
            continue
        path = (*found.path, "SVGNAME")
        if wanted not in known:
            hint = did_you_mean(wanted, tuple(known))
            report.add(path, f"{found.title} SVGNAME: there is no svrgroup {wanted!r}{hint}")
        elif found.section in _OF_BROKER and known[wanted] != "HMS":
            report.add(path, f'{found.title} SVGNAME: {wanted} is no group with SVGTYPE = "HMS"')


def _homes(groups: list[Found], nodes: list[Found]) -> Homes:
    """Tells on which nodes a section with an SVGNAME lives."""
    names = tuple(node.name for node in nodes)
    of_group = {group.name: _node_of(group, names) for group in groups}

    def homes(found: Found) -> frozenset[str] | None:
        group = found.values["svgname"]
        if group is None:
            return frozenset(names) if found.is_good("svgname") else None
        node = of_group.get(group)
        return None if node not in names else frozenset((node,))

    return homes


def _check_limits(nodes: list[Found], domains: list[Found], report: Report) -> None:
    most = domains[0].values["maxsession"] if domains else 1024
    for node in nodes:
        check_sizes(node, report)
        if (node.values["maxsession"] or 0) > most:
            text = f"{node.title} MAXSESSION is above MAXSESSION {most} of [domain]"
            report.add((*node.path, "MAXSESSION"), text)


def _check_secured(nodes: list[Found], listeners: list[Found], report: Report) -> None:
    """A login must be heard by nobody else; the first address is for the node's own."""
    known = tuple(one.name for one in listeners)
    for node in nodes:
        if node.values["sender_identity"] and node.values["security"] is None:
            text = f"{node.title} sender_identity: an open node knows nobody; security is missing"
            report.add((*node.path, "sender_identity"), text)
        if node.values["audit_anchor"] is not None and node.values["security"] is None:
            text = f"{node.title} audit_anchor: an open node has no audit; security is missing"
            report.add((*node.path, "audit_anchor"), text)
        if not node.is_good("listen"):
            continue
        listen, path = node.values["listen"], (*node.path, "listen")
        is_secured = node.values["security"] is not None
        for address in listen:
            fault = _listen_fault(address, known, is_secured=is_secured)
            if fault:
                report.add(path, f"{node.title} listen: {fault}")
        if "://" not in listen[0]:
            text = "the first one is an address of this machine, such as ipc:///PATH"
            report.add(path, f"{node.title} listen: {text}")


def _listen_fault(address: str, known: tuple[str, ...], *, is_secured: bool) -> str:
    if "://" not in address:
        if address not in known:
            return f"there is no listener {address!r}{did_you_mean(address, known)}"
        return "" if is_secured else f"{address!r} is for a secured node: security is missing"
    if is_secured and not address.startswith("ipc://"):
        instead = "use ipc:///PATH, or a [listener.NAME]"
        return f"{address!r} is not encrypted, and a secured node takes no logins there: {instead}"
    return ""


def _check_shared(nodes: list[Found], report: Report) -> None:
    for node in nodes:
        _check_listen(node, report)
        if node.is_good("shared") and node.values["shared"]:
            _check_take_over(node, report)
    _check_unique(nodes, "store", lambda node: [node.values["store"]], report)
    _check_unique(nodes, "listen", lambda node: map(one_host, node.values["listen"]), report)
    _check_unique(nodes, "log_file", lambda node: [node.values["log_file"]], report)


def _check_take_over(node: Found, report: Report) -> None:
    """What two machines have in common is the store alone."""
    path, database = (*node.path, "shared"), node.values["database"]
    if node.values["runtime"] is None:
        text = "needs runtime: a folder of this machine, for its pid file and log"
        report.add(path, f"{node.title} shared {text}")
    if isinstance(database, str) and database.startswith(SQLITE):
        report.add(path, f"{node.title} shared: a file of SQLite is for one machine; use store")


def _check_unique(
    nodes: list[Found], key: str, values: Callable[[Found], Iterable[Any]], report: Report
) -> None:
    taken: dict[Any, Found] = {}
    for node in nodes:
        for value in values(node):
            owner = taken.setdefault(value, node) if value is not None else node
            if owner is not node and node.is_good(key):
                shown = str(Path(value)) if key != "listen" else value
                text = f"{node.title} {key} {shown!r} is that of {owner.title} already"
                report.add((*node.path, key), text)


def _check_listen(node: Found, report: Report) -> None:
    for address, count in Counter(map(one_host, node.values["listen"])).items():
        if count > 1 and node.is_good("listen"):
            report.add((*node.path, "listen"), f"{node.title} listen {address!r} is there twice")


def _check_processes(servers: list[Found], report: Report) -> None:
    for server in servers:
        least, most = server.values["min"], server.values["max"]
        if most is not None and server.is_good("min", "max") and most < least:
            report.add((*server.path, "MAX"), f"{server.title} MAX {most} is below MIN {least}")


def _check_resources(resources: list[Found], report: Report) -> None:
    for rm in resources:
        kind, where = rm.values["kind"], rm.values["open"]
        if not rm.is_good("kind", "open") or kind is None or where is None:
            continue
        if not where.startswith(_OPENS[kind]):
            text = f"{rm.title} open: kind {kind!r} wants {_OPENS[kind][0]}"
            report.add((*rm.path, "open"), text)
        if kind == "sqlite" and not rm.values["last_resource"] and rm.is_good("last_resource"):
            text = "SQLite cannot prepare: accept its risk with last_resource = true"
            report.add((*rm.path, "kind"), f"{rm.title} kind: {text}")
        if kind != "sqlite" and rm.values["last_resource"]:
            text = f"{kind} can prepare, so it is no last resource"
            report.add((*rm.path, "last_resource"), f"{rm.title} last_resource: {text}")
        if rm.name == "hms":
            report.add(rm.path, f"{rm.title}: hms is the node itself; choose another name")
