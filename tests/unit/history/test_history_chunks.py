"""Chunks: rows of the history as packs that a producer sends as they are."""

import pytest

from hms.history.chunks import PACK_BYTES, PACK_MESSAGES, Chunker, Row
from hms.history.wanted import Into
from hms.wire.packed_messages import (
    HEAD_BYTES_MAX,
    NODE_TOPIC,
    Head,
    decode_head,
    encode_head,
    slice_payloads,
    unpack_rows,
)


def row(offset, head=b"", body=b"", *, to="orders", kind="queue", body_kind="carray", priority=4):
    data = encode_head(head) if isinstance(head, Head) else head
    return Row(offset, f"{offset:012x}", to, kind, priority, 1000, body_kind, data, body)


def chunked(rows, *, into=("queue", "again"), rows_max=100, bytes_max=10**6, **more):
    return list(Chunker("r1", Into(*into), rows_max, bytes_max, **more).chunks(rows))


def unpacked(pack):
    """(row, head, body) of a pack's messages."""
    rows = unpack_rows(pack["pack"], pack["messages"])
    return [
        (said, data[: said.head_bytes], data[said.head_bytes :])
        for said, data in zip(rows, slice_payloads(pack["pack"], rows), strict=True)
    ]


def messages(chunks):
    return [message for chunk in chunks for pack in chunk["packs"] for message in unpacked(pack)]


def test_a_message_goes_as_it_came_and_says_where_it_comes_from():
    """Who receives it again must be able to tell, and to find the original."""
    head = Head({"a": 1, "b": 0.5}, b"\x02\x06", "c1", "queue:r", "T")
    ((said, sent_head, body),) = messages(
        chunked([row(7, head, b"\x00\xff", body_kind="map", priority=9)])
    )
    sent = decode_head(sent_head)

    assert (said.priority, said.kind, said.ttl_ms, said.flags, body) == (9, 2, 0, 0, b"\x00\xff")
    assert (sent.properties, sent.types, sent.correlation_id, sent.reply_to, sent.type) == (
        head.properties,
        head.types,
        head.correlation_id,
        head.reply_to,
        head.type,
    )
    assert sent.node == {
        "$ReplayRun": "r1",
        "$ReplayOrigin": "queue:orders",
        "$ReplayMessageID": "000000000007",
        "$ReplayTime": 1000,
        "$ReplayOffset": 7,
    }


def test_the_topic_that_the_node_told_is_kept_under_a_name_of_its_own():
    """In its new place the message is not on that topic any more."""
    ((_, head, _),) = messages(chunked([row(7, Head(node={NODE_TOPIC: "a/b"}))]))

    assert decode_head(head).node["$ReplayTopic"] == "a/b"
    assert NODE_TOPIC not in decode_head(head).node


def test_what_an_earlier_replay_brought_is_left_out_and_counted():
    """Replaying a queue into itself twice would otherwise double the copies each time."""
    rows = [row(1), row(2, Head(node={"$ReplayRun": "r0"})), row(3)]
    (chunk,) = chunked(rows)

    assert (chunk["first"], chunk["last"], chunk["rows"], chunk["copies"]) == (1, 3, 2, 1)
    (chunk,) = chunked(rows, takes_copies=True)
    assert (chunk["rows"], chunk["copies"]) == (3, 0)


@pytest.mark.parametrize("kind", ["file", "file+compressed"])
def test_messages_whose_content_is_in_a_file_are_left_out_and_counted(kind):
    """The node drops a file with its last message, so a replay would end at the first of them."""
    rows = [row(1), row(2, Head(node={"$File": "f"}), body_kind=kind), row(3, body_kind=kind)]
    (chunk,) = chunked(rows)

    assert (chunk["first"], chunk["last"], chunk["rows"], chunk["files"]) == (1, 3, 1, 2)
    assert len(messages([chunk])) == 1
    (one, two) = chunked(rows, rows_max=2)
    assert [(c["last"], c["rows"], c["files"]) for c in (one, two)] == [(2, 1, 1), (3, 0, 1)]


@pytest.mark.parametrize(
    "head", [b"\xc1 nobody can read this", encode_head(Head({"a": "x" * (HEAD_BYTES_MAX - 20)}))]
)
def test_a_head_that_cannot_be_marked_goes_byte_for_byte(head):
    """A foreign client's message must arrive as it was, and the report says how many there were."""
    chunks = chunked([row(1, head, b"b")])

    assert [(h, b) for _, h, b in messages(chunks)] == [(head, b"b")]
    assert chunks[0]["unmarked"] == 1


def test_a_chunk_ends_at_its_rows_or_bytes_and_none_is_lost():
    """A chunk is a transaction, which the node limits."""
    by_rows = chunked([row(i) for i in range(10)], rows_max=4)
    by_bytes = chunked([row(i, body=bytes(600)) for i in range(5)], bytes_max=1000)

    assert [(c["first"], c["last"], c["rows"]) for c in by_rows] == [
        (0, 3, 4),
        (4, 7, 4),
        (8, 9, 2),
    ]
    assert [(c["first"], c["last"]) for c in by_bytes] == [(0, 1), (2, 3), (4, 4)]


def test_packs_are_no_larger_than_frames_and_keep_the_order():
    """The node limits a frame, and the order of the log is what a replay promises."""
    rows = [row(i, body=f"{i}".encode()) for i in range(PACK_MESSAGES + 3)]
    (small,) = chunked(rows, rows_max=10**4)
    large = chunked([row(i, body=bytes(PACK_BYTES)) for i in range(3)], bytes_max=10**9)

    assert [p["messages"] for p in small["packs"]] == [PACK_MESSAGES, 3]
    assert [body for _, _, body in messages([small])] == [r.body for r in rows]
    assert [p["messages"] for p in large[0]["packs"]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("into", "places"),
    [
        ((None, "again"), [("queue", "again")]),
        (("topic", "again"), [("topic", "again")]),
        ((None, "old.{destination}"), [("queue", "old.orders"), ("topic", "old.news")]),
        (("queue", "{destination}.2"), [("queue", "orders.2"), ("queue", "news.2")]),
    ],
)
def test_the_target_may_follow_from_where_a_message_was_sent(into, places):
    """One command replays many destinations, each into one of its own."""
    rows = [row(1), row(2, to="news", kind="topic"), row(3)]
    (chunk,) = chunked(rows, into=into)

    assert [(p["kind"], p["name"]) for p in chunk["packs"]] == places
    assert sum(p["messages"] for p in chunk["packs"]) == 3


def test_a_kind_of_body_that_this_version_does_not_know_leaves_as_bytes():
    """The body is opaque anyway."""
    ((said, _, _),) = messages(chunked([row(1, body_kind=None)]))

    assert said.kind == 0
