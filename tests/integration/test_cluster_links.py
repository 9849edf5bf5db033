"""Links over real sockets: who is heard, who is refused, and that nothing a peer sends harms."""

import contextlib
import time
from dataclasses import replace

import msgspec
import pytest
import zmq

from hms.engine.cluster.members import NOT_HEARD, Incarnation, PeerState
from hms.server.links import receiver
from hms.server.links.keys import KeyPair
from hms.server.links.link_frames import (
    HelloBody,
    LinkKind,
    decode_hello,
    encode_hello,
    link_frame,
)
from tests.integration.links_rig import FIRST, FRAME_BYTES_MAX, Rig
from tests.support.dead_ends import DeadEnds


@pytest.fixture
def make_rig():
    """Rigs that are closed with the test."""
    made = []

    def make(**options):
        made.append(Rig(**options))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig):
    """Two nodes that hear one another."""
    rig = make_rig()
    rig.start(1)
    rig.start(2)
    rig.until_up(1, 2)
    return rig


def hello(name="n2", index=2, cluster="hms", life=FIRST, epoch=1):
    """A node's hello."""
    body = encode_hello(HelloBody(cluster, name))
    return link_frame(LinkKind.HELLO, index, PeerState(life, epoch), NOT_HEARD, body)


def test_words_arrive_in_order_in_both_directions(rig):
    """Offers and answers rely on it."""
    for number in range(500):
        rig.nodes[1].say(2, b"%d" % number)
        rig.nodes[2].say(1, b"%d" % number)
    rig.until(lambda: all(len(node.words) == 500 for node in rig.nodes.values()))

    assert rig.nodes[2].words == [(1, b"%d" % number) for number in range(500)]
    assert rig.nodes[1].words == [(2, b"%d" % number) for number in range(500)]


def test_nodes_hear_one_another_as_soon_as_they_are_connected(make_rig):
    """The first hello finds nobody who listens, or a connection that is not made yet; the next one
    came after a third of HMSHEARTBEAT, and so did the one after a boot."""
    rig = make_rig(heartbeat_s=3600)
    rig.start(1)
    for _ in range(3):
        rig.nodes[1].links.take_turn()
    rig.start(2)
    rig.until_up(1, 2)

    rig.stop(2)
    rig.until(lambda: rig.nodes[1].link("n2")["presence"] == "failed")
    rig.start(2, Incarnation(100, 2))

    rig.until_up(1, 2)


def test_a_silent_node_is_failed_and_back_when_heard_again(make_rig):
    """F-J2."""
    rig = make_rig(heartbeat_s=0.5)
    rig.start(1)
    rig.start(2)
    rig.until_up(1, 2)
    silent = rig.nodes.pop(2)
    rig.until(lambda: rig.nodes[1].link("n2")["presence"] == "failed")
    assert "nothing was heard" in rig.nodes[1].changes[-1].reason

    rig.nodes[2] = silent

    rig.until_up(1, 2)


def test_who_says_good_bye_is_gone_at_once(rig):
    """A node that stops in order need not be waited for."""
    rig.stop(2)

    rig.until(lambda: rig.nodes[1].link("n2")["presence"] == "failed")

    assert rig.nodes[1].changes[-1].reason == "the node stops"


def test_a_node_that_was_booted_again_is_a_new_one(rig):
    """What its old life was told, it may have forgotten."""
    rig.stop(2)
    rig.start(2, Incarnation(100, 2))
    rig.until_up(1, 2)

    assert rig.nodes[1].changes[-1].life == Incarnation(100, 2)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "n1"}, "one is this node's own"),
        ({"index": 1}, "one is this node's own"),
        ({"index": 9}, "belongs to nobody"),
        ({"name": "n9"}, "belongs to n2"),
        ({"cluster": "another"}, "belongs to the domain another"),
        ({"life": Incarnation(99, 7)}, "is older than"),
    ],
)
def test_who_is_not_who_it_says_is_refused_and_named(rig, changed, reason):
    """Two nodes with one name or index would give one message id twice."""
    stranger = rig.stranger(1)
    stranger.send_multipart(hello(**changed))

    rig.until(lambda: reason in rig.nodes[1].links.describe()["last_refusal"])
    rig.until(lambda: stranger.poll(0))

    assert reason in stranger.recv_multipart()[1].decode()
    assert rig.nodes[1].link("n2")["presence"] == "up"


