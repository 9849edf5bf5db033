"""What a permission may name: actions, and the kinds of resources that each of them is about.

The actions are those of the table of commands (hms/wire/commands.py); a test holds both together.
"""

from collections.abc import Mapping

from hms.wire.commands import Action

__all__ = ["KINDS", "KINDS_OF", "LATER"]

KINDS = (
    "client",
    "event",
    "listener",
    "node",
    "queue",
    "rm",
    "role",
    "service",
    "subscription",
    "topic",
    "transaction",
    "user",
)
_PLACES = ("queue", "topic", "subscription")
KINDS_OF: Mapping[Action, tuple[str, ...]] = {
    Action.CONNECT: ("listener",),
    Action.PRODUCE: ("queue",),
    Action.PUBLISH: ("topic",),
    Action.RETAIN: ("topic",),
    Action.CONSUME: ("queue", "subscription"),
    Action.SUBSCRIBE: ("topic", "event"),
    Action.SUBSCRIBE_DURABLE: ("topic",),
    Action.BROWSE: ("queue", "topic", "subscription"),
    Action.TEMPORARY: ("node",),
    Action.CREATE: ("queue", "topic"),
    Action.SCHEDULE: ("queue", "topic"),
    Action.CALL: ("service",),
    Action.ADVERTISE: ("service",),
    Action.NOTIFY: ("client",),
    Action.TRANSACT: ("node",),
    Action.RECOVER: ("transaction",),
    Action.RESOLVE: ("transaction",),
    Action.VIEW: KINDS,
    Action.CONFIGURE: _PLACES,
    Action.PURGE: _PLACES,
    Action.MANAGE: _PLACES,
    Action.OPERATE: ("node", "client"),
    Action.SECURE: ("user", "role"),
    Action.AUDIT: ("node",),
    Action.IMPERSONATE: ("user",),
}
LATER = frozenset(("post", "history", "replay"))
"""Actions of which no command makes use yet: granting one would promise what nothing checks."""
