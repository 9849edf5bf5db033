"""Files on their way: what one client leaves or only announces keeps nobody else from sending."""

import hashlib
from contextlib import ExitStack

import pytest

from hms.server.broker import INTERNAL, TICK
from hms.server.file_transfer import COMING_MAX, COMING_OF_ONE_MAX, IDLE_MS
from hms.store.files import AHEAD_BYTES, FileStore
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.hello import hello_of
from tests.support.memory import MemoryNode

DATA = b"a file" * 100
DIGEST = hashlib.sha256(DATA).hexdigest()


class NodeWithFiles(MemoryNode):
    """Its storage workers do their jobs when step() is called."""

    def __init__(self, folder, bytes_max):
        self.jobs = []
        super().__init__(files=FileStore(folder, bytes_max))

    def submit(self, job):
        self.jobs.append(job)
        return True

    def step(self):
        while self.jobs:
            self.jobs.pop(0)()
        super().step()


class Rig:
    """A node with a folder of files, and peers that say hello by their names."""

    def __init__(self, folder, bytes_max=1 << 30):
        self.node = NodeWithFiles(folder, bytes_max)
        self._numbers, self._here = {}, set()

    def ask(self, peer, request, kind=Kind.REQUEST, body=None):
        """(is it a reply, its payload)."""
        if peer not in self._here:
            self._here.add(peer)
            number = self._numbers.setdefault(peer, len(self._numbers) + 1)
            self.node.send(peer, Kind.HELLO, wire.encode(hello_of(number)))
        said = wire.encode(request) if body is None else wire.encode_with_body(request, body)
        (answer,) = self.node.send(peer, kind, said)
        return answer[0].kind is Kind.REPLY, bytes(answer[1])

    def can_send(self, peer, handle=1):
        """Whether a file of this peer comes whole."""
        is_open, _ = self.ask(peer, wire.OpenFile(handle, len(DATA)))
        if not is_open:
            return False
        self.ask(peer, wire.FileBlock(handle, 0), Kind.FILE, DATA)
        return self.ask(peer, wire.CloseFile(handle, len(DATA), DIGEST))[0]

    def tick(self, pass_ms):
        """So much time goes by, and the node looks around."""
        self.node.now_ms += pass_ms
        self.node.broker.handle(INTERNAL, [TICK])

    def lose(self, peer):
        """Its connection is gone."""
        self._here.remove(peer)
        number = self.node.broker.registry.numbers[peer]
        self.node.broker._change(lambda fx, now: self.node.broker.registry.close(number, now, fx))

    def close(self):
        """Files that are still coming are closed."""
        for line in self.node.broker._transfers._lines.values():
            if line.part is not None:
                line.part.close()


@pytest.fixture
def started(tmp_path):
    """A rig with a limit of its own, closed at the end."""
    with ExitStack() as stack:

        def start(**limits):
            made = Rig(tmp_path / "files", **limits)
            stack.callback(made.close)
            return made

        yield start


@pytest.fixture
def rig(started):
    return started()


def test_ends_of_files_that_were_never_opened_keep_nobody_out(rig):
    """256 of them once blocked every file transfer of the node for a day."""
    for handle in range(COMING_MAX + 10):
        assert not rig.ask("evil", wire.CloseFile(1000 + handle, 1, "00"))[0]

    assert rig.can_send("good")


def test_an_end_that_is_repeated_is_answered_again(rig):
    """The answer to the first one was lost with its connection."""
    assert rig.can_send("good", handle=7)

    assert rig.ask("good", wire.CloseFile(7, len(DATA), DIGEST))[0]
    assert not rig.ask("good", wire.CloseFile(7, len(DATA), "00" * 32))[0]