def test_another_version_of_the_links_is_refused(rig):
    """Two versions would read one frame in two ways."""
    head, body = hello()
    rig.stranger(1).send_multipart([head[:2] + b"\x63" + head[3:], body])

    rig.until(lambda: "version 99" in rig.nodes[1].links.describe()["last_refusal"])
    rig.stranger(1).send_multipart([b"HL\x01 and another length", b""])

    rig.until(lambda: "version 1 of" in rig.nodes[1].links.describe()["last_refusal"])


@pytest.mark.parametrize(
    "parts",
    [
        [b"garbage"],
        [b"", b""],
        [b"x" * 48, b""],
        [hello()[0], b"longer than announced" * 9],
        [b"a", b"b", b"c"],
        [link_frame(LinkKind.WORD, 2, PeerState(FIRST, 1), PeerState(FIRST, 1), b"w")[0], b"w"],
        [link_frame(LinkKind.HELLO, 2, PeerState(FIRST, 1), NOT_HEARD, b"\xc1")[0], b"\xc1"],
    ],
)
def test_garbage_is_counted_and_harms_nobody(rig, parts):
    """A port that anything can reach must bear anything."""
    rig.stranger(1).send_multipart(parts)
    rig.until(lambda: rig.nodes[1].links.describe()["refused_frames"] == 1)

    rig.nodes[2].say(1, b"still here")

    rig.until(lambda: rig.nodes[1].words == [(2, b"still here")])


def test_a_frame_above_the_limit_never_arrives(rig):
    """The connection is dropped before the bytes are taken."""
    stranger = rig.stranger(1)
    stranger.send_multipart([b"x", b"y" * (FRAME_BYTES_MAX + 1)])
    rig.nodes[2].say(1, b"still here")

    rig.until(lambda: rig.nodes[1].words == [(2, b"still here")])

    assert rig.nodes[1].links.describe()["refused_frames"] == 0


def test_a_flood_cuts_the_link_for_a_while_and_is_named(make_rig, monkeypatch):
    """A node that runs wild costs itself, not the others."""
    monkeypatch.setattr(receiver, "FRAMES_PER_S_MAX", 1000)
    rig = make_rig(count=3)
    rig.start(1)
    rig.start(3)
    rig.until_up(1, 3)
    wild = rig.stranger(1)
    wild.send_multipart(hello())
    frame = link_frame(LinkKind.WORD, 2, PeerState(FIRST, 1), NOT_HEARD, b"w")
    at = rig.clock()
    rig.now = lambda: at  # one second, however slow this machine is

    def is_cut():
        with contextlib.suppress(zmq.Again):
            for _ in range(1000):
                wild.send_multipart(frame, zmq.NOBLOCK)
        return "frames came in a second" in rig.nodes[1].link("n2")["last_error"]

    rig.until(is_cut)
    rig.now = time.monotonic
    rig.nodes[3].say(1, b"still here")

    rig.until(lambda: (3, b"still here") in rig.nodes[1].words)


def test_a_node_whose_words_cannot_be_taken_is_cut_and_comes_back(rig):
    """What waits for the workers is bounded too."""
    rig.nodes[1].takes_words = False
    rig.nodes[2].say(1, b"too much")
    rig.until(lambda: rig.nodes[1].changes and not rig.nodes[1].changes[-1].is_up)
    assert "than this node can take" in rig.nodes[1].link("n2")["last_error"]

    rig.nodes[1].takes_words = True

    rig.until_up(1, 2)


def downs(node):
    """Why it took others for gone."""
    return [change.reason for change in node.changes if not change.is_up]


def test_a_connection_that_was_made_again_unnoticed_begins_the_link_anew(rig):
    """What was under way when it broke is lost, and only who reads can tell."""
    again = rig.stranger(1)
    again.send_multipart(hello(life=Incarnation(100, 1)))
    rig.until(lambda: downs(rig.nodes[1]))
    assert "made again" in downs(rig.nodes[1])[0]

    rig.until(lambda: downs(rig.nodes[2]))
    again.close(0)
    rig.until_up(1, 2)

    assert "began the link anew" in downs(rig.nodes[2])[0]


