"""What a handler does with letters: the guide's single rule, its sample table, its end."""

import pytest

from hms.client.letter_rules.letter_fields import fields_of
from hms.client.letter_rules.rule_patterns import LetterFields
from hms.client.letter_rules.rule_walk import Walk, destination_of, node_of
from hms.client.letter_rules.rules_handler import RulesHandler
from hms.client.letter_rules.rules_table import read_table
from hms.errors.catalogue import QueueFull

ONE_RULE = "PERSIST(MQPER_PERSISTENT) REASON(MQRC_PUT_INHIBITED) ACTION(RETRY) RETRY(3)"
SAMPLE = """
* the guide's table
inputqm(' ') inputq(' ') wait(yes) retryint(60)
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)
REASON(MQRC_PUT_INHIBITED) ACTION(RETRY) RETRY(5)
MSGTYPE(MQMT_REQUEST) REPLYQM(AAAA.*) +
    ACTION(FWD) FWDQ(DEADQ) FWDQM(&REPLYQM)
DESTQM(bbbb.1) action(fwd) fwdq(&DESTQ) fwdqm(bbbb.2) header(no)
REPLYQM(CCCC.*) ACTION(FWD) FWDQ(ALARM) FWDQM(CCCC.SYSTEM)
PERSIST(MQPER_NOT_PERSISTENT) ACTION(DISCARD)
REPLYQM('?*') ACTION(FWD) FWDQ(DEADQ.MANUAL.INTERVENTION) FWDQM(&REPLYQM)
ACTION(FWD) FWDQ(DEADQ.MANUAL.INTERVENTION)
"""
FULL, INHIBITED, OTHER = 2053, 2051, 2085


def letter(reason=OTHER, *, persistent=1, kind=8, is_letter=True, **texts):
    numbers = {"REASON": reason, "PERSIST": persistent, "MSGTYPE": kind, "APPLTYPE": 1}
    return LetterFields("1", is_letter, {"DESTQ": "ORDERS", **texts}, numbers)


def played(table, one, works=None, until_s=10_000):
    """What was tried on one letter, as (time, what), until it is gone or stays."""
    walk, now_s, tried = Walk(read_table(table)), 0.0, []
    walk.see(one, now_s)
    while now_s < until_s:
        for found, rule in walk.due(now_s):
            to, node = destination_of(rule, found), node_of(rule, found)
            header = "" if rule.action != "FWD" else (" header" if rule.keeps_header else " bare")
            what = f"{rule.action} {to}@{node}{header}" if rule.action == "FWD" else rule.action
            tried.append((now_s, what))
            if works is None or works(rule, len(tried)):
                walk.done(found.id)
                return tried
            walk.failed(found.id, now_s)
        due_s = walk.next_due_s()
        if due_s is None:
            return [*tried, (now_s, "stays")]
        now_s = max(due_s, now_s)
    raise AssertionError(tried)


def never(*_):
    return False


def test_a_rule_is_tried_as_often_as_it_says_and_then_the_letter_stays():
    """DL-V4, and the fifth row: a handler that starts anew tries anew."""
    inhibited = letter(INHIBITED)
    for _ in range(2):
        assert played(ONE_RULE, inhibited, never) == [
            *((60.0 * n, "RETRY") for n in range(3)),
            (120.0, "stays"),
        ]
    assert played(ONE_RULE, inhibited, lambda _, attempt: attempt == 3)[-1] == (120.0, "RETRY")
    assert played(ONE_RULE, letter(INHIBITED, persistent=0)) == [(0.0, "stays")]
    assert played(ONE_RULE, letter(FULL)) == [(0.0, "stays")]


MANUAL = "FWD DEADQ.MANUAL.INTERVENTION"
FIVE = ["RETRY"] * 5


def reaches(*nodes):
    """Only retries fail, and what goes to other nodes than these."""
    return lambda rule, _: rule.action != "RETRY" and rule.to_node in nodes


