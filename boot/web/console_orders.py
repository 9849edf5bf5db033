"""The orders of the console: what each will do, does, and where it leads back to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from hms.boot.counts import counted

__all__ = ["ORDERS", "Order", "Refused"]

Form = Mapping[str, Sequence[str]]


class Refused(Exception):  # noqa: N818 - it says what is missing in a form
    """A form without what its order needs."""


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
    return text


def _of_messages(form: Form) -> str:
    back = form.get("back", [""])[-1]
    if back == "/letters":
        return back
    return f"/messages?{urlencode({'place': form.get('place', [''])[-1]})}"


def _of_queue(form: Form) -> str:
    return f"/queue?{urlencode({'name': form.get('name', [''])[-1]})}"


def _preview_move(connection: Any, form: Form) -> str:
    to = _one(form, "to", "The queue to move to")
    return _meant(_chosen(connection, form).dry_run().move(to=to), f"Moves to {to}")


def _move(connection: Any, form: Form) -> str:
    to = _one(form, "to", "The queue to move to")
    return _meant(_chosen(connection, form).move(to=to), f"Moved to {to}:")


def _preview_delete(connection: Any, form: Form) -> str:
    return _meant(_chosen(connection, form).dry_run().delete(), "Deletes")


def _delete(connection: Any, form: Form) -> str:
    return _meant(_chosen(connection, form).delete(), "Deleted")


def _preview_return(connection: Any, form: Form) -> str:
    return _meant(_chosen(connection, form).dry_run().send_back(), "Sends back")


def _return(connection: Any, form: Form) -> str:
    return _meant(_chosen(connection, form).send_back(), "Sent back")


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


def _number(form: Form) -> int:
    text = _one(form, "number", "The client")
    if not text.isdigit():
        raise Refused("A client is a number.")
    return int(text)


ORDERS: Mapping[str, Order] = {
    "move": Order("Move", _preview_move, _move, _of_messages),
    "delete": Order("Delete", _preview_delete, _delete, _of_messages),
    "return": Order("Send back", _preview_return, _return, _of_messages),
    "purge": Order("Purge", _preview_purge, _purge, _of_queue),
    "pause": Order("Pause", _preview_pausing, _pausing("queue.pause", "is paused"), _of_queue),
    "resume": Order("Resume", _preview_pausing, _pausing("queue.resume", "goes on"), _of_queue),
    "close": Order("Close", _preview_close, _close, lambda _: "/clients"),
}