def test_a_dead_connection_that_only_one_side_can_see_is_replaced(make_rig):
    """A firewall forgot it: what one node says is swallowed, without an end or an error."""
    rig = make_rig(heartbeat_s=1.0)
    with DeadEnds(rig.addresses[2]) as way:
        rig.start(1, peers=rig.peers_of(1, {2: way.address}))
        rig.start(2)
        rig.until_up(1, 2)
        way.swallow()
        rig.until(lambda: downs(rig.nodes[2]))

        rig.until_up(1, 2)

    assert "nothing was heard" in downs(rig.nodes[2])[0]
    assert "began the link anew" in downs(rig.nodes[1])[0]


def test_what_a_node_said_comes_before_that_it_is_gone(rig):
    """Its last answers settle moves that would be undecided until it is back."""
    rig.nodes[1].told.clear()
    for data in (b"1", b"2", b"3"):
        rig.nodes[2].say(1, data)
    rig.nodes[2].links.take_turn()
    rig.stop(2)

    rig.until(lambda: len(rig.nodes[1].told) == 4)

    assert rig.nodes[1].told == [b"1", b"2", b"3", "down"]


def test_a_node_that_died_while_this_one_stood_still_is_failed_soon(rig):
    """The pause counts as nobody's silence, and for no more than that."""
    rig.nodes[2].say(1, b"the last one")
    rig.nodes[2].links.take_turn()
    assert rig.nodes[1].links.sockets()[0].poll(60_000), "something is unread when it goes on"
    dead = rig.nodes.pop(2)
    rig.now = lambda: time.monotonic() + 3600

    rig.until(lambda: rig.nodes[1].link("n2")["presence"] == "failed")

    assert rig.nodes[1].words == [(2, b"the last one")]
    dead.links.close()


def test_what_is_said_before_a_hello_is_refused(rig):
    """It may stand behind words that were lost with the connection before."""
    state = PeerState(FIRST, 1)
    rig.stranger(1).send_multipart(link_frame(LinkKind.WORD, 2, state, PeerState(FIRST, 1), b"w"))

    rig.until(lambda: "before its HELLO" in rig.nodes[1].links.describe()["last_refusal"])

    assert rig.nodes[1].words == []


def keys(*indexes):
    """A pair for each."""
    return {index: KeyPair(*zmq.curve_keypair()) for index in indexes}


