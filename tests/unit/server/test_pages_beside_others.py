"""Pages of a browser and of an operator's list, while others send and take messages."""

import random
import struct

import pytest

from hms.engine.groups.message_sort import SortSettings, SortType
from hms.engine.messages import message_id_text
from hms.engine.queue import browsed_places
from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import InvalidArgument
from hms.wire import structures as wire
from hms.wire.frames import DELIVER_HEAD, Kind, decode_deliver
from hms.wire.packed_messages import ROW, Head, encode_head, unpack_delivered
from tests.support import largest
from tests.support.memory_peer import Node, Peer

SORT = SortSettings("n", SortType.INTEGER)
QUEUES = (DestinationSettings("queue", "plain"), DestinationSettings("queue", "sorted", sort=SORT))


class Others:
    """What others do with a queue."""

    def __init__(self, folder, queue, seed):
        self.node = Node(folder, destinations=QUEUES)
        self.peer, self.queue, self.rng = Peer(self.node, 1), queue, random.Random(seed)
        self._producer, self._sent = largest.fill(self.peer, queue, 0), 0
        self.line = self.node.engine.state.queues[queue].line

    def ids(self):
        return {message.id for message in self.line.in_order()}

    def send(self, count):
        for _ in range(count):
            self._sent += 1
            group = {"JMSXGroupID": self.rng.choice("abc")} if self.rng.random() < 0.3 else {}
            head = encode_head(Head({"n": self.rng.randrange(9), **group}))
            row = ROW.pack(len(head), 0, 0, 0, self.rng.choice([2, 4, 9]), 0, 0, 0)
            self.peer.ask(*largest.send(self._producer, self._sent, 1, row + head))

    def delete(self, ids):
        asked = {"place": f"queue:{self.queue}", "ids": " ".join(map(message_id_text, ids))}
        assert self.peer.request(wire.Administer("message.delete", asked))["count"] == len(ids)

    def browse(self, after, *, is_newest):
        """(ids, position, whether more follow) of a page."""
        asked = wire.Browse(self.queue, is_oldest_first=not is_newest, after=after, count_max=4)
        answers = self.node.send(self.peer.name, Kind.REQUEST, wire.encode(asked))
        (data,) = [data for envelope, data in answers if envelope.kind is Kind.BROWSED]
        has_more, _, count = decode_deliver(data)
        (position,) = struct.unpack_from("<Q", data, DELIVER_HEAD.size)
        rows = unpack_delivered(data, count, DELIVER_HEAD.size + 8)
        return [row.message_id for row, _, _ in rows], position, has_more

    def list(self, after, end, *, is_newest):
        asked = {"place": f"queue:{self.queue}", "limit": 4, "after": after, "end": end}
        said = self.peer.request(wire.Administer("message.list", asked | {"is_newest": is_newest}))
        ids = [int(row["id"], 16) for row in said["messages"]]
        return ids, said["after"], said["end"], said["has_more"]


@pytest.mark.parametrize("is_newest", [False, True])
@pytest.mark.parametrize("way", ["browse", "list"])
@pytest.mark.parametrize("queue", ["plain", "sorted"])
def test_what_stays_is_shown_once_whatever_others_send_and_take(tmp_path, queue, way, is_newest):
    """When the message had left at which a page ended, a browser of a queue with keys or priorities
    went on behind its place in the order of arrival: messages were shown twice, or left out."""
    for seed in range(12):
        others = Others(tmp_path / str(seed), queue, seed)
        others.send(40)
        before, shown, after, end, has_more = others.ids(), [], 0, 0, True
        while has_more:
            if way == "browse":
                page, after, has_more = others.browse(after, is_newest=is_newest)
            else:
                page, after, end, has_more = others.list(after, end, is_newest=is_newest)
            shown += page
            there = sorted(others.ids())
            gone = {*others.rng.sample(there, min(2, len(there)))}
            if page and others.rng.random() < 0.7:
                gone.add(page[-1])
            others.delete(gone & others.ids())
            others.send(others.rng.randrange(2))
        stayed = before & others.ids()
        assert len(shown) == len({*shown}), seed
        assert stayed <= {*shown}, seed
        assert stayed, seed


def test_a_place_that_is_not_known_any_more_is_refused_where_keys_decide(tmp_path, monkeypatch):
    """Where it stood is known for the last pages of all browsers only; to go on anywhere else would
    leave messages out."""
    monkeypatch.setattr(browsed_places, "PLACES_MAX", 1)
    others = Others(tmp_path, "sorted", 1)
    others.send(12)
    page, after, _ = others.browse(0, is_newest=False)
    others.browse(after, is_newest=False)
    others.delete(page[-1:])

    asked = wire.Browse("sorted", is_oldest_first=True, after=after, count_max=4)
    ((envelope, data),) = others.node.send(others.peer.name, Kind.REQUEST, wire.encode(asked))

    assert envelope.kind is Kind.ERROR
    error = wire.decode_error(data)
    assert isinstance(error, InvalidArgument)
    assert "browse anew" in str(error)


def test_places_of_long_keys_take_a_bounded_memory(tmp_path, monkeypatch):
    """A key may have 64 KiB."""
    monkeypatch.setattr(browsed_places, "PLACES_BYTES_MAX", 1000)
    others = Others(tmp_path, "sorted", 1)
    others.send(40)
    after, has_more = 0, True
    while has_more:
        _, after, has_more = others.browse(after, is_newest=False)

    assert len(others.node.engine.state.browsed) == 4
