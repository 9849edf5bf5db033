"""The statements for SQLite; {p} is the prefix of the tables. A row each, many rows a call."""

from typing import Final

from hms.store.database import portable_sql

MIGRATED: Final = "INSERT INTO {p}migration VALUES (?, ?)"
TAKE: Final = (
    "UPDATE {p}meta SET epoch = epoch + 1, owner_host = ?, owner_pid = ?, owner_mark = ?,"
    " lease_until_ms = ?"
)
EPOCH: Final = "SELECT epoch FROM {p}meta"

FENCE: Final = (
    "UPDATE {p}meta SET last_lsn = ?, next_position = ?, next_number = ?, next_seq = ?, now_ms = ?,"
    " event = ?, event_ms = ? WHERE epoch = ? AND last_lsn = ?"
)
END_MESSAGES: Final = (
    "DELETE FROM {p}message WHERE position IN (SELECT position FROM {p}subscription_message"
    " WHERE holder = ?1) AND NOT EXISTS (SELECT 1 FROM {p}subscription_message o"
    " WHERE o.position = {p}message.position AND o.holder <> ?1)"
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
    " due_ms = CASE WHEN CASE WHEN is_out THEN ?6 ELSE ?10 END < 0 THEN due_ms"
    " WHEN is_out THEN ?6 ELSE ?10 END"
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

ALL_MESSAGES: Final = "SELECT * FROM {p}message ORDER BY position"
READ: Final = (
    "SELECT position, head, body FROM {p}message WHERE position < ? AND position >="
    " (SELECT coalesce(max(position), 0) FROM {p}message WHERE position <= ?) ORDER BY position"
)


def prepared(prefix: str) -> dict[str, str]:
    """The statements by name, for the tables with this prefix."""
    return portable_sql.prepared(prefix, globals(), portable_sql.PARAMETERS_SQLITE)
