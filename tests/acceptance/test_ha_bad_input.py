"""What a pair of copies is given and cannot use: refused by name, and nothing changes. The list of
the other places where each kind is tested stands in docs/reference/failover.md.
"""

import base64
import os
import shutil
import tomllib
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import zmq

import hms
from hms.boot import compose
from hms.boot.config import load
from hms.boot.replicating import make_arbiter
from hms.errors.catalogue import BootFailed, NotPrimary
from hms.server.replicas.frames import FORMAT, Beat, Bye, Write
from hms.server.replicas.link import MESSAGE_BYTES_MAX
from hms.server.replicas.standby_door import StandbyDoor
from hms.store.journal.format import (
    FORMATS,
    SEGMENT_HEADER_BYTES,
    Author,
    pack_segment_header,
    unpack_segment_header,
)
from hms.testing import node
from hms.testing.nodes import TestNode
from hms.testing.ports import free_port
from tests.acceptance.ha_rig import WAIT_S, bodies, connect, ended, switch_over
from tests.acceptance.pair_rig import arbiter, pair
from tests.sim.replicas.hostile import frame
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)
GARBAGE = base64.b64encode(b"no configuration").decode()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    with arbiter(folder) as decided_by, pair(folder, decided_by) as two:
        two.a.boot()
        yield two


@pytest.fixture
def two(made):
    """Both there."""
    made.boot()
    return made


def files_of(one):
    """What its store holds, without what says who has it open."""
    found = sorted(path for path in Path(one.store).rglob("*") if path.is_file())
    return {path.name: path.read_bytes() for path in found if path.name not in ("lock", "LOCK")}


def another(two, folder, name, store):
    """A machine with the configuration of one of the two, its own address, and that store."""
    config = tomllib.loads(two.a.config_file.read_text())
    config["node"]["node1"] |= {"replica": name}
    config["replica"][name]["address"] = f"tcp://127.0.0.1:{free_port()}"
    folder.mkdir()
    return TestNode(folder, store, config, (), (), ())


@contextmanager
def decided(one):
    """What the arbiter of a machine says."""
    config = load(one.config_file)
    with closing(make_arbiter(config, config.node())) as told_by:
        yield told_by


def test_frames_that_no_copy_sends_cost_nothing(two):
    """Of another log, of an epoch that is over, of another format, too long, none at all."""
    config = tomllib.loads(two.leader.config_file.read_text())
    me = two.replication()["replica"]
    with decided(two.a) as told_by:
        log = told_by.read().configuration.log
    before = two.replication()["frames_refused"]
    sent = [
        frame(Beat(1.0)),
        frame(Write(1 << 40, 1, 64, 0), b"x", log=log, epoch=0, replica="b"),
        frame(Bye(), log=log, epoch=0, replica="b", start=1 << 40),
        frame(Beat(1.0), log=log, form=FORMAT + 1),
        [os.urandom(200), b""],
        [b"x", bytes(MESSAGE_BYTES_MAX + 1)],
    ]
    with zmq.Context() as context:
        for parts in sent:
            with context.socket(zmq.DEALER) as stranger:
                stranger.linger = 2000
                stranger.connect(config["replica"][me]["address"])
                stranger.send_multipart(parts)
        wait_until(lambda: two.replication()["frames_refused"] > before, WAIT_S)
    with connect(*two.machines) as connection, connection.session() as session:
        session.producer("orders").send(b"as before")
    two.wait_for_both()
    assert two.replication()["replica"] == me
    assert b"as before" in bodies(*two.machines)


def test_of_two_processes_with_one_copy_one_counts(tmp_path):
    """On the same folder the second is refused. On a copy of it, in another place, the one that
    started last counts, and the other one ends by name: never both."""
    with arbiter(tmp_path) as decided_by, pair(tmp_path, decided_by) as two:
        two.boot()
        one = two.follower
        same = another(two, tmp_path / "same", one.folder.name, one.store)
        with pytest.raises(BootFailed, match="HMS-5001"):
            same.boot()
        one.pause()  # no file changes its name meanwhile
        try:
            shutil.copytree(one.store, tmp_path / "copied")
        finally:
            one.resume()
        copied = another(two, tmp_path / "other", one.folder.name, tmp_path / "copied")
        with ended([copied]):
            copied.boot()
            wait_until(lambda: "HMS-5068" in one.log, WAIT_S)
            with connect(*two.machines) as connection, connection.session() as session:
                session.producer("orders").send(b"at two places")
            two.wait_for_both()
            assert sorted(two.replication()["members"]) == ["a", "b"]
            assert one.wait() == 1


