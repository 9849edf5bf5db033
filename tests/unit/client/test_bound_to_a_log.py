"""What is asked of the node that writes a log is asked of no other, sans-IO."""

from types import SimpleNamespace

import pytest
from client_link import LOST, sent, up

import hms
from hms.client.core.link import Link
from hms.client.core.requests import Requests
from hms.errors.catalogue import DecisionRefused
from hms.wire.branch_requests import Decide
from hms.wire.frames import Kind
from hms.wire.structures import Hello
from tpmon.tx.decision_log import NodeLog

DECIDE = Decide(b"transfer")


@pytest.fixture
def at_first():
    """A link to the node of the log "first"."""
    link = Link(Hello(1))
    up(link, log=b"first")
    return link


def _ask(link: Link):
    pending = Requests.for_log(SimpleNamespace(link=link), DECIDE, b"first")
    return link.request(DECIDE, pending)


def test_a_decision_without_an_answer_is_not_asked_of_another_node(at_first):
    """That one has not heard of the transaction and refused: it was rolled back in the databases,
    and the first node had decided to commit."""
    asked = _ask(at_first)
    at_first.lose(LOST, is_final=False)
    up(at_first, log=b"second")

    assert isinstance(asked.error, hms.ConnectionLost)
    assert sent(at_first, Kind.REQUEST) == []


def test_a_decision_is_asked_of_its_node_again(at_first):
    """It answers as it did."""
    asked = _ask(at_first)
    at_first.lose(LOST, is_final=False)
    up(at_first, log=b"first")

    assert not asked.is_done
    assert len(sent(at_first, Kind.REQUEST)) == 1


def test_what_was_begun_at_another_node_is_not_decided():
    """So it can be rolled back, as nobody has decided."""
    log = NodeLog(SimpleNamespace(log_id=b"second", request=None), 1, b"first")

    with pytest.raises(DecisionRefused, match="goes on at another node"):
        log.decide(b"transfer", b"", ())
