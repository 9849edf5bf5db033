"""Public names: what dir() shows of the objects that applications hold.

The library's own parts call one another by further names, which are no promise to anybody; they
would hide the few that are.
"""

_ENDS = ("close",)
_HEADER = (
    *("message_id", "destination", "topic", "timestamp", "timestamp_ms", "delivery_time"),
    *("delivery_time_ms", "expiration", "expires_at_ms", "delivery_mode", "persistent"),
    *("priority", "delivery_count", "redelivered", "is_retained", "fencing_token"),
    *("correlation_id", "type", "reply_to"),
)
_GETTERS = tuple(
    f"get_{kind}"
    for kind in ("boolean", "byte", "short", "int", "long", "float", "double", "string", "bytes")
)

PUBLIC = {
    "Connection": (
        *(
            "session",
            "transaction",
            "call",
            "call_async",
            "conversation",
            "administer",
            "admin",
            "renew",
        ),
        *(
            "outcome",
            "watch",
            "schedules",
            "schedule",
            "cancel_schedule",
            "client_id",
            "node_name",
            "addresses",
        ),
        *("is_connected", "is_ended", "request_timeout_s", *_ENDS),
    ),
    "Session": (
        *("producer", "consumer", "subscriber", "browser", "topic", "send", "commit", "rollback"),
        *("recover", "ack", "unsubscribe", "create_queue", "create_topic", "temporary_queue"),
        *("temporary_topic", "delete_temporary", "lookup", "resource", "connection"),
        *("transacted", "ack_mode", *_ENDS),
    ),
    "Producer": (
        *("send", "send_async", "send_many", "schedule", "destination", "name", "persistent"),
        *("ttl_s", "priority", "delay_s", "retain", "compress", "global_order"),
        *("start_global_order", "end_global_order", *_ENDS),
    ),
    "Consumer": (
        *("receive", "receive_nowait", "receive_many", "listen", "request_retained"),
        *("destination", "selector", "name", "prefetch", "durable", "shared", "no_local"),
        *("ordered", "redelivery_delay_s", "priority", "is_over", *_ENDS),
    ),
    "Browser": ("queue", "selector", "next_message", *_ENDS),
    "JMSContext": (
        *("connection", "session", "context", "send", "receive", "subscriber", "browser"),
        *("unsubscribe", "ack", "recover", "commit", "rollback", *_ENDS),
    ),
    "Message": (
        *("text", "map", "stream", "object", "file", "body", "body_bytes", "kind", "inflate"),
        *("compression", "properties", "property", "field_buffer", "clear_body"),
        *("clear_properties", "file_info", "save", "ack", *_HEADER, *_GETTERS),
    ),
}
"""By the class, the same for threads and for asyncio."""


def public_names(shown: object) -> list[str]:
    """For __dir__: Python's own names and the public ones of its class that it has."""
    kind = type(shown)
    own = [name for name in object.__dir__(shown) if name.startswith("__")]
    return own + [
        name for name in PUBLIC[kind.__name__] if hasattr(kind, name) or _is_own(shown, name)
    ]


def _is_own(shown: object, name: str) -> bool:
    return name in getattr(shown, "__dict__", ())
