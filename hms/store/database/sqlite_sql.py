"""The statements for SQLite; {p} is the prefix of the tables. A row each, many rows a call."""

from typing import Final

META: Final = (
    "SELECT node_uid, epoch, last_lsn, next_position, next_number, next_seq, now_ms, event,"
    " event_ms FROM {p}meta"
)
FIRST_META: Final = (
    "INSERT INTO {p}meta SELECT 1, ?, 0, '', 0, '', 0, 0, ?, 1, 1, 0, '', 0"
    " WHERE NOT EXISTS (SELECT 1 FROM {p}meta)"
)
VERSION: Final = "SELECT coalesce(max(version), 0) FROM {p}migration"
MIGRATED: Final = "INSERT INTO {p}migration VALUES (?, ?)"
TAKE: Final = (
    "UPDATE {p}meta SET epoch = epoch + 1, owner_host = ?, owner_pid = ?, owner_mark = ?,"
    " lease_until_ms = ?"
)
EPOCH: Final = "SELECT epoch FROM {p}meta"
RELEASE: Final = "UPDATE {p}meta SET lease_until_ms = 0 WHERE epoch = ?"

FENCE: Final = (
    "UPDATE {p}meta SET last_lsn = ?, next_position = ?, next_number = ?, next_seq = ?, now_ms = ?,"
    " event = ?, event_ms = ? WHERE epoch = ? AND last_lsn = ?"
)
END_PLACE: Final = (
    (
        "DELETE FROM {p}message WHERE position IN (SELECT position FROM {p}subscription_message"
        " WHERE holder = ?1) AND NOT EXISTS (SELECT 1 FROM {p}subscription_message o"
        " WHERE o.position = {p}message.position AND o.holder <> ?1)"
    ),
    "DELETE FROM {p}subscription_message WHERE holder = ?1",
    "DELETE FROM {p}durable_subscription WHERE number = ?1",
)
LEAVE: Final = "DELETE FROM {p}subscription_message WHERE holder = ? AND message_id = ?"
UNHELD: Final = (
    "DELETE FROM {p}message WHERE id = ? AND NOT EXISTS (SELECT 1 FROM {p}subscription_message s"
    " WHERE s.position = {p}message.position)"
)
LOG: Final = "INSERT INTO {p}log VALUES (?, ?, ?, ?, ?, ?)"
MESSAGES: Final = "INSERT INTO {p}message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
STAYS: Final = "INSERT OR REPLACE INTO {p}subscription_message VALUES (?, ?, ?, ?, ?, ?, ?)"
CHANGE: Final = (
    "UPDATE {p}subscription_message SET"
    " is_out = CASE WHEN is_out THEN ?3 ELSE ?7 END,"
    " deliveries = deliveries + CASE WHEN is_out THEN ?4 ELSE ?8 END,"
    " attempts = attempts + CASE WHEN is_out THEN ?5 ELSE ?9 END,"
    " due_ms = CASE WHEN CASE WHEN is_out THEN ?6 ELSE ?10 END THEN due_ms ELSE 0 END"
    " WHERE holder = ?1 AND message_id = ?2"
)
BATCHES_GONE: Final = (
    "DELETE FROM {p}producer WHERE client_uid = ? AND producer = ? AND first_sequence = ?"
)
BATCHES: Final = "INSERT OR REPLACE INTO {p}producer VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
FORGOTTEN: Final = (
    "UPDATE {p}producer SET forgotten = ?3, lsn = ?4 WHERE client_uid = ?1 AND producer = ?2"
)
COMMITS_GONE: Final = "DELETE FROM {p}transaction WHERE client_uid = ? AND session = ?"
COMMITS: Final = "INSERT OR REPLACE INTO {p}transaction VALUES (?, ?, ?, ?)"
DESTINATION: Final = "INSERT OR REPLACE INTO {p}destination VALUES (?, ?, ?, ?)"
SUBSCRIPTION: Final = "INSERT OR REPLACE INTO {p}durable_subscription VALUES (?, ?, ?, ?, ?, ?)"
IDS: Final = (
    "INSERT INTO {p}message_id VALUES (?1, ?2) ON CONFLICT (node_index)"
    " DO UPDATE SET below = max(below, ?2)"
)

PENDING_GONE: Final = "DELETE FROM {p}pending WHERE kind = ? AND name = ?"
PENDING: Final = "INSERT INTO {p}pending VALUES (?, ?, ?, ?)"

AUDIT: Final = "INSERT INTO {p}audit VALUES (?, ?, ?)"
AUDIT_HEAD: Final = "SELECT record FROM {p}audit ORDER BY number DESC LIMIT 1"
PRUNE_AUDIT: Final = (
    "DELETE FROM {p}audit WHERE at_ms < ? AND number < (SELECT max(number) FROM {p}audit)"
)
"""The last one stays: the next one continues it."""

DEFINITIONS: Final = (
    "SELECT definition FROM {p}destination ORDER BY number",
    "SELECT definition FROM {p}durable_subscription ORDER BY number",
)
IDS_BELOW: Final = "SELECT below FROM {p}message_id ORDER BY node_index"
ALL_BATCHES: Final = "SELECT * FROM {p}producer"
ALL_COMMITS: Final = "SELECT * FROM {p}transaction"
ALL_PENDING: Final = "SELECT kind, name, lsn, record FROM {p}pending ORDER BY lsn"
ALL_MESSAGES: Final = "SELECT * FROM {p}message ORDER BY position"
ALL_STAYS: Final = "SELECT * FROM {p}subscription_message ORDER BY position, holder"
READ: Final = (
    "SELECT position, head, body FROM {p}message WHERE position < ? AND position >="
    " (SELECT coalesce(max(position), 0) FROM {p}message WHERE position <= ?) ORDER BY position"
)
PRUNE: Final = (
    "DELETE FROM {p}log WHERE lsn IN (SELECT lsn FROM (SELECT lsn, at_ms, position FROM {p}log"
    " ORDER BY lsn LIMIT ?) WHERE at_ms < ? OR position < ?)"
)


def prepared(prefix: str) -> dict[str, str]:
    """The statements by name, for the tables with this prefix."""
    every = {
        name: text.format(p=prefix)
        for name, text in globals().items()
        if name.isupper() and isinstance(text, str) and not name.startswith("_")
    }
    return every | {"PREFIX": prefix}
