"""Replicas: what hms.conf says of them, checked."""

from urllib.parse import urlsplit

from hms.boot.arbiter_checks import check_arbiter
from hms.boot.check import Found, Report
from hms.boot.kinds import did_you_mean
from hms.boot.kinds_cluster import is_loopback, one_host
from hms.boot.sections import ARBITER, NODE, REPLICA, SVRGROUP

__all__ = ["check_replicas"]

COPIES_MIN, COPIES_MAX = 2, 7
_OF_COPIES = (
    *("confirm", "copies_min", "replica_timeout_s", "replica_lost_s", "replica_window_bytes"),
    "failback_after_s",
)


def check_replicas(every: list[Found], report: Report) -> None:
    """Report what keeps two machines from being one node."""
    nodes = [found for found in every if found.section is NODE]
    replicas = [found for found in every if found.section is REPLICA]
    arbiters = [found for found in every if found.section is ARBITER]
    for arbiter in arbiters:
        check_arbiter(arbiter, report)
        if not replicas:
            text = "decides nothing: no node of this file has replicas"
            report.add(arbiter.path, f"{arbiter.title} {text}; add [replica.NAME] for each copy")
    names = [node.name for node in nodes]
    for replica in replicas:
        wanted = replica.values["nodename"]
        if wanted is None and len(names) > 1:
            report.add(replica.path, f"{replica.title} needs NODENAME: this file has several nodes")
        elif wanted is not None and wanted not in names:
            text = f"{replica.title} NODENAME: there is no node {wanted!r}"
            report.add((*replica.path, "NODENAME"), text + did_you_mean(wanted, tuple(names)))
    _check_addresses(replicas, report)
    for node in nodes:
        own = [one for one in replicas if _node_of(one, names) == node.name]
        _check_node(node, own, bool(arbiters), report)
        if own:
            _check_alone(node, every, names, report)


def _node_of(replica: Found, names: list[str]) -> str | None:
    wanted: str | None = replica.values["nodename"]
    return names[0] if wanted is None and len(names) == 1 else wanted


def _check_node(node: Found, own: list[Found], has_arbiter: bool, report: Report) -> None:
    me, names = node.values["replica"], tuple(one.name for one in own)
    if me is not None and me not in names:
        hint = did_you_mean(me, names) or f"; add [replica.{me}]"
        report.add((*node.path, "replica"), f"{node.title} replica: there is no {me!r}{hint}")
    if own and me is None and node.is_good("replica"):
        text = f"{node.title} needs replica: which of {', '.join(names)} this machine is"
        report.add(node.path, text)
    if own and not has_arbiter:
        text = f"{own[0].title} needs an [arbiter], which decides who of {', '.join(names)} leads"
        report.add(own[0].path, text)
    if own and not COPIES_MIN <= len(own) <= COPIES_MAX:
        text = f"node {node.name} has {len(own)} replica{'s' * (len(own) > 1)}: there can be two"
        report.add(own[-1].path, f"{own[-1].title}: {text} to {COPIES_MAX}")
    if own:
        _check_own(node, own, report)
    else:
        _check_without(node, report)
    active = [one for one in own if one.values["engine_roll"] == "ACTIVE"]
    if len(active) > 1:
        text = f"{active[0].title} is ACTIVE already, and one replica is preferred"
        report.add((*active[1].path, "engine_roll"), f"{active[1].title} engine_roll: {text}")
    if node.values["failback"] == "AUTO" and not active:
        text = 'no replica of the node is preferred; add engine_roll = "ACTIVE" to one'
        report.add((*node.path, "failback"), f"{node.title} failback: {text}")
    _check_modes(node, own, active, report)
    _check_silence(node, report)


def _check_modes(node: Found, own: list[Found], active: list[Found], report: Report) -> None:
    counting = [one for one in own if one.values["mode"] != "ASYNC"]
    if own and not counting:
        text = f"{own[0].title} mode: every replica of {node.name} is ASYNC, and none would count"
        report.add((*own[0].path, "mode"), f'{text}; one at least has mode = "SYNC"')
    for one in active:
        if one.values["mode"] == "ASYNC":
            text = "the preferred replica leads by itself, and an ASYNC one never does"
            cure = 'leave one of the two out, or engine_roll = "ACTIVE" for a SYNC one'
            report.add((*one.path, "mode"), f"{one.title} mode: {text}; {cure}")
    if counting and (node.values["copies_min"] or 0) > len(counting):
        what = "its replicas" if len(counting) == len(own) else "its replicas that are SYNC"
        text = f"{node.title} copies_min is above the number of {what}, {len(counting)}"
        report.add((*node.path, "copies_min"), text)


