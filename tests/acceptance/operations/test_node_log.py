"""The log of a real node: JSON lines, and requests that are named at both sides."""

import json

import pytest

import hms
from tests.support.waiting import wait_until

CONFIG = {"hms": {"queue": {"orders": {}}}, "node": {"node1": {"log_format": "JSON"}}}


def test_a_refusal_has_the_same_name_in_the_log_and_in_the_client(node):
    """Who reads a ticket at three in the morning finds the line of the node, and no payload."""
    with hms.connect(node.address, client_id="bar") as connection:
        connection.administer("log.level", {"level": "DEBUG", "name": "hms.refusals"})
        session = connection.session()
        with pytest.raises(hms.errors.DestinationNotFound) as refused:
            session.producer("nothing")
        session.producer("orders").send(b"secret coffee", {"Who": "confidential"})
    error = refused.value
    assert error.request

    def found():
        return [
            said
            for said in map(json.loads, node.log.splitlines())
            if said.get("request") == error.request
        ]

    wait_until(found)
    (said,) = found()
    assert (said["event"], said["error"], said["node"]) == ("refused", 4001, "node1")
    assert "secret" not in node.log
    assert "confidential" not in node.log
    node.stop()
    events = [json.loads(line) for line in node.log.splitlines()]
    assert {"ts", "level", "event", "text", "node", "boot"} <= events[-1].keys()
