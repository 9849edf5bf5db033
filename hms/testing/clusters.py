"""Several nodes that act as one, for a test: one hms.conf that all of them read."""

from typing import Any

FAST = {"HMSHEARTBEAT": 2.0, "HMSGQINT": 0.2}


def make_cluster(settings: dict[str, Any], names: list[str], ports: list[int]) -> None:
    """Add what makes these nodes a cluster: a server group each, with a port for the others. A
    group of a node that is there already keeps what it says."""
    groups: dict[str, dict[str, Any]] = settings.setdefault("svrgroup", {})
    for index, (name, port) in enumerate(zip(names, ports, strict=True), 1):
        group = next((g for g in groups.values() if g.get("NODENAME") == name), None)
        if group is None:
            group = groups[f"{name}-hms"] = {"NODENAME": name}
        group.setdefault("SVGTYPE", "HMS")
        group.setdefault("HMSINDEX", index)
        group.setdefault("HMSPORT", port)
        for key, value in FAST.items():
            group.setdefault(key, value)


def node_names(settings: dict[str, Any], count: int) -> list[str]:
    """The names of so many nodes; those that the configuration lacks are like its first one."""
    nodes: dict[str, dict[str, Any]] = settings.setdefault("node", {})
    first: dict[str, Any] = next(iter(nodes.values()), {})
    number = 1
    while len(nodes) < count:
        nodes.setdefault(f"node{number}", dict(first))
        number += 1
    return list(nodes)[:count]
