"""The orders of the console: what each will do, does, and where it leads back to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

import hms
from hms.boot.counts import counted
from hms.client.message_admin import Messages
from hms.errors.tree import HmsError

__all__ = ["ORDERS", "Order", "Refused", "Stopped", "number_of", "time_of"]

Form = Mapping[str, Sequence[str]]
HOURS_MAX = 24 * 365
DIGITS_MAX = 9
PRIORITY_MAX = 9
HEURISTIC = "In the transaction manager's stead, though others may have done otherwise:"


class Refused(Exception):  # noqa: N818 - it says what is missing in a form
    """A form without what its order needs."""

    title = "Nothing was done"


class Stopped(Refused):
    """An order that did a part of what it should."""

    title = "Stopped before the end"


@dataclass(frozen=True, slots=True)
class Order:
    """said: its button; preview: what it will do, in words; do: does it and says what was done."""

    said: str
    preview: Callable[[Any, Form], str]
    do: Callable[[Any, Form], str]
    back: Callable[[Form], str]


def _one(form: Form, name: str, what: str) -> str:
    value = form.get(name, [""])[-1].strip()
    if not value:
        raise Refused(f"{what} is missing.")
    return value


def _chosen(connection: Any, form: Form) -> Any:
    """Messages by their ids: a form without one chooses none, never all."""
    ids = [one for one in form.get("id", []) if one]
    if not ids:
        raise Refused("No message is chosen.")
    return connection.admin.messages(_one(form, "place", "The place")).where(ids=ids)


def _meant(outcome: Any, verb: str) -> str:
    text = f"{verb} {counted(outcome.count, 'message')}: {' '.join(outcome.ids)}"
    if outcome.skipped_in_flight:
        text += f"; {outcome.skipped_in_flight} are in flight and stay"
    if outcome.skipped_ordered:
        text += f"; for {outcome.skipped_ordered} others wait, and they stay"
    for why, number in outcome.left.items():
        text += f"; {number} stay ({why.replace('_', ' ')})"
    return text


def _of_messages(form: Form) -> str:
    back = form.get("back", [""])[-1]
    if back == "/letters":
        return back
    return f"/messages?{urlencode({'place': form.get('place', [''])[-1]})}"


def _of_queue(form: Form) -> str:
    return f"/queue?{urlencode({'name': form.get('name', [''])[-1]})}"


def _preview_purge(connection: Any, form: Form) -> str:
    name = _one(form, "name", "The queue")
    waiting = connection.administer("queue.show", {"name": name})["waiting"]
    return f"Deletes {counted(waiting, 'message')}, all that wait in {name}."


def _purge(connection: Any, form: Form) -> str:
    name = _one(form, "name", "The queue")
    deleted = connection.administer("queue.purge", {"name": name})
    return f"Deleted {counted(deleted, 'message')} of {name}."


def _preview_pausing(connection: Any, form: Form) -> str:
    name = _one(form, "name", "The queue")
    said = connection.administer("queue.show", {"name": name})
    return f"{name} has {said['consumers']} consumers and {said['producers']} producers."


def _pausing(verb: str, done: str) -> Callable[[Any, Form], str]:
    def do(connection: Any, form: Form) -> str:
        name = _one(form, "name", "The queue")
        connection.administer(verb, {"name": name})
        return f"{name} {done}."

    return do


def _preview_close(connection: Any, form: Form) -> str:
    said = connection.administer("client.show", {"number": _number(form)})
    return (
        f"Closes client {said['id']}, {said['client_name']} {said['client_id']}: "
        f"{said['in_flight']} messages go back."
    )


def _close(connection: Any, form: Form) -> str:
    reason = form.get("reason", [""])[-1]
    connection.administer("client.close", {"number": _number(form), "reason": reason})
    return f"Client {_number(form)} is closed."


def _preview_create(_connection: Any, form: Form) -> str:
    return f"Creates the queue {_one(form, 'name', 'The name')}, which stays until it is deleted."


def _create(connection: Any, form: Form) -> str:
    name = _one(form, "name", "The name")
    connection.administer("queue.create", {"name": name, "life": "CREATED"})
    return f"{name} is created."


def _preview_remove(connection: Any, form: Form) -> str:
    name = _one(form, "name", "The queue")
    waiting = connection.administer("queue.show", {"name": name})["waiting"]
    return f"Deletes the queue {name}; {counted(waiting, 'message')} become dead letters."


def _remove(connection: Any, form: Form) -> str:
    name = _one(form, "name", "The queue")
    connection.administer("queue.delete", {"name": name, "force": True})
    return f"{name} is deleted."


def _preview_send(_connection: Any, form: Form) -> str:
    size = len(form.get("body", [""])[-1].encode())
    return f"Sends a text of {counted(size, 'byte')} to {_one(form, 'name', 'The queue')}."


def _send(connection: Any, form: Form) -> str:
    name = _one(form, "name", "The queue")
    message = hms.Message.text(form.get("body", [""])[-1])
    message.type = form.get("type", [""])[-1] or None
    with connection.session() as session:
        receipt = session.producer(hms.Queue(name)).send(message)
    return f"Sent 1 message to {name}: {receipt.message_id}"


def _preview_clear(connection: Any, form: Form) -> str:
    pattern = _one(form, "pattern", "The pattern")
    found = connection.administer("topic.tree", {"pattern": pattern})
    retained = sum(one["retained"] for one in found)
    return f"Clears what {counted(retained, 'topic')} retain, of those that match {pattern}."


def _clear(connection: Any, form: Form) -> str:
    pattern = _one(form, "pattern", "The pattern")
    count = connection.administer("topic.clear_retained", {"pattern": pattern})
    return f"Cleared {counted(count, 'message')}."


def _hours(form: Form) -> int:
    text = form.get("hours", [""])[-1].strip() or "1"
    hours = number_of(text)
    if hours is None or not 0 < hours <= HOURS_MAX:
        raise Refused(f"Hours are a number from 1 to {HOURS_MAX}.")
    return hours


def number_of(text: str) -> int | None:
    """What a field says, of at most nine digits; None: it is no such number."""
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_number else None


def _banned(connection: Any, form: Form) -> dict[str, Any]:
    """By what the client is known again: its user, at a node that knows users, or its names."""
    said = connection.administer("client.show", {"number": _number(form)})
    for by in ("user", "client_id", "client_name"):
        if said.get(by):
            reason = form.get("reason", [""])[-1]
            return {"by": by, "value": said[by], "seconds": 3600 * _hours(form), "reason": reason}
    raise Refused("It has neither a user nor a name.")


def _preview_ban(connection: Any, form: Form) -> str:
    said = _banned(connection, form)
    return f"Closes and refuses {said['by']} {said['value']} for {counted(_hours(form), 'hour')}."


def _ban(connection: Any, form: Form) -> str:
    said = _banned(connection, form)
    connection.administer("client.ban", said)
    return f"{said['value']} is banned for {counted(_hours(form), 'hour')}."


def _each(
    verb: str, key: str, meant: str, done: str, **more: Callable[[Form], Any]
) -> tuple[Callable[[Any, Form], str], Callable[[Any, Form], str]]:
    """Preview and order of one command for each row that was chosen."""

    def names(form: Form) -> list[str]:
        found = [one for one in form.get("id", []) if one]
        if not found:
            raise Refused("Nothing is chosen.")
        return found

    def preview(_connection: Any, form: Form) -> str:
        for value in more.values():
            value(form)
        return f"{meant} {', '.join(names(form))}."

    def do(connection: Any, form: Form) -> str:
        given = {word: value(form) for word, value in more.items()}
        for name in names(form):
            connection.administer(verb, {key: name, **given})
        return f"{done} {', '.join(names(form))}."

    return preview, do


def _count(form: Form) -> int:
    text = _one(form, "count", "The number of processes")
    count = number_of(text)
    if count is None:
        raise Refused("Processes are a number.")
    return count


def _preview_drain(connection: Any, _form: Form) -> str:
    left = connection.administer("cluster.status")["left"]
    return f"Sends what its global queues hold to other nodes: {counted(left, 'message')} now."


def _drain(connection: Any, _form: Form) -> str:
    connection.administer("cluster.drain", {"is_on": True})
    return "This node is being drained."


def _preview_undrain(_connection: Any, _form: Form) -> str:
    return "This node takes messages of global queues again."


def _undrain(connection: Any, _form: Form) -> str:
    connection.administer("cluster.drain", {"is_on": False})
    return "This node takes work again."


def _to(path: str) -> Callable[[Form], str]:
    return lambda _: path


def _number(form: Form) -> int:
    text = _one(form, "number", "The client")
    number = number_of(text)
    if number is None:
        raise Refused("A client is a number.")
    return number


def _about_messages(
    label: str,
    act: Callable[..., Any],
    will: str,
    has: str,
    to_what: str = "",
    more: Callable[[Form], dict[str, Any]] = lambda _: {},
) -> Order:
    """About the messages that a form chooses. act: what becomes of the choice; to_what: what the
    field says that tells where they go, "" for orders without one; more: what else the form says.
    """

    def said(connection: Any, form: Form, *, is_dry: bool) -> str:
        to = _one(form, "to", to_what) if to_what else ""
        given = ({"to": to} if to else {}) | more(form)
        chosen = _chosen(connection, form)
        word, so_far = (will if is_dry else has).format(to=to), list[Any]()
        try:
            done = act(chosen.dry_run() if is_dry else chosen, **given, told=so_far.append)
        except HmsError as error:
            if is_dry or not so_far or not so_far[-1].count:
                raise
            raise Stopped(f"{error} {_meant(so_far[-1], word)}; nothing further.") from error
        return _meant(done, word)

    return Order(label, partial(said, is_dry=True), partial(said, is_dry=False), _of_messages)


def _altered(form: Form) -> dict[str, Any]:
    """What a form says of another priority, time to live or time of delivery."""
    given = {name: form.get(name, [""])[-1].strip() for name in ("priority", "ttl", "due")}
    if not any(given.values()):
        raise Refused("Say a priority, a time to live or a time of delivery.")
    found: dict[str, Any] = {}
    if given["priority"]:
        found["priority"] = number_of(given["priority"])
        if found["priority"] is None or found["priority"] > PRIORITY_MAX:
            raise Refused(f"A priority is a number from 0 to {PRIORITY_MAX}.")
    if given["ttl"]:
        found["ttl_s"] = number_of(given["ttl"])
        if found["ttl_s"] is None:
            raise Refused("A time to live is a number of seconds.")
    if given["due"]:
        found["deliver_at"] = time_of(given["due"])
    return found


def time_of(text: str) -> datetime:
    """What a field says, in UTC unless it has a zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as fault:
        raise Refused("A time is written such as 2026-05-01T08:00.") from fault
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


