"""hms dlq simulate over the history against what the live handler did, rule by rule."""

import json
import time

import pytest
from click.testing import CliRunner

import hms
import hms.testing
from hms.boot.cli import main
from hms.client.letter_rules.rules_handler import RulesHandler
from hms.client.letter_rules.rules_table import read_table
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CONFIG = {"hms": {"queue": {"orders": {}, "bills": {}, "late": {}}}}
REASONS = ("QUEUE_FULL", "DECODE_ERROR", "NOT_AUTHORIZED", "REJECTED")
RULES = """WAIT(NO) EXTENSIONS(YES)
SELECTOR('N > 30 AND JMSPriority = 7 AND $DeadOrigin = ''queue:orders''') ACTION(DISCARD)
REASON(QUEUE_FULL) DESTQ('ord*') ACTION(RETRY)
REASON(NOT_AUTHORIZED) ACTION(FWD) FWDQ('late') FWDQM('node2')
REASON(DECODE_ERROR) FORMAT(TEXT) ACTION(FWD) FWDQ('late')
MSGTYPE(REQUEST) ACTION(FWD) FWDQ('late') HEADER(NO)
DESTQM('*') REASON(QUEUE_FULL) ACTION(DISCARD)
REASON(REJECTED) ACTION(IGNORE)
"""


def _letters(connection, queue, count):
    """Give up messages of every kind for every reason."""
    with connection.session() as session:
        for n in range(count):
            reply_to = "queue:bills" if n % 3 == 0 else None
            given = {"Reason": REASONS[n % len(REASONS)], "N": n}
            text = hms.Message.text(f"{n}", given, reply_to=reply_to)
            body = hms.Message(b"%d" % n, given, reply_to=reply_to)
            session.producer(queue, priority=7).send(text if n % 2 else body)

        def listener(message):
            raise hms.Reject("no", message.properties["Reason"])

        session.consumer(queue).listen(listener)
        queue_view = connection.admin.messages(f"queue:{queue}")
        wait_until(lambda: not queue_view.count().count, 60)


def _hears_another(connection):
    return all(one["is_up"] for one in connection.administer("cluster.status")["members"])


@pytest.mark.usefixtures("spark")
def test_the_past_and_the_handler_agree_rule_by_rule(tmp_path):
    """Who tries a table on yesterday's letters knows what it will do tonight."""
    rules = tmp_path / "table.rules"
    rules.write_text(RULES)
    with hms.testing.node(store=tmp_path / "store", config=CONFIG, nodes=2) as node:
        with hms.connect(node.address) as connection:
            wait_until(lambda: _hears_another(connection), 60)
            _letters(connection, "orders", 48)
            _letters(connection, "bills", 24)
            clock = {"now_s": time.monotonic, "time_ms": lambda: 0, "sleep": time.sleep}
            handler = RulesHandler(connection, read_table(RULES), **clock)
            handler.run()
            name = connection.node_name
        node.stop()
        line = ["dlq", "simulate", str(rules), "--store", str(tmp_path / "store"), "--json"]
        done = CliRunner().invoke(main, [*line, "--node", name])

    assert done.exit_code == 0, f"{done.output} {done.exception}"
    said = json.loads(done.stdout)
    matched = handler.walk.counts.matched
    assert [one["matched"] for one in said["rules"]] == [
        matched[at] for at in range(len(said["rules"]))
    ]
    assert [one["matched"] for one in said["rules"]] == [17, 8, 14, 14, 7, 4, 8]
    unmatched = len(handler.walk.left) - handler.walk.counts.done[6]
    assert (said["unmatched"], said["again"]) == (unmatched, 0)
