"""The keys by which messages are ordered are counted in the quota of the node (P8)."""

import random

import pytest

from hms.engine.groups.message_sort import MessageSort, SortSettings, SortType, entry_bytes
from hms.engine.messages import StoredMessage
from hms.engine.queue.pending_list import PendingList
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.wire import structures as wire
from hms.wire.packed_messages import Head, encode_head
from tests.support import largest
from tests.support.memory import MemoryNode
from tests.support.memory_peer import Peer

SORT = MessageSort(SortSettings("k"))
FALLING = MessageSort(SortSettings("k", SortType.STRING, is_descending=True))


def message(seq, key):
    head = encode_head(Head({"k": key}))
    return StoredMessage.of(seq, seq, 1, 0, 4, 0, len(head), head, is_persistent=False)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_counted_is_what_stands_there(seed):
    """Whatever comes, is taken, comes back, is removed, or is ordered anew."""
    dice, line, counted, seq = random.Random(seed), PendingList(0, "work"), [0], 0
    line.count_keys(lambda more: counted.__setitem__(0, counted[0] + more))
    out, waiting = [], {}
    line.sort_by(SORT)
    for _ in range(400):
        what = dice.randrange(6)
        if what < 2:
            seq += 1
            new = message(seq, "x" * dice.randrange(300))
            line.add([new])
            waiting[seq] = new
        elif what == 2:
            taken = line.take(dice.randrange(4), 1 << 40, 5, [])
            out += taken
            for one in taken:
                del waiting[one.seq]
        elif what == 3 and out:
            one = out.pop(dice.randrange(len(out)))
            line.put_back(one, 1, 1)
            waiting[one.seq] = one
        elif what == 4 and waiting:
            line.remove(waiting.pop(dice.choice(list(waiting))))
        elif dice.random() < 0.1:
            line.sort_by(dice.choice((SORT, FALLING, None)))
        heap = line._ready._back if line.sort is not None else []
        assert counted[0] == sum(entry_bytes(entry) for entry in heap)
    line.remove_everything()
    assert counted[0] == 0


@pytest.fixture
def node():
    own = DestinationSettings("queue", "work", sort=SortSettings("text"))
    return MemoryNode(EngineSettings(destinations=(own,)))


def test_keys_take_from_the_memory_of_the_node_while_they_wait(node):
    """A key may be as long as a head: nobody counted it, nor its place."""
    peer, shares = Peer(node, 1), node.engine.state.shares
    before = shares.quota_bytes

    largest.fill(peer, "work", 100)
    assert shares.quota_bytes - before >= 100 * (200 + len(largest.TEXT))

    peer.request(wire.Administer("queue.purge", {"name": "work"}))
    assert shares.quota_bytes == before
