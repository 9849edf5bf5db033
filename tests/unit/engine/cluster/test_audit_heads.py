"""What nodes remember of one another's audits."""

from types import SimpleNamespace

import pytest

from hms.engine.cluster.audit_heads import AuditHeads
from hms.engine.cluster.cluster_messages import (
    HEADS_MAX,
    AuditHead,
    decode_message,
    encode_message,
)
from hms.engine.log.audit_chain import RECENT_MAX, AuditChain
from hms.errors.catalogue import ProtocolError
from hms.records.audit import NO_HASH, AuditEntry
from hms.server.effect_release import EffectRelease
from tests.support.cluster_rig import INTERVAL_MS, World

HASHES = [bytes([n]) * 32 for n in range(256)]


def chain(*numbers):
    made = AuditChain()
    for number in numbers:
        made.restore(number, HASHES[number])
    return made


def told(own, other, its_index=2):
    """What one node says, heard by the other one."""
    for word in own.words(its_index):
        heard, _ = decode_message(encode_message(word))
        other.told(1, "n1", heard)


def test_a_node_that_goes_back_is_told_so_and_the_later_head_is_remembered():
    """Whoever has an older copy of its store hears what it once had."""
    first, before, after = AuditHeads(chain(1, 2)), AuditHeads(chain(5, 6)), AuditHeads(chain(5))
    first.told(2, "n2", before.words(1)[0])
    told(first, before)
    assert before.broken == ""
    first.told(2, "n2", after.words(1)[0])
    assert first.of[2] == (6, HASHES[6])

    told(first, after)

    assert "n1 knows record 6 of this audit, which ends with record 5" in after.broken
    assert first.broken == ""


def test_a_chain_that_was_written_anew_is_told():
    """It has as many records, and other ones."""
    first, other = AuditHeads(chain(1)), AuditHeads(chain(5, 6, 7))
    first.told(2, "n2", AuditHead(6, HASHES[99]))

    told(first, other)

    assert "another record 6" in other.broken


def both(first, second):
    """Each of two nodes hears the other one, n2 first."""
    for word in second.words(1):
        first.told(2, "n2", word)
    told(first, second)


def grown(heads, number, head=None):
    """One record more."""
    heads._own.restore(number, HASHES[number] if head is None else head)


def test_an_older_copy_that_is_written_on_is_found_though_its_number_is_higher():
    """The higher head is heard before the one that is remembered was compared."""
    first, before = AuditHeads(chain(1)), AuditHeads(chain(5, 6))
    both(first, before)
    forged = AuditHeads(chain(4, 5))
    for number in (6, 7, 8):
        grown(forged, number, HASHES[90 + number])
    first.told(2, "n2", forged.words(1)[0])

    told(first, forged)

    assert "n1 knows another record 6 of this audit" in forged.broken
    for word in forged.words(1):
        first.told(2, "n2", word)
    assert "n2 has another record 6 in its audit than it told" in first.doubted


def test_a_number_out_of_thin_air_does_not_hide_what_comes_behind_it():
    """Whoever says it is doubted from then on, and what was known is compared as before."""
    first, other = AuditHeads(chain(1)), AuditHeads(chain(5, 6))
    both(first, other)
    first.told(2, "n2", AuditHead(1 << 47, HASHES[99]))
    for number in range(7, 20):
        grown(other, number)
        both(first, other)
    assert f"told record {1 << 47} of its audit, which ends with record 7" in first.doubted
    older = AuditHeads(chain(5, 6, *range(7, 18)))
    grown(older, 18, HASHES[90])
    grown(older, 19, HASHES[91])

    told(first, older)

    known = {word.known_number: word.known_head for word in first.words(2)}
    assert known[19] == HASHES[19]
    assert set(older.claims[1]) >= {19, 1 << 47}


def test_what_was_shown_is_let_go_and_what_was_not_is_bounded():
    """A node of the release before shows nothing: its first head and its last ones are kept."""
    first, other = AuditHeads(chain(1)), AuditHeads(chain(5))
    for number in range(6, 40):
        grown(other, number)
        both(first, other)
        both(first, other)
    assert [word.known_number for word in first.words(2)] == [39]
    assert (first.doubted, other.broken) == ("", "")
    for number in range(40, 60):
        first.told(3, "n3", AuditHead(number, HASHES[number]))

    known = [word.known_number for word in first.words(3)]

    assert (len(known), known[0], known[-1]) == (HEADS_MAX, 40, 59)


def test_two_nodes_that_know_all_of_one_another_say_no_more():
    """A word that asks for an answer must not be answered for ever."""
    first, other = AuditHeads(chain(1, 2)), AuditHeads(chain(5, 6))
    for _ in range(3):
        both(first, other)
    assert (first.is_news(), other.is_news()) == (True, True)
    both(first, other)
    assert (first.is_news(), other.is_news()) == (False, False)


def test_nothing_is_said_where_there_is_no_audit():
    """Open nodes have none."""
    assert AuditHeads(AuditChain()).words(1) == []


def test_what_is_remembered_is_bounded():
    """Hashes of records long ago are compared with an anchor."""
    made = AuditChain()
    for number in range(1, RECENT_MAX + 50):
        made.restore(number, HASHES[number % 256])

    assert made.differs(49, HASHES[0]) == ""
    assert made.differs(51, HASHES[0]) != ""


@pytest.mark.parametrize("word", [AuditHead(-1, b""), AuditHead(1, bytes(33)), AuditHead("x", b"")])
def test_a_word_that_is_none_is_refused(word):
    """From whoever is at the other end."""
    with pytest.raises(ProtocolError):
        decode_message(encode_message(word))


def test_a_log_that_began_without_an_audit_is_not_doubted_by_who_remembers_none():
    """Its segments say so with the number 0; a node that was killed early got `audit_broken`."""
    made = AuditChain()
    made.restore(0, b"")
    assert made.differs(0, b"") == ""
    made.restore(1, HASHES[0])
    assert made.differs(0, b"") == ""
    assert made.differs(1, HASHES[1]) != ""


@pytest.mark.parametrize("when", ["it is time", "the other node comes"])
def test_a_head_is_told_when_its_record_is_synced_and_not_before(when):
    """Also of a login, whose record nobody waits for: a power cut would take it, and the node that
    was told of it would raise a false alert."""
    world, said = World(), []
    world.link_all()
    world.settle()
    node, other = world.nodes[1], world.nodes[2]
    releases = EffectRelease()
    releases.outlet = SimpleNamespace(put=lambda _frames: None)
    releases.to_node = lambda effect, _payloads: said.append(effect.word)

    def login(fx):
        who = "u", "uid 1000", "connect", "listener:s", "login", ""
        entry = AuditEntry(0, world.now_ms, *who, 0, 1, NO_HASH)
        node.engine.state.audit.append(entry, fx)
        fx.unawaited, fx.must_wait = len(fx.records), False

    releases.add(node.run(login), len(node.log))
    world.now_ms += INTERVAL_MS
    told = node.tick() if when == "it is time" else node.hears(2, other.life)
    releases.add(told, len(node.log))
    releases.release(len(node.log) - 1)
    assert [word for word in said if isinstance(word, AuditHead)] == []
    releases.release(len(node.log))

    (head,) = [word for word in said if isinstance(word, AuditHead)]
    assert head.number == node.engine.state.audit.number == 1