ORDERS: Mapping[str, Order] = {
    "move": _about_messages(
        "Move",
        Messages.move,
        "Moves to {to}",
        "Moved to {to}:",
        "The queue to move to",
    ),
    "delete": _about_messages("Delete", Messages.delete, "Deletes", "Deleted"),
    "return": _about_messages("Send back", Messages.send_back, "Sends back", "Sent back"),
    "purge": Order("Purge", _preview_purge, _purge, _of_queue),
    "pause": Order("Pause", _preview_pausing, _pausing("queue.pause", "is paused"), _of_queue),
    "resume": Order("Resume", _preview_pausing, _pausing("queue.resume", "goes on"), _of_queue),
    "copy": _about_messages(
        "Copy",
        Messages.copy,
        "Copies to {to}",
        "Copied to {to}:",
        "The queue to copy to",
    ),
    "expire": _about_messages("Expire", Messages.expire, "Expires", "Expired"),
    "alter": _about_messages("Alter", Messages.alter, "Alters", "Altered", more=_altered),
    "create": Order("Create", _preview_create, _create, _of_queue),
    "remove": Order("Delete the queue", _preview_remove, _remove, _to("/destinations")),
    "send": Order("Send", _preview_send, _send, _of_queue),
    "clear": Order("Clear what is retained", _preview_clear, _clear, _to("/topics")),
    "unsubscribe": Order(
        "Delete",
        *_each("subscription.delete", "name", "Deletes, with all that waits for it:", "Deleted"),
        _to("/topics"),
    ),
    "restart": Order(
        "Restart",
        *_each("server.restart", "name", "Replaces one by one the processes of", "Restarts"),
        _to("/services"),
    ),
    "scale": Order(
        "Scale",
        *_each("server.scale", "name", "Changes the processes of", "Changed", count=_count),
        _to("/services"),
    ),
    "commit": Order(
        "Commit",
        *_each("transaction.commit", "xid", f"{HEURISTIC} commits", "Committed"),
        _to("/transactions"),
    ),
    "rollback": Order(
        "Rollback",
        *_each("transaction.rollback", "xid", f"{HEURISTIC} rolls back", "Rolled back"),
        _to("/transactions"),
    ),
    "forget": Order(
        "Forget",
        *_each("transaction.forget", "xid", "Forgets the outcome of", "Forgotten:"),
        _to("/transactions"),
    ),
    "cancel": Order(
        "Cancel", *_each("schedule.cancel", "name", "Cancels", "Cancelled"), _to("/schedules")
    ),
    "drain": Order("Drain this node", _preview_drain, _drain, _to("/cluster")),
    "undrain": Order("Take work again", _preview_undrain, _undrain, _to("/cluster")),
    "ban": Order("Ban", _preview_ban, _ban, _to("/clients")),
    "close": Order("Close", _preview_close, _close, lambda _: "/clients"),
}
