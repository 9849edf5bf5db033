"""What nodes remember of one another's audits."""

import pytest

from hms.engine.cluster.audit_heads import AuditHeads
from hms.engine.cluster.cluster_messages import AuditHead, decode_message, encode_message
from hms.engine.log.audit_chain import RECENT_MAX, AuditChain
from hms.errors.catalogue import ProtocolError

HASHES = [bytes([n]) * 32 for n in range(256)]


def chain(*numbers):
    made = AuditChain()
    for number in numbers:
        made.restore(number, HASHES[number])
    return made


def told(own, other, its_index=2):
    """What one node says, heard by the other one."""
    (word,) = own.words(its_index)
    word, _ = decode_message(encode_message(word))
    other.told(1, "n1", word)


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