def test_with_keys_nodes_hear_one_another_and_nobody_else(make_rig):
    """F-N3: the port of the links is open to keys of the cluster alone. For the audit the key is
    noted, and where it came from."""
    rig = make_rig(keys=keys(1, 2))
    rig.start(1)
    rig.start(2)
    rig.until_up(1, 2)
    public, secret = zmq.curve_keypair()
    server = rig.keys[1].public
    options = {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": server}
    rig.stranger(1).send_multipart(hello())
    rig.stranger(1, **options).send_multipart(hello())

    rig.until(lambda: rig.nodes[1].links.describe()["refused_keys"] >= 1)

    assert rig.nodes[1].links.describe()["refused_frames"] == 0
    assert rig.nodes[1].links.describe()["encrypted"] is True
    ((noted, *_),) = rig.nodes[1].refused.take()
    assert (noted.source, noted.resource) == ("127.0.0.1", "listener:HMS.links")
    assert (noted.key, noted.why) == (public.decode(), "its key is not one of this cluster's")


def test_a_node_with_the_key_of_another_one_is_refused(make_rig):
    """Who has one key of the cluster must not speak for all of it."""
    rig = make_rig(count=3, keys=keys(1, 2, 3))
    rig.start(1)
    own = rig.keys[3]
    options = {
        "curve_publickey": own.public,
        "curve_secretkey": own.secret,
        "curve_serverkey": rig.keys[1].public,
    }
    rig.stranger(1, **options).send_multipart(hello("n2", 2))

    rig.until(lambda: "its key is that of n3" in rig.nodes[1].links.describe()["last_refusal"])

    ((noted, *_),) = rig.nodes[1].refused.take()
    assert (noted.user, noted.source) == ("n3", "127.0.0.1")
    assert "its key is that of n3" in noted.why


def test_a_node_shows_another_key_while_the_links_work(make_rig):
    """The next key is told over the link; with the switch it alone is known, and no boot is needed.
    The links break once and are there again, and the key before lets nobody in."""
    learned = []
    rig = make_rig(count=3, heartbeat_s=1.0, keys=keys(1, 2, 3))
    for index in (1, 2, 3):
        rig.start(index, on_key_learned=lambda *told: learned.append(told))
    rig.until_up(1, 2, 3)
    first, second = rig.keys[1], KeyPair(*zmq.curve_keypair())
    node, others = rig.nodes[1].links, [rig.nodes[2], rig.nodes[3]]

    node.announce(second.public.decode())
    rig.until(lambda: all(one.link("n1")["next_key"] for one in others))
    assert {told[0] for told in learned} == {"n1"}
    assert {told[1] for told in learned} == {second.public.decode()}
    node.rekey(second)
    rig.until(lambda: node.key == second.public.decode())
    rig.until(lambda: not any(one.link("n1")["next_key"] for one in others))
    rig.until(lambda: rig.nodes[2].say(1, b"fro") or b"fro" in rig.nodes[1].told)
    rig.until(lambda: rig.nodes[1].say(3, b"to") or b"to" in rig.nodes[3].told)

    options = {
        "curve_publickey": first.public,
        "curve_secretkey": first.secret,
        "curve_serverkey": rig.keys[2].public,
    }
    before = rig.nodes[2].links.describe()["refused_keys"]
    rig.stranger(2, **options).send_multipart(hello("n1", 1))
    rig.until(lambda: rig.nodes[2].links.describe()["refused_keys"] > before)


def test_a_node_that_was_down_during_the_change_accepts_both_keys(make_rig):
    """As far as it had learned the second one before."""
    rig = make_rig(keys=keys(1, 2))
    second = KeyPair(*zmq.curve_keypair())
    (peer,) = rig.peers_of(2)
    rig.start(2, peers=(replace(peer, next_key=second.public.decode()),))
    rig.keys[1] = second
    rig.start(1)
    rig.until_up(1, 2)


def test_a_next_key_that_is_somebody_elses_or_none_is_not_learned(make_rig):
    """Whoever speaks for itself must not speak for another one later."""
    rig = make_rig(count=3, heartbeat_s=1.0, keys=keys(1, 2, 3))
    rig.start(1)
    rig.start(2)
    rig.until_up(1, 2)
    for told in (rig.keys[3].public.decode(), rig.keys[2].public.decode(), "~" * 40, "short"):
        rig.nodes[1].links.announce(told)
        heard = rig.nodes[2].link("n1")["frames_in"]
        rig.until(lambda heard=heard: rig.nodes[2].link("n1")["frames_in"] > heard + 2)
        assert rig.nodes[2].link("n1")["next_key"] == ""


def test_nodes_tell_one_another_what_their_clocks_say(make_rig):
    """Neither decides anything by it: the links stay up, and an operator is told."""
    rig = make_rig(heartbeat_s=1.0)
    first, second = rig.start(1), rig.start(2)
    second.ahead_ms = 7_200_000
    rig.until_up(1, 2)
    assert first.link("n2")["clock_ahead_s"] is None  # one hello may have taken its time

    rig.until(lambda: (first.link("n2")["clock_ahead_s"] or 0) > 7_199)
    rig.until(lambda: (second.link("n1")["clock_ahead_s"] or 0) < -7_199)
    assert {first.link("n2")["presence"], second.link("n1")["presence"]} == {"up"}

    second.ahead_ms = 0
    rig.until(lambda: abs(first.link("n2")["clock_ahead_s"]) < 600)


def test_a_hello_of_a_release_before_says_nothing_of_a_clock():
    """It is heard as ever; and so is one of a release that says more."""
    body = msgspec.msgpack.decode(encode_hello(HelloBody("hms", "n2")))[:4]
    assert decode_hello(msgspec.msgpack.encode(body)).clock_ms == 0
    assert decode_hello(msgspec.msgpack.encode([*body, 5, "more"])).clock_ms == 5
