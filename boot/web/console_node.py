"""The pages of the console about the node itself, and what belongs to them: users and roles, the
audit, backups, the configuration."""

from collections.abc import Callable, Mapping
from typing import Any

from hms.boot.web.background_runs import Runs
from hms.boot.web.console_audit import AuditPages
from hms.boot.web.console_backups import BackupPages
from hms.boot.web.console_configuration import ConfigurationPages
from hms.boot.web.console_orders import Order
from hms.boot.web.console_pages import Shown
from hms.boot.web.console_users import ORDERS_OF_USERS, PAGES_OF_USERS
from hms.boot.web.http_server import Request
from hms.boot.web.node_place import NodePlace

__all__ = ["NodePages"]


class NodePages:
    """place: of the node. close() ends what its pages have begun."""

    def __init__(self, place: NodePlace) -> None:
        self._runs = Runs()
        audit, backups = AuditPages(place, self._runs), BackupPages(place, self._runs)
        configuration = ConfigurationPages(place)
        self.pages: Mapping[str, Callable[[Any, Request, str], Shown]] = {
            **PAGES_OF_USERS,
            **audit.pages,
            **backups.pages,
            **configuration.pages,
        }
        self.orders: Mapping[str, Order] = {
            **ORDERS_OF_USERS,
            **audit.orders,
            **backups.orders,
            **configuration.orders,
        }
        self.groups = (backups.group,)

    def close(self) -> None:
        """Nobody looks any more."""
        self._runs.close()
