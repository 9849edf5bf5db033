"""The tables, after JEUS MQ's (appendix B of its guide), in words that both databases take.

    destination            queues and topics                        (B.1)
    durable_subscription   of topics                                (B.2)
    message                each one once, however many hold it      (B.3)
    meta                   whose store it is, who writes, how far   (B.4)
    subscription_message   a message at a queue or subscription     (B.5)
    transaction            commits that took effect                 (B.6)
    producer               batches that were taken
    message_id             ids below these may have been given away
    pending                branches in doubt and decisions of distributed transactions
    log                    the records themselves, for the history
    audit                  of a secured node, who ordered what
    migration              the versions that these tables went through

A version is never changed once it was released; a change of the tables is a further one.
"""

from typing import Final

from hms.errors.catalogue import StoreFormatUnknown

TYPES_POSTGRESQL: Final = {
    "long": "BIGINT",
    "int": "INTEGER",
    "small": "SMALLINT",
    "text": "TEXT",
    "bytes": "BYTEA",
    "yes": "BOOLEAN",
    "rewritten": " WITH (fillfactor = 70)",
    "by_key": "",
}
TYPES_SQLITE: Final = {
    "long": "INTEGER",
    "int": "INTEGER",
    "small": "INTEGER",
    "text": "TEXT",
    "bytes": "BLOB",
    "yes": "INTEGER",
    "rewritten": "",
    "by_key": " WITHOUT ROWID",
}

_VERSION_1: Final = """
CREATE TABLE {p}meta (
    one {int} NOT NULL PRIMARY KEY CHECK (one = 1),
    node_uid {long} NOT NULL,
    epoch {long} NOT NULL,
    owner_host {text} NOT NULL,
    owner_pid {long} NOT NULL,
    owner_mark {text} NOT NULL,
    lease_until_ms {long} NOT NULL,
    last_lsn {long} NOT NULL,
    next_position {long} NOT NULL,
    next_number {long} NOT NULL,
    next_seq {long} NOT NULL,
    now_ms {long} NOT NULL,
    event {text} NOT NULL,
    event_ms {long} NOT NULL
){rewritten};
CREATE TABLE {p}destination (
    number {long} NOT NULL PRIMARY KEY,
    kind {text} NOT NULL,
    name {text} NOT NULL,
    definition {bytes} NOT NULL
);
CREATE TABLE {p}durable_subscription (
    number {long} NOT NULL PRIMARY KEY,
    name {text} NOT NULL,
    topic {long} NOT NULL,
    client_id {text} NOT NULL,
    selector {text} NOT NULL,
    definition {bytes} NOT NULL
);
CREATE TABLE {p}message (
    position {long} NOT NULL PRIMARY KEY,
    id {long} NOT NULL,
    seq {long} NOT NULL,
    destination {long} NOT NULL,
    timestamp_ms {long} NOT NULL,
    expires_at_ms {long} NOT NULL,
    priority {small} NOT NULL,
    kind {small} NOT NULL,
    head {bytes} NOT NULL,
    body {bytes} NOT NULL
);
CREATE INDEX {p}message_by_id ON {p}message (id);
CREATE TABLE {p}subscription_message (
    holder {long} NOT NULL,
    message_id {long} NOT NULL,
    position {long} NOT NULL,
    deliveries {int} NOT NULL,
    attempts {int} NOT NULL,
    due_ms {long} NOT NULL,
    is_out {yes} NOT NULL,
    PRIMARY KEY (holder, message_id)
){rewritten}{by_key};
CREATE INDEX {p}subscription_message_by_position ON {p}subscription_message (position);
CREATE TABLE {p}transaction (
    client_uid {long} NOT NULL,
    session {long} NOT NULL,
    number {long} NOT NULL,
    lsn {long} NOT NULL,
    PRIMARY KEY (client_uid, session)
){rewritten};
CREATE TABLE {p}producer (
    client_uid {long} NOT NULL,
    producer {long} NOT NULL,
    first_sequence {long} NOT NULL,
    first_message_id {long} NOT NULL,
    timestamp_ms {long} NOT NULL,
    message_count {int} NOT NULL,
    forgotten {long} NOT NULL,
    lsn {long} NOT NULL,
    PRIMARY KEY (client_uid, producer, first_sequence)
){by_key};
CREATE TABLE {p}message_id (
    node_index {int} NOT NULL PRIMARY KEY,
    below {long} NOT NULL
);
CREATE TABLE {p}log (
    lsn {long} NOT NULL PRIMARY KEY,
    kind {small} NOT NULL,
    events {int} NOT NULL,
    at_ms {long} NOT NULL,
    position {long} NOT NULL,
    payload {bytes} NOT NULL
);
"""
_VERSION_2: Final = """
CREATE TABLE {p}pending (
    kind {small} NOT NULL,
    name {bytes} NOT NULL,
    lsn {long} NOT NULL,
    record {bytes} NOT NULL,
    PRIMARY KEY (kind, name)
);
"""
_VERSION_3: Final = """
CREATE TABLE {p}audit (
    number {long} NOT NULL PRIMARY KEY,
    at_ms {long} NOT NULL,
    record {bytes} NOT NULL
);
"""
_ONLY_POSTGRESQL: Final = """
ALTER TABLE {p}message ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE {p}log ALTER COLUMN payload SET STORAGE EXTERNAL;
"""

VERSIONS: Final = (_VERSION_1, _VERSION_2, _VERSION_3)
FIRST_POSITION: Final = 1 << 32
"""Positions begin high enough that a record put around a message never begins below zero."""


def migration_table(prefix: str, types: dict[str, str]) -> str:
    """The table that must be there before anything else is asked."""
    text = (
        "CREATE TABLE IF NOT EXISTS {p}migration"
        " (version {int} NOT NULL PRIMARY KEY, at_ms {long} NOT NULL)"
    )
    return text.format(p=prefix, **types)


def statements_from(version: int, prefix: str, types: dict[str, str]) -> list[str]:
    """What makes tables of that version those of this one; 0: there are none."""
    text = "".join(VERSIONS[version:])
    if version == 0 and types is TYPES_POSTGRESQL:
        text += _ONLY_POSTGRESQL
    whole = text.format(p=prefix, **types)
    return [statement.strip() for statement in whole.split(";") if statement.strip()]


def check_version(found: int, shown: str) -> None:
    """Refuse tables that a newer version has made."""
    if found > len(VERSIONS):
        raise StoreFormatUnknown(file=shown, found=found, known=len(VERSIONS))
