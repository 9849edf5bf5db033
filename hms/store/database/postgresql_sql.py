"""The statements for PostgreSQL; {p} is the prefix of the tables.

Rows travel as arrays and are unnested by the server, bytes as one value of which each row takes its
part: one statement for each table, however many rows, and nothing is copied in Python.
"""

from typing import Final

from hms.store.database import portable_sql

_NOW_MS: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::int8"

STATE: Final = (
    f"SELECT node_uid, epoch, owner_host, owner_pid, owner_mark, lease_until_ms, {_NOW_MS},"  # noqa: S608
    " now_ms FROM {p}meta"
)
MIGRATED: Final = f"INSERT INTO {{p}}migration SELECT %s, {_NOW_MS}"
TAKE: Final = (
    "UPDATE {p}meta SET epoch = epoch + 1, owner_host = %s, owner_pid = %s, owner_mark = %s,"  # noqa: S608
    f" lease_until_ms = {_NOW_MS} + %s WHERE epoch = %s AND lease_until_ms = %s"
)
END_SESSIONS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
    " AND datname = current_database() AND pid <> pg_backend_pid()"
)
RENEW: Final = (
    f"UPDATE {{p}}meta SET lease_until_ms = {_NOW_MS} + %s::int8,"  # noqa: S608
    " now_ms = greatest(now_ms, %s::int8) WHERE epoch = %s::int8"
)

FENCE: Final = (
    "WITH mine AS (UPDATE {p}meta SET last_lsn = %s::int8, next_position = %s::int8,"  # noqa: S608
    " next_number = %s::int8, next_seq = %s::int8, now_ms = %s::int8, event = %s,"
    f" event_ms = %s::int8, lease_until_ms = {_NOW_MS} + %s::int8"
    " WHERE epoch = %s::int8 AND last_lsn = %s::int8 RETURNING 1)"
    " SELECT 1 / count(*) FROM mine"
)
"""Fails, and with it the whole transaction, when the store is not ours or went on without us."""