def test_a_store_of_another_group_is_refused_and_not_touched(two, tmp_path):
    """It may be the only one that has those messages."""
    (tmp_path / "p").mkdir()
    with arbiter(tmp_path / "p") as decided_by, pair(tmp_path / "p", decided_by) as strangers:
        strangers.a.boot()
        strangers.a.stop()
        one = two.follower
        one.stop()
        one.store.rename(tmp_path / "own")
        shutil.copytree(strangers.a.store, one.store)
        before = files_of(one)

        with pytest.raises(BootFailed, match="HMS-5067"):
            one.boot()

        assert files_of(one) == before
        shutil.rmtree(one.store)
        (tmp_path / "own").rename(one.store)
        one.boot()
        two.wait_for_both()


def test_a_copy_with_a_newer_format_is_refused_and_not_touched(two):
    """A release before cannot follow with what a later one wrote."""
    one = two.follower
    one.stop()
    newest = max(file for file in Path(one.store).glob("*.log") if file.stem.isdigit())
    with newest.open("r+b") as file:
        kept = file.read(SEGMENT_HEADER_BYTES)
        about = unpack_segment_header(kept)
        author = Author(about.node_uid, about.epoch, FORMATS[-1] + 1, about.release)
        file.seek(0)
        file.write(pack_segment_header(author, about.number, about.first_lsn, about.oldest))
    before = files_of(one)
    with pytest.raises(BootFailed, match="HMS-5003"):
        one.boot()
    assert files_of(one) == before
    with newest.open("r+b") as file:
        file.write(kept)
    one.boot()
    two.wait_for_both()


@pytest.mark.parametrize(
    ("value", "told"), [("", "HMS-5065"), ("garbage", "HMS-5062"), ("older", "HMS-5061")]
)
def test_an_arbiter_that_is_empty_holds_garbage_or_went_back_starts_nothing(tmp_path, value, told):
    """And the error says how to go on; restored, all goes on."""
    with arbiter(tmp_path) as decided_by, pair(tmp_path, decided_by) as two:
        two.boot()
        with connect(*two.machines) as connection, connection.session() as session:
            session.producer("orders").send(b"kept")
            with decided(two.a) as told_by:
                older = told_by.read().configuration
        switch_over(two.machines)
        wait_until(lambda: two.replication()["epoch"] > older.epoch, WAIT_S)
        two.boot()
        for one in two.machines:
            one.stop()
        with decided(two.a) as told_by:
            kept = told_by._put_config(told_by.read().configuration)
            put = {  # as somebody else would write there
                "": {"requestDeleteRange": {"key": kept["requestPut"]["key"]}},
                "garbage": {"requestPut": {**kept["requestPut"], "value": GARBAGE}},
                "older": told_by._put_config(older),
            }
            assert told_by._transaction([], [put[value]])
            stores = [files_of(one) for one in two.machines]
            for one in two.machines:
                with pytest.raises(BootFailed, match=told):
                    one.boot()
            assert [files_of(one) for one in two.machines] == stores
            assert told_by._transaction([], [kept])
        two.boot()
        assert bodies(*two.machines) == [b"kept"]


def test_whoever_names_an_address_outside_the_group_is_not_followed(two, tmp_path):
    """Also with a higher epoch, and where the primary was: no byte goes there."""
    told = []

    def answer():
        epoch = 1 if len(told) % 2 else 1 << 30
        told.append(epoch)
        addresses = stranger.address if epoch > 1 else " ".join(one.address for one in two.machines)
        return NotPrimary(replica="a", node="node1", primary="x", epoch=epoch, addresses=addresses)

    config = load(two.leader.config_file)
    with node() as stranger, connect(*two.machines) as connection, connection.session() as session:
        producer = session.producer("orders")
        producer.send(b"before")
        for one in two.machines:
            one.kill()
        limits = compose.gateway_limits(config.node())
        door = StandbyDoor([one.address for one in two.machines], limits, answer)
        door.open()
        late = producer.send_async(b"late")
        wait_until(lambda: len(told) > 6, WAIT_S)
        assert not late.done()
        with hms.connect(stranger.address) as operator:
            assert len(operator.administer("client.list")) == 1
        door.close()
        two.boot()
        late.result(WAIT_S)
        assert bodies(*two.machines)[-2:] == [b"before", b"late"]


def test_a_token_of_another_user_tells_nothing(tmp_path):
    """Neither whether it was stored nor whose it is; its own user and an operator are told."""
    held = document(ann=["produce queue:*"], bob=["produce queue:*"])
    with secured_node(tmp_path, held) as node:

        def login(name, timeout_s=WAIT_S):
            given = {"user": name, "password": PASSWORD, "request_timeout_s": timeout_s}
            return hms.connect(node.address, **given)

        with login("ann", 5) as brief, brief.session() as session:
            producer = session.producer("orders")
            producer.send(b"before")
            node.pause()
            in_doubt = producer.send_async(b"once").exception(WAIT_S)
            node.resume()
            assert isinstance(in_doubt, hms.SendInDoubt)
            token = in_doubt.token
            with login("bob") as bob, pytest.raises(hms.TokenRefused) as refused:
                bob.outcome(token)
            assert "ann" not in str(refused.value)
            with login("ann") as ann:
                assert ann.outcome(token).state in ("WITHDRAWN", "STORED")
