"""Pages of the console that show what the node lists, with the orders that belong to each row.

topics, subscriptions   what is retained, who subscribes
services, servers       calls and processes
transactions            branches in doubt, and heuristic ones
schedules               what is due next
cluster                 the other nodes
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hms.boot.web.http_server import Request
from hms.boot.web.markup import Html, button, field, form, link, shown, table, time_text
from hms.errors.catalogue import NotInCluster

__all__ = ["PAGES", "Shown", "box"]

ROWS = 100
Shown = tuple[str, list[Any]]
"""Title and parts of a page."""
TOPIC = ("topic", "subscribers", "producers", "retained")
SUBSCRIPTION = ("name", "topic", "durable", "waiting", "in_flight", "consumers")
SERVICE = ("name", "servers", "calls", "failed", "waiting", "p95_ms", "last_error")
SERVER = ("name", "module", "pids", "busy", "restarts", "fault", "failing")
BRANCH = ("xid", "state", "age_s", "received", "sent", "bytes")
SCHEDULE = ("name", "destination", "kind", "cron", "every_s")
MEMBER = ("node", "is_up", "is_drained", "offers", "lag_ms", "moved_in", "moved_out", "last_error")


def _rows(
    found: Sequence[Mapping[str, Any]], names: Sequence[str], choose: str = ""
) -> list[dict[str, Any]]:
    """Of each what there is of these; choose: with a box that says which one is meant."""
    rows = []
    for one in found[:ROWS]:
        row: dict[str, Any] = {"choose": box(one[choose])} if choose else {}
        rows.append(row | {name.replace("_", " "): one[name] for name in names if name in one})
    return rows


def box(value: Any) -> Html:
    """A row that can be chosen."""
    return Html(
        f'<input type="checkbox" name="id" value="{shown(value)}" '
        f'aria-label="choose {shown(value)}">'
    )


def _topics(connection: Any, request: Request, token: str) -> Shown:
    pattern = request.argument("pattern", "#") or "#"
    found = connection.administer("topic.tree", {"pattern": pattern})
    subscriptions = connection.administer("subscription.list")
    asked = [field("pattern", "Topics that match", pattern), button("Find")]
    find = form("/topics", asked, {}, "get")
    clear = form(
        "/order",
        [button("Clear what is retained", "clear")],
        {"pattern": pattern, "token": token},
    )
    chosen = [
        table(_rows(subscriptions, SUBSCRIPTION, "name"), "Subscriptions", "No subscription."),
        button("Delete", "unsubscribe"),
    ]
    more = form("/order", chosen, {"token": token}) if subscriptions else chosen[0]
    count = f"{min(ROWS, len(found))} of {len(found)}"
    return "Topics", [find, table(_rows(found, TOPIC), count, "No such topic."), clear, more]


def _services(connection: Any, _request: Request, token: str) -> Shown:
    services = connection.administer("service.list")
    servers = connection.administer("server.list")
    chosen = [
        table(_rows(servers, SERVER, "name"), "Servers", "No server."),
        button("Restart", "restart"),
        field("count", "Processes"),
        button("Scale", "scale"),
    ]
    more = form("/order", chosen, {"token": token}) if servers else chosen[0]
    return "Services", [table(_rows(services, SERVICE), "Services", "No service is offered."), more]


def _transactions(connection: Any, _request: Request, token: str) -> Shown:
    found = connection.administer("transaction.list")
    listed = table(_rows(found, BRANCH, "xid"), f"{len(found)} branches", "No branch is in doubt.")
    orders = [button(said, said.lower()) for said in ("Commit", "Rollback", "Forget")]
    parts = [form("/order", [listed, *orders], {"token": token})] if found else [listed]
    return "Transactions", parts


def _schedules(connection: Any, _request: Request, token: str) -> Shown:
    found = connection.administer("schedule.list", {})
    rows = [
        row | {"next": time_text(one["next_ms"])}
        for row, one in zip(_rows(found, SCHEDULE, "name"), found, strict=False)
    ]
    listed = table(rows, f"{len(found)} schedules", "Nothing is scheduled.")
    parts = [form("/order", [listed, button("Cancel", "cancel")], {"token": token})]
    return "Schedules", parts if found else [listed]


def _cluster(connection: Any, _request: Request, token: str) -> Shown:
    try:
        said = connection.administer("cluster.status")
    except NotInCluster:
        return "Cluster", [Html("<p>This node is alone.</p>")]
    word = ("undrain", "Take work again") if said["is_drained"] else ("drain", "Drain this node")
    order = form("/order", [button(word[1], word[0])], {"token": token})
    queues = _rows(said["queues"], ("name", "length", "consumers", "moved_in", "moved_out"))
    return "Cluster", [
        Html(f"<p>{link('/', 'This node')}: drained {shown(said['is_drained'])}</p>"),
        order,
        table(_rows(said["members"], MEMBER), "Other nodes", "No other node."),
        table(queues, "Global queues", "No global queue."),
    ]


PAGES: Mapping[str, Callable[[Any, Request, str], Shown]] = {
    "/topics": _topics,
    "/services": _services,
    "/transactions": _transactions,
    "/schedules": _schedules,
    "/cluster": _cluster,
}