@pytest.mark.parametrize(
    ("one", "works", "done"),
    [
        (letter(FULL), lambda _, attempt: attempt == 5, FIVE),
        (letter(FULL), reaches(""), [*FIVE, f"{MANUAL}@ header"]),
        (letter(kind=1, REPLYQM="AAAA.1"), None, ["FWD DEADQ@AAAA.1 header"]),
        (
            letter(FULL, kind=1, REPLYQM="AAAA.1"),
            reaches("&REPLYQM"),
            [*FIVE, "FWD DEADQ@AAAA.1 header"],
        ),
        (letter(REPLYQM="AAAA.1"), None, [f"{MANUAL}@AAAA.1 header"]),
        (letter(DESTQM="BBBB.1"), None, ["FWD ORDERS@BBBB.2 bare"]),
        (
            letter(DESTQM="BBBB.1", persistent=0),
            lambda rule, _: rule.action == "DISCARD",
            ["FWD ORDERS@BBBB.2 bare", "DISCARD"],
        ),
        (letter(REPLYQM="CCCC.X", persistent=0), None, ["FWD ALARM@CCCC.SYSTEM header"]),
        (letter(persistent=0), None, ["DISCARD"]),
        (letter(REPLYQM="DDDD"), reaches(""), [f"{MANUAL}@DDDD header", f"{MANUAL}@ header"]),
        (letter(), None, [f"{MANUAL}@ header"]),
    ],
)
def test_the_sample_table_does_with_each_letter_what_the_guide_says(one, works, done):
    """DL-V5, rows 1 to 11."""
    assert [what for _, what in played(SAMPLE, one, works)] == done


def test_what_is_no_dead_letter_is_never_touched():
    """DL-V5, row 12."""
    walk = Walk(read_table(SAMPLE))
    walk.see(letter(is_letter=False), 0)

    assert (walk.due(0), walk.foreign, walk.next_due_s()) == ([], {"1"}, None)


def test_what_no_rule_takes_stays():
    """DL-V5, row 13: without the rule for all."""
    without = "\n".join(SAMPLE.strip().splitlines()[:-1])

    assert played(without, letter()) == [(0.0, "stays")]


ROW = {"id": "1", "kind": 0, "persistent": True, "state": "waiting"}


class _Node:
    """A queue of one node, and a clock that runs by sleeping."""

    node_name = "N1"

    def __init__(self, *letters, fails=()):
        self.letters = [
            {**ROW, "id": str(n), "properties": {"$DeadReason": r, "$DeadOrigin": "queue:q"}}
            for n, r in enumerate(letters)
        ]
        self.fails, self.asked, self.now_s, self.slept = set(fails), [], 0.0, []

    def administer(self, verb, arguments):
        if verb == "message.list":
            rows = [one for one in self.letters if int(one["id"]) >= arguments["after"]]
            return {"messages": rows, "has_more": False, "end": 1, "after": len(self.letters)}
        self.asked.append((verb, arguments["ids"], arguments["place"], arguments.get("to", "")))
        if verb in self.fails:
            raise QueueFull(kind="queue", destination="q", count=1, limit=1, oldest_s=0)
        before = len(self.letters)
        self.letters = [one for one in self.letters if one["id"] != arguments["ids"]]
        return {"count": before - len(self.letters), "left": {}}

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_s += seconds
        if self.now_s > 500:
            raise TimeoutError

    def handler(self, text, queue=""):
        clock = {"now_s": lambda: self.now_s, "time_ms": lambda: 0, "sleep": self.sleep}
        return RulesHandler(self, read_table(text), queue, **clock)


@pytest.mark.parametrize(
    ("queue", "control", "used"),
    [
        ("Q1", "INPUTQ(Q2) INPUTQM(QM2)", "Q1"),
        ("", "INPUTQ(Q2) INPUTQM(QM2)", "Q2"),
        ("", "INPUTQM(QM2)", "HMS.DLQ"),
        ("", "INPUTQ(' ')", "HMS.DLQ"),
        ("", "INPUTQ(' ') INPUTQM(' ')", "HMS.DLQ"),
    ],
)
def test_arguments_go_before_the_table(queue, control, used):
    """DL-V3: which queue is meant."""
    assert _Node().handler(f"{control}\nACTION(DISCARD)", queue).queue == used


