"""What operators may ask and order of services and server processes."""

from collections.abc import Mapping
from typing import Any

from hms.errors.catalogue import InvalidArgument
from hms.server.service_monitor import ServiceMonitor
from hms.server.supervision import Supervisor

__all__ = ["SERVICE_VERBS", "operate"]

SERVICE_VERBS = ("service.list", "server.list", "server.restart", "server.scale")


def operate(
    monitor: ServiceMonitor, servers: Supervisor, verb: str, arguments: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """Plain data, or None for an order, which is carried out behind the reply."""
    if verb == "service.list":
        return monitor.describe()
    if verb == "server.list":
        counted = monitor.describe_groups()
        absent = monitor.describe_absent()
        return [one | counted.get(one["name"], absent) for one in servers.describe()]
    name, count = arguments.get("name"), arguments.get("count", 0)
    if not isinstance(name, str) or not isinstance(count, int):
        raise InvalidArgument(what=verb, detail="it takes a name, and scale a count")
    if verb == "server.restart":
        servers.restart(name)
    else:
        servers.scale(name, count)
    return None
