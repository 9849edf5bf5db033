"""What operators may ask and order of services and server processes."""

from typing import Any

from hms.server.service_monitor import ServiceMonitor
from hms.server.supervision import Supervisor
from hms.wire import operations as ops

__all__ = ["SERVICE_OPERATIONS", "operate"]

SERVICE_OPERATIONS = ("service.list", "server.list", "server.restart", "server.scale")


def operate(
    monitor: ServiceMonitor, servers: Supervisor, verb: str, asked: ops.Operation
) -> list[dict[str, Any]] | None:
    """Plain data, or None for an order, which is carried out behind the reply."""
    if verb == "service.list":
        return monitor.describe()
    if verb == "server.list":
        counted = monitor.describe_groups()
        absent = monitor.describe_absent()
        return [one | counted.get(one["name"], absent) for one in servers.describe()]
    if isinstance(asked, ops.ScaleServer):
        servers.scale(asked.name, asked.count)
    else:
        assert isinstance(asked, ops.NameOne)
        servers.restart(asked.name)
    return None