def test_without_wait_it_ends_when_nothing_can_be_done():
    """DL-V6: WAIT(NO) with letters that stay."""
    node = _Node("REJECTED", "QUEUE_FULL")
    handler = node.handler("WAIT(NO)\nREASON(QUEUE_FULL) ACTION(DISCARD)")

    handler.run()

    assert node.asked == [("message.delete", "1", "queue:HMS.DLQ", "")]
    assert (handler.walk.left, node.slept) == (["0"], [])


def test_it_waits_for_actions_that_are_due_again_before_it_ends():
    """A minute between attempts, also with WAIT(NO)."""
    node = _Node("QUEUE_FULL", fails=["dlq.return"])
    node.handler("WAIT(NO) RETRYINT(60)\nACTION(RETRY) RETRY(3)").run()

    assert len(node.asked) == 3
    assert node.now_s == pytest.approx(120)


def test_a_wait_ends_after_so_long_without_work_and_begins_anew_with_it():
    """DL-V6: WAIT(5)."""
    node = _Node("QUEUE_FULL", fails=["dlq.return"])
    node.handler("WAIT(5) RETRYINT(60)\nACTION(RETRY) RETRY(2)").run()

    assert node.now_s == pytest.approx(65)


def test_with_wait_it_never_ends():
    """DL-V6: WAIT(YES)."""
    with pytest.raises(TimeoutError):
        _Node("REJECTED").handler("WAIT(YES)\nACTION(IGNORE)").run()


def test_a_letter_that_another_handler_took_is_let_go():
    """Nothing is done twice, and nothing is counted as done."""
    node = _Node("REJECTED")
    handler = node.handler("WAIT(NO)\nACTION(FWD) FWDQ(A)")
    handler.scan(is_whole=True)
    node.letters.clear()

    assert handler.act() == 1
    assert (handler.walk.left, sum(handler.walk.counts.done.values())) == ([], 0)


def test_another_table_is_taken_between_two_looks():
    """And what the old one left is looked at again."""
    node, tables = _Node("REJECTED"), [None, read_table("WAIT(NO)\nACTION(DISCARD)")]
    handler = node.handler("ACTION(IGNORE)")
    handler._new_table = lambda: tables.pop(0) if tables else None

    handler.run()

    assert [verb for verb, *_ in node.asked] == ["message.delete"]


def test_fields_come_from_what_the_node_lists():
    """Of a letter with everything, and of one with nothing."""
    said = {
        "$DeadReason": "QUEUE_FULL",
        "$DeadOrigin": "topic:a/b",
        "$DeadTime": 1000,
        "$DeadCount": 3,
        "$ReturnCount": 1,
        "JMSReplyTo": "queue:answers",
    }
    full = fields_of({**ROW, "kind": 1, "properties": said}, "N1", 61_000)
    bare = fields_of({**ROW, "persistent": False}, "N1", 0)

    assert (full.texts["DESTQ"], full.texts["REPLYQ"], full.texts["REPLYQM"]) == (
        "a/b",
        "answers",
        "N1",
    )
    assert (full.texts["FORMAT"], full.texts["DESTQM"]) == ("TEXT", "N1")
    assert (full.numbers["REASON"], full.numbers["MSGTYPE"]) == (2053, 1)
    assert (full.age_s, full.attempts, full.returns) == (60.0, 3, 1)
    assert (bare.is_letter, bare.numbers["MSGTYPE"], bare.numbers["PERSIST"]) == (False, 8, 0)
    assert bare.texts["REPLYQM"] == ""


def test_a_selector_is_asked_of_the_node():
    """An extension: the node looks at properties, the handler does not."""
    node = _Node("REJECTED")
    handler = node.handler("EXTENSIONS(YES) WAIT(NO)\nSELECTOR('a > 1') ACTION(DISCARD)")
    handler.run()

    assert [verb for verb, *_ in node.asked] == ["message.delete"]
