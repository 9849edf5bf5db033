"""The fields of a dead letter that rules compare, from what the node lists of it."""

from collections.abc import Mapping
from typing import Any

from hms.client.letter_rules.rule_patterns import LetterFields
from hms.client.letter_rules.rule_symbols import (
    CLIENT,
    DATAGRAM,
    NODE,
    NOT_PERSISTENT,
    PERSISTENT,
    REPLY,
    REQUEST,
    number_of_reason,
)

__all__ = ["ASKED", "fields_of"]

KINDS = ("BYTES", "TEXT", "MAP", "STREAM", "OBJECT", "FILE", "EMPTY")
_KIND_MASK = 15
ASKED = (
    *("$DeadReason", "$DeadOrigin", "$DeadTime", "$DeadCount", "$ReturnCount", "$ScheduleName"),
    *("JMSReplyTo", "JMSCorrelationID", "$UserID", "$Client", "JMS_HMS_ClientID"),
    *("JMS_HMS_ReplyNode", "JMS_HMS_DestinationNode"),
)
"""Names of the values that are asked of the node for each letter."""


def fields_of(
    row: Mapping[str, Any], node: str, now_ms: int, fits: frozenset[str] = frozenset()
) -> LetterFields:
    """From a row of a list; node: the name of the one that has it."""
    said: Mapping[str, Any] = row.get("properties", {})
    reply, correlation = _text(said, "JMSReplyTo"), said.get("JMSCorrelationID")
    kind = row["kind"] & _KIND_MASK
    is_of_node = "$ScheduleName" in said
    texts = {
        "APPLIDAT": _text(said, "JMS_HMS_ClientID"),
        "APPLNAME": _text(said, "$Client"),
        "USERID": _text(said, "$UserID"),
        "DESTQ": _text(said, "$DeadOrigin").partition(":")[2],
        "DESTQM": _text(said, "JMS_HMS_DestinationNode") or node,
        "FORMAT": KINDS[kind] if kind < len(KINDS) else "",
        "REPLYQ": reply.partition(":")[2] if ":" in reply else reply,
        "REPLYQM": _text(said, "JMS_HMS_ReplyNode") or (node if reply else ""),
    }
    numbers = {
        "REASON": number_of_reason(said.get("$DeadReason")),
        "MSGTYPE": REQUEST if reply else REPLY if correlation is not None else DATAGRAM,
        "PERSIST": PERSISTENT if row["persistent"] else NOT_PERSISTENT,
        "APPLTYPE": NODE if is_of_node else CLIENT,
        "FEEDBACK": 0,
    }
    return LetterFields(
        row["id"],
        "$DeadReason" in said,
        texts,
        numbers,
        max(0, now_ms - _number(said, "$DeadTime")) / 1000,
        _number(said, "$DeadCount"),
        _number(said, "$ReturnCount"),
        fits,
    )


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""


def _number(said: Mapping[str, Any], name: str) -> int:
    value = said.get(name)
    return value if isinstance(value, int) else 0
