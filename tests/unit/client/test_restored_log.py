"""What a client makes of a node whose store was restored from a backup."""

from client_link import LOST, new_link, up
from client_session import make_prefetch_buffer, make_state

import hms
from hms.client.core.link import Link
from hms.client.core.restored_log import RestoredLog
from hms.wire import frames
from hms.wire.frames import DELIVER_HEAD, Kind
from hms.wire.packed_messages import (
    DELIVERED_ROW,
    HEAD_BYTES_READ_MAX,
    Head,
    decode_head,
    encode_head,
)
from hms.wire.structures import Hello, InvokeHead

INDEX = 7 << 40
BELOW = INDEX + 1000
SAID = "N1-20261128T130000Z 2026-11-28T13:00:00.000+00:00"
FROM = "$RestoredFrom"


def came(link, heads):
    """What a consumer has after the node delivered messages with these heads, by id."""
    prefetched = make_prefetch_buffer(link, make_state(link))
    rows = [DELIVERED_ROW.pack(id_, 1, 0, 1, len(one), 1, 4, 0, 1, 0) for id_, one in heads.items()]
    head = DELIVER_HEAD.pack(5, 0, len(rows), 0)
    data = b"".join([one + b"b" for one in heads.values()])
    link.receive(frames.frame(Kind.DELIVER, head + b"".join(rows) + data), 1.0)
    messages = [hms.Message.received(*prefetched.take(), hms.Queue("q")) for _ in heads]
    return {int(one.message_id, 16): one for one in messages}


def restored():
    link = Link(Hello(1))
    up(link, restored_from=SAID, restored_below=BELOW)
    return link


def test_only_ids_that_the_node_gave_before_say_so():
    """A message of another node may have come later, and one with a higher id did."""
    ids = (1, INDEX - 1, INDEX + 1, BELOW - 1, BELOW, (8 << 40) + 1)

    found = came(restored(), dict.fromkeys(ids, b""))

    told = {id_: one.properties.get(FROM) for id_, one in found.items()}
    assert told == dict.fromkeys(ids) | {INDEX + 1: SAID, BELOW - 1: SAID}


def test_all_else_of_the_message_stays():
    """Its properties, what the node said, and its body."""
    head = Head({"a": 1}, correlation_id="c", node={"$DeadReason": "EXPIRED"})

    one = came(restored(), {INDEX + 1: encode_head(head)})[INDEX + 1]

    assert (one.properties["a"], one.correlation_id, one.body) == (1, "c", b"b")
    assert (one.properties["$DeadReason"], one.properties[FROM]) == ("EXPIRED", SAID)
    row, data, body = one.encode_as_received()
    assert (row.head_bytes, body) == (len(data), b"b")


def test_a_head_that_nobody_can_read_or_is_as_long_as_may_be_comes_as_it_is():
    """Its reader is told when it asks; the messages beside it are delivered."""
    long = encode_head(Head({}, node={"x": "y" * (HEAD_BYTES_READ_MAX - 20)}))
    assert HEAD_BYTES_READ_MAX - 20 < len(long) <= HEAD_BYTES_READ_MAX
    heads = {INDEX + 1: b"\xc1", INDEX + 2: long, INDEX + 3: b""}

    found = came(restored(), heads)

    assert [one.encode_as_received()[1] for one in found.values()][:2] == [b"\xc1", long]
    assert found[INDEX + 1].body == b"b"
    assert found[INDEX + 3].properties[FROM] == SAID


def test_another_node_says_for_itself():
    """A client that goes on at another node of the cluster."""
    link = restored()
    link.lose(LOST, is_final=False)
    up(link)
    assert came(link, {INDEX + 1: b""})[INDEX + 1].properties.get(FROM) is None
    assert new_link().restored is None


def test_a_listener_service_is_told_too():
    """Its message comes in an INVOKE."""
    row = DELIVERED_ROW.pack(INDEX + 1, 1, 0, 1, 0, 1, 4, 0, 1, 0)
    head = InvokeHead("S", 1, 0, is_message=True, delivered=row)

    told = RestoredLog(SAID, INDEX, BELOW).invoked(head)

    assert decode_head(told.head).node == {FROM: SAID}
    assert DELIVERED_ROW.unpack(told.delivered)[4] == len(told.head)
