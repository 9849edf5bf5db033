"""The keys of hms-client.toml: each is an argument of connect(), session(), producer() or
consumer().

From this table come the check of the file, `hms client config show`, and the tables of
docs/reference/client-profiles.md (scripts/generate-configuration).
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from hms.client.compression import ZLIB, ZSTD
from hms.client.core.addresses import ORDERS
from hms.client.core.arguments import (
    check_flag,
    check_number,
    check_seconds,
    check_text,
    check_word,
    shown,
)
from hms.client.core.client_keys import check_server_keys
from hms.client.core.requests import checked_addresses
from hms.client.profiles.secret_references import checked_reference
from hms.client.send_options import PRIORITY_MAX
from hms.client.session_members import DELAY_MS_MAX, PREFETCH, PREFETCH_BYTES_MAX, PREFETCH_MAX
from hms.constants import AckMode
from hms.errors.catalogue import InvalidArgument

__all__ = ["ABSENT", "KEYS", "SECRETS", "Part", "ProfileKey", "key_named"]

_PATH_CHARACTERS_MAX = 4096


class Part(StrEnum):
    """Which call takes a key."""

    CONNECTION = "connection"
    SESSION = "session"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class ProfileKey(NamedTuple):
    """read: the value as the call takes it, InvalidArgument for one that it does not; built_in:
    what holds where nobody says; is_login: it says where a connection goes, or by what proof."""

    name: str
    part: Part
    takes: str
    read: Callable[[str, Any], Any]
    built_in: Any
    why: str
    is_login: bool = False


def _flag(what: str, value: Any) -> Any:
    return check_flag(what, value)


def _text(what: str, value: Any) -> Any:
    return check_text(what, value)


def _seconds(most: float | None = None) -> Callable[[str, Any], Any]:
    limits = {} if most is None else {"most": most}
    return lambda what, value: check_seconds(what, value, **limits)


def _addresses(what: str, value: Any) -> Any:
    if not isinstance(value, str | list):
        detail = f'{shown(value)} is no list such as ["tcp://broker:7700"]'
        raise InvalidArgument(what=what, detail=detail)
    return tuple(checked_addresses(value))


def _server_keys(what: str, value: Any) -> Any:
    if not isinstance(value, list) or not value:
        raise InvalidArgument(what=what, detail="it is no list of keys")
    check_server_keys(value)
    return tuple(value)


def _path(what: str, value: Any) -> Any:
    path = check_text(what, value, _PATH_CHARACTERS_MAX, least=1)
    if "\0" in path:
        raise InvalidArgument(what=what, detail="a path has no zero byte")
    return path


def _ack(what: str, value: Any) -> Any:
    return AckMode[check_word(what, value, tuple(AckMode.__members__))]


def _compress(what: str, value: Any) -> Any:
    if value is True or value is False:
        return value
    if isinstance(value, str) and value in (ZLIB, ZSTD):
        return value
    detail = f"{shown(value)} is not true, false, {ZLIB} or {ZSTD}"
    raise InvalidArgument(what=what, detail=detail)


def _number(least: int, most: int) -> Callable[[str, Any], Any]:
    return lambda what, value: check_number(what, value, least, most)


def _order(what: str, value: Any) -> Any:
    return check_word(what, value, ORDERS)


_REFERENCE = "env:NAME, file:PATH or cred:NAME"
_SECONDS = "a number of seconds"
_IS = "true or false"

KEYS: tuple[ProfileKey, ...] = (
    ProfileKey(
        "addresses",
        Part.CONNECTION,
        "a list of addresses, tcp:// or ipc://",
        _addresses,
        (),
        "Where the node is, or several, in the order in which they are tried.",
        is_login=True,
    ),
    ProfileKey(
        "server_keys",
        Part.CONNECTION,
        "a list of public keys",
        _server_keys,
        (),
        "Of an encrypted connection, the keys that the node may show.",
        is_login=True,
    ),
    ProfileKey(
        "key_file",
        Part.CONNECTION,
        "a path, relative to the file",
        _path,
        "",
        "The client's own key pair, mode 0600, by which a node may know it.",
        is_login=True,
    ),
    ProfileKey(
        "user", Part.CONNECTION, "a text", _text, "", "Who logs in with a password.", is_login=True
    ),
    ProfileKey(
        "password",
        Part.CONNECTION,
        _REFERENCE,
        checked_reference,
        "",
        "Where the password of the user is; it is read at each connect().",
        is_login=True,
    ),
    ProfileKey(
        "token",
        Part.CONNECTION,
        _REFERENCE,
        checked_reference,
        "",
        "Where a token is, instead of a password; it is read at each login.",
        is_login=True,
    ),
    ProfileKey(
        "allow_unsecured",
        Part.CONNECTION,
        _IS,
        _flag,
        built_in=False,
        why="Go on with a node that checks no login.",
        is_login=True,
    ),
    ProfileKey(
        "client_id",
        Part.CONNECTION,
        "a text",
        _text,
        "",
        "Whose durable subscriptions they are; of one connection at a time.",
        is_login=True,
    ),
    ProfileKey(
        "trace",
        Part.CONNECTION,
        _IS,
        _flag,
        built_in=False,
        why="Trace all that the process does with HMS; with the extra otel.",
    ),
    ProfileKey("client_name", Part.CONNECTION, "a text", _text, "", "What operators see it by."),
    ProfileKey(
        "address_order",
        Part.CONNECTION,
        ", ".join(ORDERS),
        _order,
        "priority",
        "Which of several addresses is tried first.",
    ),
    ProfileKey(
        "reconnect",
        Part.CONNECTION,
        _IS,
        _flag,
        built_in=True,
        why="Open a lost connection again.",
    ),
    ProfileKey(
        "reconnect_interval_s",
        Part.CONNECTION,
        _SECONDS,
        _seconds(),
        5,
        "How long to wait between two tries.",
    ),
    ProfileKey(
        "reconnect_period_s",
        Part.CONNECTION,
        _SECONDS,
        _seconds(),
        0,
        "For how long it is tried; 0: forever.",
    ),
    ProfileKey(
        "request_timeout_s",
        Part.CONNECTION,
        _SECONDS,
        _seconds(),
        200,
        "How long a call waits for the node, also through an outage.",
    ),
    ProfileKey(
        "connect_timeout_s",
        Part.CONNECTION,
        _SECONDS,
        _seconds(),
        None,
        "How long a first connection is tried, also where nothing listens yet; without it 10 s, "
        "and not where nothing listens.",
    ),
    ProfileKey(
        "ack",
        Part.SESSION,
        ", ".join(AckMode.__members__),
        _ack,
        AckMode.AUTO,
        "How received messages are acknowledged, in sessions that are neither transacted, XA nor "
        "asynchronous.",
    ),
    ProfileKey(
        "persistent",
        Part.PRODUCER,
        _IS,
        _flag,
        built_in=True,
        why="Whether messages survive a crash of the node.",
    ),
    ProfileKey(
        "priority",
        Part.PRODUCER,
        f"0 to {PRIORITY_MAX}",
        _number(0, PRIORITY_MAX),
        4,
        "The highest is delivered first.",
    ),
    ProfileKey(
        "ttl_s", Part.PRODUCER, _SECONDS, _seconds(), 0, "When a message expires; 0: never."
    ),
    ProfileKey(
        "compress",
        Part.PRODUCER,
        f"true, false, {ZLIB} or {ZSTD}",
        _compress,
        built_in=False,
        why=f"Whether bodies are compressed; true: by {ZLIB}.",
    ),
    ProfileKey(
        "prefetch",
        Part.CONSUMER,
        f"0 to {PREFETCH_MAX}",
        _number(0, PREFETCH_MAX),
        PREFETCH,
        "The most messages that the node sends before they are received.",
    ),
    ProfileKey(
        "prefetch_bytes",
        Part.CONSUMER,
        "a number of bytes",
        _number(0, PREFETCH_BYTES_MAX),
        None,
        "The most bytes of them; without it what the node says.",
    ),
    ProfileKey(
        "redelivery_delay_s",
        Part.CONSUMER,
        _SECONDS,
        _seconds(DELAY_MS_MAX // 1000),
        0,
        "How long a message that failed waits for its next delivery; not of ordered consumers.",
    ),
)

SECRETS = ("password", "token")

ABSENT: Mapping[str, str] = {
    "export_name": "profiles are found by their name alone",
    "client_id_shared": "a client id is of one connection at a time",
    "xa": "a program opens an XA session itself: session(xa=True)",
    "max_pending": "prefetch and prefetch_bytes limit what a consumer has",
    "resume_factor": "when the node sends more cannot be set",
    "multicast": "topics are not multicast",
    "lpq": "there is no local queue for times when the node is away",
    "pooled": "there are no pools of connections",
    "group": "permissions follow from the user that logs in",
    "permissions": "permissions follow from the user that logs in",
    "default_redelivery_limit": "the destination has its limit in hms.conf",
    "file_block_bytes": "a program says it itself: Message.file(path, block_bytes=…)",
    "work_dir": "the client keeps no files",
}
"""What other systems have in such a file, and what is there instead."""

_BY_NAME = {key.name: key for key in KEYS}


def key_named(name: str) -> ProfileKey | None:
    """The key of that name."""
    return _BY_NAME.get(name)
