"""Own destinations: those that a client makes for itself or looks up (F-C4, F-C6, F-C7)."""

import re
from typing import Any

from hms.client.core.arguments import TEXT_CHARACTERS_MAX, check_text
from hms.client.core.operations import Steps
from hms.client.core.pending_requests import OnLoss
from hms.client.destinations import Destination, Queue, Topic, parse_destination
from hms.client.session_steps import SessionSteps
from hms.errors.catalogue import InvalidArgument
from hms.wire.structures import CreateTemporary, DeleteTemporary

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_MAKE: dict[str, type[Queue] | type[Topic]] = {"queue": Queue, "topic": Topic}


def creating(session: SessionSteps, kind: str, text: str) -> Steps[Destination]:
    """The destination "NAME"; "NAME?export-name=E&max-messages=5" creates it, until the node stops.
    DestinationExists, ExportNameInUse, InvalidArgument."""
    session.check_open()
    check_text("text", text, TEXT_CHARACTERS_MAX)
    name, mark, said = text.partition("?")
    made = _MAKE[kind](name)
    if mark:
        arguments = {"name": name, "life": "DYNAMIC"} | _options(said)
        yield from session.requests.administering(f"{kind}.create", arguments, f"create_{kind}()")
    return made


def _options(said: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in said.split("&") if said else ():
        key, equals, value = part.partition("=")
        if not (key and equals):
            detail = f"{part!r} is not of the form option=value"
            raise InvalidArgument(what="the options of a destination", detail=detail)
        found[key.replace("-", "_")] = int(value) if _NUMBER.fullmatch(value) else value
    return found


def making_temporary(session: SessionSteps, kind: str) -> Steps[Destination]:
    """A destination that lives as long as this connection, and from which only it receives."""
    session.check_open()
    request, call = CreateTemporary(kind), f"temporary_{kind}()"
    asked = session.requests.asking(request, on_loss=OnLoss.FAIL, call=call)
    return _MAKE[kind]((yield from asked)["name"])


def deleting_temporary(session: SessionSteps, destination: Destination) -> Steps[None]:
    """End a temporary destination now; DestinationInUse while something receives from it."""
    session.check_open()
    destination = parse_destination(destination)
    request = DeleteTemporary(destination.kind, destination.name)
    yield from session.requests.asking(request, on_loss=OnLoss.FAIL)


def looking_up(session: SessionSteps, export_name: str) -> Steps[Destination]:
    """The destination that is exported under that name, or has it; ExportNameNotFound."""
    session.check_open()
    check_text("export_name", export_name, least=1)
    name = {"name": export_name}
    asked = session.requests.administering("destination.lookup.show", name, "lookup()")
    found = yield from asked
    return _MAKE[found["kind"]](found["name"])
