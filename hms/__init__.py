"""HMS: transactional messaging for Python.

    with hms.connect("tcp://127.0.0.1:7700") as connection, connection.session() as session:
        session.producer(hms.Queue("orders")).send(b"…", {"Type": "News"})
        message = session.consumer(hms.Queue("orders")).receive(timeout_s=5)

Each name is loaded when it is first used, so that importing hms costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hms.client.core import current_transaction

if TYPE_CHECKING:
    from hms import aio as aio
    from hms import testing as testing
    from hms.client.browser import Browser as Browser
    from hms.client.connection import Connection as Connection
    from hms.client.connection import connect as connect
    from hms.client.consumer import Consumer as Consumer
    from hms.client.context import JMSContext as JMSContext
    from hms.client.context import context as context
    from hms.client.core.events import Event as Event
    from hms.client.core.events import EventKind as EventKind
    from hms.client.core.listener_outcomes import Reject as Reject
    from hms.client.core.listener_outcomes import Retry as Retry
    from hms.client.core.outcomes import Outcome as Outcome
    from hms.client.core.outcomes import OutcomeState as OutcomeState
    from hms.client.core.service_reply import Reply as Reply
    from hms.client.destinations import Queue as Queue
    from hms.client.destinations import Topic as Topic
    from hms.client.message import Message as Message
    from hms.client.producer import Producer as Producer
    from hms.client.receipt import Receipt as Receipt
    from hms.client.session import Session as Session
    from hms.constants import *  # noqa: F403
    from hms.engine.selector import Selector as Selector
    from hms.errors import *  # noqa: F403
    from tpmon.hms_functions import *  # noqa: F403
    from tpmon.tx.blocks import rm as rm
    from tpmon.tx.blocks import transactional as transactional

_HOMES = {
    "Browser": "hms.client.browser",
    "Connection": "hms.client.connection",
    "Consumer": "hms.client.consumer",
    "Event": "hms.client.core.events",
    "EventKind": "hms.client.core.events",
    "JMSContext": "hms.client.context",
    "Message": "hms.client.message",
    "Outcome": "hms.client.core.outcomes",
    "OutcomeState": "hms.client.core.outcomes",
    "Producer": "hms.client.producer",
    "Queue": "hms.client.destinations",
    "Receipt": "hms.client.receipt",
    "Reject": "hms.client.core.listener_outcomes",
    "Reply": "hms.client.core.service_reply",
    "Retry": "hms.client.core.listener_outcomes",
    "Selector": "hms.engine.selector",
    "Session": "hms.client.session",
    "Topic": "hms.client.destinations",
    "connect": "hms.client.connection",
    "context": "hms.client.context",
    "rm": "tpmon.tx.blocks",
    "transactional": "tpmon.tx.blocks",
}
_MODULES = ("aio", "testing")
_WHOLE = ("hms.constants", "hms.errors", "tpmon.hms_functions")
"""Modules whose public names are all public here."""


current_transaction.provide(lambda: importlib.import_module("tpmon.tx.blocks"))


def _public() -> list[str]:
    names = {*_HOMES, *_MODULES}
    for home in _WHOLE:
        names.update(importlib.import_module(home).__all__)
    return sorted(names)


def _find(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"hms.{name}")
    for home in _WHOLE:
        module = importlib.import_module(home)
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module 'hms' has no attribute {name!r}")


def _version() -> str:
    """Of the installed distribution."""
    from importlib.metadata import version  # noqa: PLC0415 - only who asks pays for it

    return version("hybrid-messaging")


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    if name == "__all__":
        return _public()
    if name == "__version__":
        return _version()
    if name.startswith("_"):
        raise AttributeError(f"module 'hms' has no attribute {name!r}")
    value = globals()[name] = _find(name)
    return value


def __dir__() -> list[str]:
    return [*_public(), "__version__"]
