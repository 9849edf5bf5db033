"""Numbers and their names: what REASON, MSGTYPE, PERSIST, APPLTYPE and FEEDBACK compare.

Names of HMS and symbols of IBM MQ mean the same numbers. What IBM has no number for has one of its
user range, from 65,536 on.
"""

__all__ = ["NUMBER_MAX", "SYMBOLS", "number_of_reason"]

NUMBER_MAX = 999_999_999
REASONS = {
    "DESTINATION_UNKNOWN": 2085,
    "DESTINATION_DELETED": 2052,
    "QUEUE_FULL": 2053,
    "PUT_INHIBITED": 2051,
    "NOT_AUTHORIZED": 2035,
    "MESSAGE_TOO_LARGE": 2030,
    "DECODE_ERROR": 2110,
    "GROUP_INCOMPLETE": 2241,
    "REDELIVERY_LIMIT": 2362,
    "REJECTED": 65_536,
    "EXPIRED": 65_537,
}
_IBM_REASONS = {
    "MQRC_UNKNOWN_OBJECT_NAME": 2085,
    "MQRC_Q_DELETED": 2052,
    "MQRC_Q_FULL": 2053,
    "MQRC_PUT_INHIBITED": 2051,
    "MQRC_NOT_AUTHORIZED": 2035,
    "MQRC_MSG_TOO_BIG_FOR_Q": 2030,
    "MQRC_FORMAT_ERROR": 2110,
    "MQRC_INCOMPLETE_GROUP": 2241,
    "MQRC_BACKOUT_THRESHOLD_REACHED": 2362,
}
REQUEST, REPLY, DATAGRAM = 1, 2, 8
PERSISTENT, NOT_PERSISTENT = 1, 0
CLIENT, SERVICE, NODE = 65_536, 65_537, 65_538
SYMBOLS: dict[str, dict[str, int]] = {
    "REASON": REASONS | _IBM_REASONS,
    "MSGTYPE": {
        **dict.fromkeys(("REQUEST", "MQMT_REQUEST"), REQUEST),
        **dict.fromkeys(("REPLY", "MQMT_REPLY"), REPLY),
        **dict.fromkeys(("DATAGRAM", "MQMT_DATAGRAM"), DATAGRAM),
        "MQMT_REPORT": 4,
    },
    "PERSIST": {
        **dict.fromkeys(("PERSISTENT", "MQPER_PERSISTENT"), PERSISTENT),
        **dict.fromkeys(("NOT_PERSISTENT", "MQPER_NOT_PERSISTENT"), NOT_PERSISTENT),
    },
    "APPLTYPE": {"CLIENT": CLIENT, "SERVICE": SERVICE, "NODE": NODE, "MQAT_UNIX": 6},
    "FEEDBACK": {
        "MQFB_NONE": 0,
        "MQFB_QUIT": 256,
        "MQFB_EXPIRATION": 258,
        "MQFB_COA": 259,
        "MQFB_COD": 260,
        "MQFB_PAN": 275,
        "MQFB_NAN": 276,
    },
}
UNKNOWN = -1


def number_of_reason(name: object) -> int:
    """Of a letter's $DeadReason; one that no rule names for what is not known."""
    return REASONS.get(name, UNKNOWN) if isinstance(name, str) else UNKNOWN
