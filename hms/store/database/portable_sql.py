"""The statements that every database takes as they are; {p} is the prefix of the tables.

A parameter is named by the type of its column, as in the schema: {long} is `%s::BIGINT` for
PostgreSQL and `?` for SQLite. What a database does in a form of its own stands in its own table.
"""

from collections.abc import Mapping
from typing import Any, Final

PARAMETERS_POSTGRESQL: Final = {
    "long": "%s::int8",
    "int": "%s::int4",
    "small": "%s::int2",
    "text": "%s",
    "bytes": "%s::bytea",
}
PARAMETERS_SQLITE: Final = dict.fromkeys(PARAMETERS_POSTGRESQL, "?")

META: Final = (
    "SELECT node_uid, epoch, last_lsn, next_position, next_number, next_seq, now_ms, event,"
    " event_ms FROM {p}meta"
)
FIRST_META: Final = (
    "INSERT INTO {p}meta SELECT 1, {long}, 0, '', 0, '', 0, 0, {long}, 1, 1, 0, '', 0"
    " WHERE NOT EXISTS (SELECT 1 FROM {p}meta)"
)
VERSION: Final = "SELECT coalesce(max(version), 0) FROM {p}migration"
RELEASE: Final = "UPDATE {p}meta SET lease_until_ms = 0 WHERE epoch = {long}"

END_STAYS: Final = "DELETE FROM {p}subscription_message WHERE holder = {long}"
END_SUBSCRIPTION: Final = "DELETE FROM {p}durable_subscription WHERE number = {long}"
DESTINATION: Final = (
    "INSERT INTO {p}destination VALUES ({long}, {text}, {text}, {bytes}) ON CONFLICT (number)"
    " DO UPDATE SET kind = excluded.kind, name = excluded.name, definition = excluded.definition"
)
SUBSCRIPTION: Final = (
    "INSERT INTO {p}durable_subscription VALUES ({long}, {text}, {long}, {text}, {text}, {bytes})"
    " ON CONFLICT (number) DO UPDATE SET name = excluded.name, topic = excluded.topic,"
    " client_id = excluded.client_id, selector = excluded.selector,"
    " definition = excluded.definition"
)
IDS: Final = (
    "INSERT INTO {p}message_id AS known VALUES ({int}, {long}) ON CONFLICT (node_index)"
    " DO UPDATE SET below = excluded.below WHERE known.below < excluded.below"
)
PENDING_GONE: Final = "DELETE FROM {p}pending WHERE kind = {small} AND name = {bytes}"
PENDING: Final = "INSERT INTO {p}pending VALUES ({small}, {bytes}, {long}, {bytes})"

AUDIT: Final = "INSERT INTO {p}audit VALUES ({long}, {long}, {bytes})"
AUDIT_HEAD: Final = "SELECT record FROM {p}audit ORDER BY number DESC LIMIT 1"
PRUNE_AUDIT: Final = (
    "DELETE FROM {p}audit WHERE at_ms < {long} AND number < (SELECT max(number) FROM {p}audit)"
)
"""The last one stays: the next one continues it."""
OLDEST: Final = (
    "SELECT (SELECT at_ms FROM {p}log ORDER BY lsn LIMIT 1),"
    " (SELECT at_ms FROM {p}audit ORDER BY number LIMIT 1)"
)
PRUNE: Final = (
    "DELETE FROM {p}log WHERE lsn IN (SELECT lsn FROM (SELECT lsn, at_ms, position FROM {p}log"
    " ORDER BY lsn LIMIT {int}) oldest WHERE at_ms < {long} OR position < {long})"
)

DESTINATIONS: Final = "SELECT definition FROM {p}destination ORDER BY number"
SUBSCRIPTIONS: Final = "SELECT definition FROM {p}durable_subscription ORDER BY number"
IDS_BELOW: Final = "SELECT below FROM {p}message_id ORDER BY node_index"
ALL_BATCHES: Final = "SELECT * FROM {p}producer"
ALL_COMMITS: Final = "SELECT * FROM {p}transaction"
ALL_PENDING: Final = "SELECT kind, name, lsn, record FROM {p}pending ORDER BY lsn"
ALL_STAYS: Final = (
    "SELECT holder, message_id, position, deliveries, attempts, due_ms, is_out"
    " FROM {p}subscription_message ORDER BY position, holder"
)


def prepared(prefix: str, own: dict[str, Any], parameters: Mapping[str, str]) -> dict[str, str]:
    """The statements by name, for the tables with this prefix; those of `own` come first."""
    return {
        name: text.format(p=prefix, **parameters)
        for name, text in (globals() | own).items()
        if name.isupper() and isinstance(text, str) and not name.startswith("_")
    }