def test_one_client_has_a_bounded_number_of_files_coming(rig):
    """The others' share stays free; what stopped to come makes way after a while."""
    for handle in range(COMING_OF_ONE_MAX):
        assert rig.ask("greedy", wire.OpenFile(handle, 1000))[0]
    assert not rig.ask("greedy", wire.OpenFile(9999, 1000))[0]
    assert rig.can_send("good")

    rig.node.now_ms += IDLE_MS + 1
    assert rig.can_send("greedy", handle=9999)


def test_files_of_clients_that_are_gone_make_way_and_can_go_on(rig):
    """What they left once counted for a day."""
    peers = [f"gone {n}" for n in range(COMING_MAX // COMING_OF_ONE_MAX)]
    for peer in peers:
        for handle in range(COMING_OF_ONE_MAX):
            assert rig.ask(peer, wire.OpenFile(handle, len(DATA)))[0]
    rig.ask(peers[0], wire.FileBlock(0, 0), Kind.FILE, DATA[:100])
    assert not rig.can_send("good")
    for peer in peers:
        rig.lose(peer)

    assert rig.can_send("good")
    assert all(rig.can_send("good", handle) for handle in range(2, COMING_MAX))


def test_files_that_stopped_to_come_make_way_for_those_of_other_clients(rig):
    """Four clients that kept theirs open, and sent nothing, kept everybody else out for a day."""
    for peer in range(COMING_MAX // COMING_OF_ONE_MAX):
        for handle in range(COMING_OF_ONE_MAX):
            assert rig.ask(f"idle {peer}", wire.OpenFile(handle, len(DATA)))[0]
    assert not rig.can_send("good")

    rig.node.now_ms += IDLE_MS + 1
    assert rig.can_send("good")


def test_no_room_is_kept_for_long_for_files_of_clients_that_are_gone(started):
    """Two that were killed left no room for anybody, for a day; what has come stays."""
    rig = started(bytes_max=2 * AHEAD_BYTES)
    for handle in (1, 2):
        assert rig.ask("gone", wire.OpenFile(handle, AHEAD_BYTES))[0]
    assert rig.ask("gone", wire.FileBlock(1, 0), Kind.FILE, DATA)[0]
    assert not rig.can_send("good")
    rig.lose("gone")
    rig.tick(IDLE_MS + 1)

    assert rig.can_send("good")
    is_open, answer = rig.ask("gone", wire.OpenFile(1, len(DATA)))
    assert (is_open, wire.decode_reply(answer)) == (True, {"offset": len(DATA)})


def test_room_that_is_kept_for_files_that_do_not_come_on_makes_way_for_others(started):
    """16 MiB each were kept for file_life_s, a day, as long as their senders were connected."""
    rig = started(bytes_max=2 * AHEAD_BYTES)
    for handle in (1, 2):
        assert rig.ask("idle", wire.OpenFile(handle, AHEAD_BYTES))[0]
    assert rig.ask("idle", wire.FileBlock(1, 0), Kind.FILE, DATA)[0]
    rig.node.now_ms += IDLE_MS
    assert not rig.can_send("good")

    rig.node.now_ms += 1
    assert rig.can_send("good")
    went_on, _ = rig.ask("idle", wire.FileBlock(1, len(DATA)), Kind.FILE, DATA)
    assert not went_on
    is_open, answer = rig.ask("idle", wire.OpenFile(1, 2 * len(DATA)))
    assert (is_open, wire.decode_reply(answer)) == (True, {"offset": len(DATA)})
    assert rig.ask("idle", wire.FileBlock(1, len(DATA)), Kind.FILE, DATA)[0]
    assert rig.ask("idle", wire.CloseFile(1, 2 * len(DATA), hashlib.sha256(2 * DATA).hexdigest()))[
        0
    ]


def test_an_announced_size_keeps_only_what_comes_next_free(rig):
    """One request for the whole quota, and not one byte, once left no room for anybody."""
    assert rig.ask("greedy", wire.OpenFile(1, (1 << 30) - 1000))[0]

    assert rig.can_send("good", handle=2)