END_MESSAGES: Final = (
    "DELETE FROM {p}message m USING {p}subscription_message s WHERE s.holder = %s::int8"
    " AND s.position = m.position AND NOT EXISTS (SELECT 1 FROM {p}subscription_message o"
    " WHERE o.position = m.position AND o.holder <> s.holder)"
)
SWEEP: Final = (
    "DELETE FROM {p}message m USING unnest(%s::int8[]) AS k(id) WHERE m.id = k.id AND NOT EXISTS"
    " (SELECT 1 FROM {p}subscription_message s WHERE s.position = m.position)"
    " AND EXISTS (SELECT 1 FROM {p}meta WHERE epoch = %s::int8)"
)
"""As UNHELD, beside a commit: only while the store is ours."""
LEAVE: Final = (
    "DELETE FROM {p}subscription_message s USING unnest(%s::int8[], %s::int8[]) AS k(holder, id)"
    " WHERE s.holder = k.holder AND s.message_id = k.id"
)
UNHELD: Final = (
    "DELETE FROM {p}message m USING unnest(%s::int8[]) AS k(id) WHERE m.id = k.id AND NOT EXISTS"
    " (SELECT 1 FROM {p}subscription_message s WHERE s.position = m.position)"
)
LOG: Final = (
    "INSERT INTO {p}log (lsn, kind, events, at_ms, position, payload)"
    " SELECT r.lsn, r.kind, r.events, %(at_ms)s::int8, r.position,"
    " substr(%(blob)s::bytea, r.start, r.length)"
    " FROM unnest(%(l0)s::int8[], %(l1)s::int2[], %(l2)s::int4[], %(l3)s::int8[], %(l4)s::int4[],"
    " %(l5)s::int4[]) AS r(lsn, kind, events, position, start, length)"
)
MESSAGES: Final = (
    "INSERT INTO {p}message (position, id, seq, destination, timestamp_ms, expires_at_ms, priority,"
    " kind, head, body) SELECT m.position, m.id, m.seq, m.destination, m.timestamp_ms,"
    " m.expires_at_ms, m.priority, m.kind, substr(%(blob)s::bytea, m.start, m.head_bytes),"
    " substr(%(blob)s::bytea, m.start + m.head_bytes, m.body_bytes)"
    " FROM unnest(%(m0)s::int8[], %(m1)s::int8[], %(m2)s::int8[], %(m3)s::int8[], %(m4)s::int8[],"
    " %(m5)s::int8[], %(m6)s::int2[], %(m7)s::int2[], %(m8)s::int4[], %(m9)s::int4[],"
    " %(m10)s::int4[]) AS m(position, id, seq, destination, timestamp_ms, expires_at_ms, priority,"
    " kind, head_bytes, body_bytes, start)"
)
LOG_AND_MESSAGES: Final = f"WITH logged AS ({LOG}) {MESSAGES}"
STAYS: Final = (
    "INSERT INTO {p}subscription_message (holder, message_id, position, deliveries, attempts,"
    " due_ms, is_out) SELECT * FROM unnest(%s::int8[], %s::int8[], %s::int8[], %s::int4[],"
    " %s::int4[], %s::int8[], %s::bool[]) ON CONFLICT (holder, message_id) DO UPDATE SET"
    " position = excluded.position, deliveries = excluded.deliveries,"
    " attempts = excluded.attempts, due_ms = excluded.due_ms, is_out = excluded.is_out"
)
"""What is told later counts, as in recovery."""
CHANGE: Final = (
    "UPDATE {p}subscription_message s SET"
    " is_out = CASE WHEN s.is_out THEN c.out_out ELSE c.in_out END,"
    " deliveries = s.deliveries + CASE WHEN s.is_out THEN c.out_d ELSE c.in_d END,"
    " attempts = s.attempts + CASE WHEN s.is_out THEN c.out_a ELSE c.in_a END,"
    " due_ms = CASE WHEN CASE WHEN s.is_out THEN c.out_due ELSE c.in_due END < 0 THEN s.due_ms"
    " WHEN s.is_out THEN c.out_due ELSE c.in_due END"
    " FROM unnest(%s::int8[], %s::int8[], %s::bool[], %s::int4[], %s::int4[], %s::int8[],"
    " %s::bool[], %s::int4[], %s::int4[], %s::int8[])"
    " AS c(holder, id, out_out, out_d, out_a, out_due, in_out, in_d, in_a, in_due)"
    " WHERE s.holder = c.holder AND s.message_id = c.id"
)
BATCHES_GONE: Final = (
    "DELETE FROM {p}producer b USING unnest(%s::int8[], %s::int8[], %s::int8[]) AS k(uid, producer,"
    " first) WHERE b.client_uid = k.uid AND b.producer = k.producer AND b.first_sequence = k.first"
)
BATCHES: Final = (
    "INSERT INTO {p}producer SELECT * FROM unnest(%s::int8[], %s::int8[], %s::int8[], %s::int8[],"
    " %s::int8[], %s::int4[], %s::int8[], %s::int8[])"
    " ON CONFLICT (client_uid, producer, first_sequence) DO UPDATE SET"
    " first_message_id = excluded.first_message_id, timestamp_ms = excluded.timestamp_ms,"
    " message_count = excluded.message_count, forgotten = excluded.forgotten, lsn = excluded.lsn"
)
FORGOTTEN: Final = (
    "UPDATE {p}producer b SET forgotten = k.forgotten, lsn = k.lsn FROM"
    " unnest(%s::int8[], %s::int8[], %s::int8[], %s::int8[]) AS k(uid, producer, forgotten, lsn)"
    " WHERE b.client_uid = k.uid AND b.producer = k.producer"
)
COMMITS_GONE: Final = (
    "DELETE FROM {p}transaction t USING unnest(%s::int8[], %s::int8[]) AS k(uid, session)"
    " WHERE t.client_uid = k.uid AND t.session = k.session"
)
COMMITS: Final = (
    "INSERT INTO {p}transaction SELECT * FROM"
    " unnest(%s::int8[], %s::int8[], %s::int8[], %s::int8[])"
    " ON CONFLICT (client_uid, session) DO UPDATE SET number = excluded.number, lsn = excluded.lsn"
)

ALL_MESSAGES: Final = (
    "SELECT position, id, seq, destination, timestamp_ms, expires_at_ms, priority, kind,"
    " octet_length(head), octet_length(body) FROM {p}message ORDER BY position"
)
PAYLOADS: Final = (
    "SELECT head || body FROM {p}message WHERE position BETWEEN %s::int8 AND %s::int8"
    " ORDER BY position"
)
READ: Final = (
    "SELECT position, head || body FROM {p}message WHERE position < %s::int8 AND position >="
    " (SELECT coalesce(max(position), 0) FROM {p}message WHERE position <= %s::int8)"
    " ORDER BY position"
)
_OURS: Final = " AND EXISTS (SELECT 1 FROM {p}meta WHERE epoch = {long})"
"""Beside a commit: only while the store is ours."""
PRUNE: Final = portable_sql.PRUNE + _OURS
PRUNE_AUDIT: Final = portable_sql.PRUNE_AUDIT + _OURS


def prepared(prefix: str) -> dict[str, str]:
    """The statements by name, for the tables with this prefix."""
    return portable_sql.prepared(prefix, globals(), portable_sql.PARAMETERS_POSTGRESQL)
