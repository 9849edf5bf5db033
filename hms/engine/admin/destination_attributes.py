"""Attributes: what may be set on a destination while the node runs, and what then holds.

An attribute has the name of its key in hms.conf. What was set while the node ran is in the log
with the destination, and goes before what hms.conf says, until it is set again or taken back.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from hms.engine.flow.destination_control import Control, Lifetime, LimitBehavior, Limits, Value
from hms.engine.queue.destinations import Queue, Topic
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.errors.catalogue import InvalidArgument, UndefinedLimitBehavior
from hms.records import Definition

COUNT_MAX = 1 << 50
DELAY_S_MAX = 86_400
PAUSES: Final = {
    "": (False, False),
    "PRODUCTION": (True, False),
    "CONSUMPTION": (False, True),
    "BOTH": (True, True),
}
"""Whether sending and receiving are paused, by the word that says so."""


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= COUNT_MAX:
        raise InvalidArgument(what=name, detail=f"{value!r} is not a whole number from 0 on")
    return value


def _limit(name: str, value: object) -> int:
    return -1 if value == -1 and not isinstance(value, bool) else _count(name, value)


def _seconds(name: str, value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not is_number or not 0 <= value <= DELAY_S_MAX:
        raise InvalidArgument(what=name, detail=f"{value!r} is not from 0 to {DELAY_S_MAX} seconds")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > 255 or (value and not value.isprintable()):  # noqa: PLR2004
        raise InvalidArgument(what=name, detail=f"{value!r} is not a name or nothing")
    return value


def _behavior(_: str, value: object) -> str:
    if value not in LimitBehavior.__members__:
        raise UndefinedLimitBehavior(value=str(value)[:80], known=", ".join(LimitBehavior))
    return str(value)


_READERS: dict[str, Callable[[str, object], Value]] = {
    "max_messages": _count,
    "max_bytes": _count,
    "max_message_bytes": _count,
    "max_producers": _count,
    "limit_behavior": _behavior,
    "export_name": _text,
    "redelivery_limit": _limit,
    "redelivery_delay_s": _seconds,
    "dead_letter": _text,
    "expired_to": _text,
    "max_active_consumers": _count,
    "max_backup_consumers": _count,
}
_OF_QUEUES = ("max_active_consumers", "max_backup_consumers")
_LIMITS = {
    "max_messages": "messages_max",
    "max_bytes": "bytes_max",
    "max_message_bytes": "message_bytes_max",
    "max_producers": "producers_max",
    "max_active_consumers": "active_max",
    "max_backup_consumers": "backups_max",
    "limit_behavior": "behavior",
}


def read_attributes(kind: str, given: Mapping[str, object]) -> dict[str, Value]:
    """The attributes that a request names, checked; InvalidArgument, UndefinedLimitBehavior."""
    known = [name for name in _READERS if kind == "queue" or name not in _OF_QUEUES]
    for name in given:
        if name not in known:
            detail = f"a {kind} has no such attribute; it has {', '.join(known)}"
            raise InvalidArgument(what=name, detail=detail)
    return {name: _READERS[name](name, value) for name, value in given.items()}


def configure(
    target: Queue | Topic,
    configured: DestinationSettings | None,
    definition: Definition,
    redelivery_limit: int,
    settings: EngineSettings,
) -> None:
    """What holds for a destination: hms.conf first, then what was set since."""
    control, altered = target.control, dict(definition.altered)
    own: dict[str, Any] = {_LIMITS[k]: v for k, v in altered.items() if k in _LIMITS}
    if "behavior" in own:
        own["behavior"] = LimitBehavior(own["behavior"])
    base = _limits_of(configured) if configured is not None else {}
    control.set_limits(Limits(**base | own))
    control.altered = altered
    control.life, control.owner = Lifetime(definition.made), definition.client_uid
    control.export_name = str(_of(altered, "export_name", configured, ""))
    sending, receiving = PAUSES[definition.paused]
    control.pause(sending=sending, receiving=receiving)
    target.redelivery_limit = int(altered.get("redelivery_limit", redelivery_limit))
    delay_ms = int(_of({}, "redelivery_delay_ms", configured, settings.redelivery_delay_ms))
    delay_s = altered.get("redelivery_delay_s")
    target.redelivery_delay_ms = delay_ms if delay_s is None else round(float(delay_s) * 1000)
    target.dead_letter = str(_of(altered, "dead_letter", configured, settings.dead_letter))
    target.expired_to = str(_of(altered, "expired_to", configured, settings.expired_to))


def _of(
    altered: Mapping[str, Value], name: str, configured: DestinationSettings | None, default: Value
) -> Value:
    own = altered.get(name)
    if own is not None:
        return own
    value: Value | None = None if configured is None else getattr(configured, name)
    return default if value is None else value


def _limits_of(configured: DestinationSettings) -> dict[str, Any]:
    return {
        "messages_max": configured.messages_max,
        "bytes_max": configured.bytes_max,
        "message_bytes_max": configured.message_bytes_max,
        "producers_max": configured.producers_max,
        "active_max": configured.active_max,
        "backups_max": configured.backups_max,
        "behavior": LimitBehavior(configured.limit_behavior),
    }


def said_of(control: Control) -> dict[str, Value]:
    """The attributes of a destination as operators see them."""
    limits = control.limits
    shown: dict[str, Value] = {
        name: str(value) if isinstance(value := getattr(limits, field), LimitBehavior) else value
        for name, field in _LIMITS.items()
    }
    return shown | {
        "export_name": control.export_name,
        "paused": control.paused,
        "life": control.life.value or "CONFIGURED",
    }


def audited_of(target: Queue | Topic) -> dict[str, Value]:
    """What the audit says of a destination before and behind an order that changes it."""
    of_letters: dict[str, Value] = {
        "redelivery_limit": target.redelivery_limit,
        "redelivery_delay_s": target.redelivery_delay_ms / 1000,
        "dead_letter": target.dead_letter,
        "expired_to": target.expired_to,
    }
    return said_of(target.control) | of_letters