def _check_silence(node: Found, report: Report) -> None:
    """One that was taken off for its silence, and is not yet away, would be taken in by turns."""
    timeout_s, lost_s = node.values["replica_timeout_s"], node.values["replica_lost_s"]
    if node.is_good("replica_timeout_s", "replica_lost_s") and timeout_s > lost_s:
        word = "replica_timeout_s" if "replica_timeout_s" in node.given else "replica_lost_s"
        text = f"a replica is away after {timeout_s:g} s, and counts no more after {lost_s:g}"
        cure = "replica_lost_s is at least replica_timeout_s"
        report.add((*node.path, word), f"{node.title} {word}: {text}: {cure}")


def _check_alone(node: Found, every: list[Found], names: list[str], report: Report) -> None:
    """What a node with replicas cannot have in this version."""
    values = node.values
    faults = {
        "database": values["database"] is not None and "a database is copied by its own means",
        "shared": values["shared"] and "a store is shared, or copied; not both",
        "BOOT": values["boot"] == "COLD" and "a take-over would delete all: use hms boot --cold",
    }
    for word, why in faults.items():
        if why and node.is_good(word.lower()):
            report.add((*node.path, word), f"{node.title} {word}: with replicas not: {why}")
    for group in (one for one in every if one.section is SVRGROUP):
        if _node_of(group, names) == node.name and group.values["hmsport"] is not None:
            text = "a node with replicas is in no cluster in this version"
            report.add((*group.path, "HMSPORT"), f"{group.title} HMSPORT: {text}")


def _check_addresses(replicas: list[Found], report: Report) -> None:
    taken: dict[str, Found] = {}
    has_keys = any(one.values["public_key"] is not None for one in replicas)
    for one in replicas:
        address = one.values["address"]
        if address is None or not one.is_good("address"):
            continue
        owner = taken.setdefault(one_host(address), one)
        if owner is not one:
            text = f"{one.title} address {address} is that of {owner.title} already"
            report.add((*one.path, "address"), text)
        is_here = is_loopback(urlsplit(address).hostname or "")
        if one.values["public_key"] is None and (has_keys or not is_here):
            why = "others have keys" if is_here else f"{address} is beyond loopback"
            report.add(one.path, f"{one.title} needs public_key: {why}")
    _check_listens(replicas, taken, report)
    _check_keys(replicas, report)


def _check_listens(replicas: list[Found], taken: dict[str, Found], report: Report) -> None:
    """Where clients find a replica there is nothing else."""
    known: dict[str, Found] = {}
    for one in (one for one in replicas if one.is_good("listen")):
        for shown in one.values["listen"] or ():
            address = one_host(shown)
            owner = known.setdefault(address, one)
            fault = ""
            if address in taken:
                fault = f"is the address of {taken[address].title}: clients need another port"
            elif owner is not one:
                fault = f"is that of {owner.title} already"
            elif [one_host(each) for each in one.values["listen"]].count(address) > 1:
                fault = "is there twice"
            if fault:
                report.add((*one.path, "listen"), f"{one.title} listen {shown} {fault}")
                break


def _check_keys(replicas: list[Found], report: Report) -> None:
    """By its key a machine is known."""
    known: dict[str, Found] = {}
    for one in replicas:
        key = one.values["public_key"]
        if key is not None and (owner := known.setdefault(key, one)) is not one:
            text = f"{one.title} public_key is that of {owner.title}: make a pair for each"
            report.add((*one.path, "public_key"), text)


def _check_own(node: Found, own: list[Found], report: Report) -> None:
    """What this machine's copy needs of this file."""
    me = node.values["replica"]
    for one in own:
        if one.name == me and one.is_good("key_file", "public_key"):
            key, file = one.values["public_key"], one.values["key_file"]
            if key is not None and file is None:
                text = f"{one.title} needs key_file: its public_key is of a pair, which is in it"
                report.add(one.path, text)
            if key is None and file is not None:
                text = f"{one.title} needs public_key: hms config keys prints that of its key_file"
                report.add(one.path, text)
    if not node.is_good("listen") or me is None:
        return
    links = {one_host(one.values["address"]): one for one in own if one.values["address"]}
    others = {
        one_host(address): one
        for one in own
        for address in (one.values["listen"] or ())
        if one.name != me and one.is_good("listen")
    }
    for shown in node.values["listen"]:
        address, fault = one_host(shown), ""
        if address in links:
            fault = f"the other replicas find {links[address].title} there: use another port"
            fault = f"{shown} is taken, {fault}"
        elif address in others:
            fault = f"clients find {others[address].title} at {shown}: give this machine its own"
        if fault:
            report.add((*node.path, "listen"), f"{node.title} listen: {fault}")


def _check_without(node: Found, report: Report) -> None:
    """Keys that say nothing of a node with one copy, and look as if it had more."""
    defaults = {key.name: key.default for key in NODE.keys}
    for word in _OF_COPIES:
        if node.is_good(word) and node.values[word] != defaults[word]:
            text = "the node has no replicas; add [replica.NAME] for each copy, or leave it out"
            report.add((*node.path, word), f"{node.title} {word}: {text}")
