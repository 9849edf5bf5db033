"""AT-26: user by command by permission, made from the table of commands and held against another
one: every cell that is granted is permitted, and no other."""

import pytest

import hms
from hms.engine.security import Policy, Role, read_permission
from hms.engine.security.actions import KINDS_OF
from hms.server.logins.callers import Caller
from hms.server.logins.identities import Login
from hms.server.logins.login_gate import check_grant
from hms.wire import branch_requests as xa
from hms.wire import structures as wire
from hms.wire.commands import COMMANDS, Action, Order, order
from hms.wire.frames import Kind, SendHead
from hms.wire.operations import ChangeGrant
from tests.support.gated import GatedNode
from tests.support.hello import hello_of
from tests.support.secured import document

OWN_FILE = f"{hello_of(1).uid:016x}-00000001-x"
XID, OTHER_XID = (bytes([0, 0, 0, 1, 2, 1]) + name for name in (b"gtb", b"gtc"))

HEADS = {
    "HELLO": hello_of(1),
    "AUTH": wire.Auth("PASSWORD"),
    "SEND": SendHead(1, 1, 1, is_persistent=False),
    "SETTLE": [],
    "SCHEDULE": (wire.ScheduleHead(1, "daily"), b""),
    "FILE": (wire.FileBlock(1, 0), b""),
    "CALL": (wire.CallHead("PAY", 0), b""),
    "TALK": (wire.TalkHead(1), b""),
    "RESULT": (wire.ResultHead(1, 2), b""),
    "NOTICE": (wire.NoticeHead(2, client_name="desk"), b""),
    "OpenProducer": wire.OpenProducer(9, 1, "queue", "orders"),
    "OpenConsumer": wire.OpenConsumer(9, 1, "queue", "orders", 1),
    "CreateTemporary": wire.CreateTemporary("queue"),
    "DeleteTemporary": wire.DeleteTemporary("queue", "HMS.TEMP.1"),
    "Unsubscribe": wire.Unsubscribe("news", "daily"),
    "Browse": wire.Browse("orders"),
    "Advertise": wire.Advertise("PAY"),
    "Watch": wire.Watch("queue", "orders"),
    "OpenFile": wire.OpenFile(1, 1),
    "CloseFile": wire.CloseFile(1, 1, "0"),
    "ReadFile": wire.ReadFile(OWN_FILE, 0, 1),
}
NEEDS = {
    "SCHEDULE": ["schedule queue:orders"],
    "FILE": ["produce queue:x"],
    "CALL": ["call service:PAY"],
    "NOTICE": ["notify client:desk"],
    "OpenProducer": ["produce queue:orders"],
    "CreateTemporary": ["temporary node:NODE1"],
    "DeleteTemporary": ["temporary node:NODE1"],
    "OpenConsumer": ["consume queue:orders"],
    "Unsubscribe": ["configure subscription:daily"],
    "Browse": ["browse queue:orders"],
    "Advertise": ["advertise service:PAY"],
    "Watch": ["view queue:orders"],
    "OpenFile": ["produce queue:x"],
    "CloseFile": ["produce queue:x"],
    **{
        name: ["transact node:NODE1"]
        for name in (
            "XaStart", "XaEnd", "XaTake", "XaPrepare", "XaCommit", "XaRollback", "XaForget",
            "BeginGlobal", "Decide", "EndGlobal", "AskDecision", "NoteDecision", "ForgetDecision",
        )
    },
    **{name: ["recover transaction:*"] for name in ("XaRecover", "ListDecisions", "ListActive")},
    "status": ["view node:NODE1"],
    **{
        f"{kind}.{verb}": [f"{action} {kind}:orders"]
        for kind in ("queue", "topic")
        for verb, action in [
            ("list", "view"), ("show", "view"), ("create", "configure"), ("alter", "configure"),
            ("delete", "configure"), ("pause", "configure"), ("resume", "configure"),
            ("purge", "purge"),
        ]
    },
    "topic.tree": ["view topic:x"],
    "topic.clear_retained": ["purge topic:orders"],
    "subscription.list": ["view subscription:x"],
    "subscription.create": ["configure topic:news", "subscribe topic:news", "produce queue:orders"],
    "subscription.delete": ["configure subscription:orders"],
    "session.list": ["view client:x"],
    "client.list": ["view client:x"],
    "client.bans": ["view client:x"],
    **{f"client.{verb}": ["operate client:*"] for verb in ("ban", "unban")},
    "security.locked": ["view client:x"],
    "security.unlock": ["operate client:*"],
    **{f"security.{verb}": ["secure user:*"] for verb in ("show", "reload", "diff")},
    "user.list": ["secure user:*"],
    **{
        f"user.{verb}": ["secure user:orders"] for verb in ("show", "enable", "disable", "logout")
    },
    "role.list": ["secure role:*"],
    "role.show": ["secure role:orders"],
    **{f"permission.{verb}": ["secure role:desk"] for verb in ("grant", "revoke")},
    "permission.matrix": ["secure user:*"],
    **{f"audit.{verb}": ["audit node:NODE1"] for verb in ("head", "verify")},
    **{f"{kind}.list": ["view client:x"] for kind in ("consumer", "producer")},
    "metrics.show": ["view node:NODE1"],
    "alert.list": ["view node:NODE1"],
    "log.level": ["operate node:NODE1"],
    "log.payloads": ["operate node:NODE1"],
    "replica.add": ["operate node:NODE1"],
    "replica.remove": ["operate node:NODE1"],
    "replica.switchover": ["operate node:NODE1"],
    "client.show": ["view client:1"],
    "client.close": ["operate client:1"],
    **{f"message.{v}": ["browse queue:orders"] for v in ("list", "view", "forwarded")},
    **{f"message.{v}": ["purge queue:orders"] for v in ("delete", "expire", "alter")},
    **{f"message.{v}": ["purge queue:orders"] for v in ("hold", "release")},
    "message.move": ["manage queue:orders", "produce queue:later"],
    "message.copy": ["manage queue:orders", "produce queue:later"],
    "dlq.queues": ["view queue:x"],
    "dlq.return": ["manage queue:orders", "produce queue:*"],
    "schedule.list": ["view queue:x"],
    "schedule.show": ["view queue:x"],
    "schedule.cancel": ["schedule queue:x"],
    "transaction.list": ["view transaction:*"],
    "transaction.show": ["view transaction:*"],
    **{f"transaction.{v}": ["resolve transaction:*"] for v in ("commit", "rollback", "forget")},
    "service.list": ["view service:x"],
    "server.list": ["view node:NODE1"],
    "server.restart": ["operate node:NODE1"],
    "server.scale": ["operate node:NODE1"],
    "resource.list": ["transact node:NODE1"],
    "resource.report": ["recover transaction:*"],
    "log.seal": ["operate node:NODE1"],
    "log.erase": ["operate node:NODE1"],
    "erasure.begin": ["operate node:NODE1"],
    "erasure.end": ["operate node:NODE1"],
    "store.finalize": ["operate node:NODE1"],
    **{f"backup.{verb}": ["operate node:NODE1"] for verb in ("create", "verify")},
    "cluster.status": ["view node:NODE1"],
    "cluster.drain": ["operate node:NODE1"],
}  # fmt: skip
"""What each command of HEADS needs, written down anew from the specification; nothing else is
needed, and a command that is not here needs a login only."""
FREE = {
    "HELLO", "AUTH", "HEARTBEAT", "GOODBYE", "SEND", "SETTLE", "TALK", "RESULT", "OpenSession",
    "CloseSession", "CloseProducer", "RequestRetained", "Poll", "CloseConsumer", "Commit",
    "Rollback", "Recover", "Unadvertise", "ReadFile", "destination.lookup.show", "AskOutcome",
    "login.show",
}  # fmt: skip
ARGUMENTS = {
    "subscription.create": {"name": "daily", "topic": "news", "queue": "orders"},
    "server.scale": {"name": "orders", "count": 1},
    "resource.report": {"report": "{}"},
    "schedule.list": {},
    "topic.tree": {},
    "cluster.drain": {},
    **{
        f"message.{verb}": {"place": "queue:orders"}
        for verb in ("list", "delete", "expire", "alter", "hold", "release", "forwarded")
    },
    "message.view": {"place": "queue:orders", "id": "1"},
    **{f"message.{verb}": {"place": "queue:orders", "to": "later"} for verb in ("move", "copy")},
    "dlq.return": {"place": "queue:orders"},
    "client.show": {"number": 1},
    "log.level": {"level": "INFO"},
    "log.payloads": {"is_on": True},
    **{f"client.{verb}": {"by": "user", "value": "u"} for verb in ("ban", "unban")},
    "client.close": {"number": 1},
    "security.unlock": {"address": "10.0.0.1"},
    **{
        f"permission.{verb}": {"name": "desk", "permission": "produce queue:*"}
        for verb in ("grant", "revoke")
    },
    "permission.matrix": {"resource": "queue:*"},
    "user.list": {},
    "role.list": {},
    "backup.verify": {"backup": "/backup/1"},
    "erasure.begin": {"reason": "asked for in letter 7"},
    "erasure.end": {"begun": 1},
}
EVERYTHING = [
    f"{action} {kind}:{'#' if kind == 'topic' else '*'}"
    for action, kinds in KINDS_OF.items()
    for kind in kinds
]
ROWS = {row.name: row for row in COMMANDS}


@pytest.fixture(scope="module")
def node():
    """With a user who has a producer open."""
    made = GatedNode(document(u=["produce queue:*"]), node="NODE1")
    made.login("p", "u", 1)
    made.ask("p", wire.OpenSession(1))
    made.ask("p", wire.OpenProducer(1, 1, "queue", "orders"))
    return made


def head_of(name):
    row = ROWS[name]
    if name in HEADS:
        return HEADS[name]
    if row.structure is None:
        return None
    if row.kind is Kind.REQUEST and name[0].islower():
        fields = row.structure.__struct_fields__
        given = {field: "orders" for field in fields if field in ("name", "xid")}
        return order(name, ARGUMENTS.get(name, given))
    required = row.structure.__struct_fields__[: _required(row.structure)]
    return row.structure(**{field: XID if "xid" in field else 1 for field in required})


def _required(structure):
    return len(structure.__struct_fields__) - len(structure.__struct_defaults__)


def permitted(node, name, permissions):
    """Whether a user with these permissions may."""
    roles = {"r": Role(tuple(map(read_permission, permissions)))}
    rights = Policy(roles).rights_of(["r"])
    node.registry.logins[1] = Login("u", "PASSWORD", ("r",), rights, Caller("x"))
    try:
        node.gate.permit(ROWS[name], head_of(name), 1)
    except hms.NotAuthorized:
        return False
    return True


def test_every_command_has_a_place_in_the_matrix():
    """A command that nobody has thought of is refused by the build."""
    assert sorted([*NEEDS, *FREE]) == sorted(ROWS)
    assert [row.name for row in COMMANDS if not isinstance(row.action, Action)] == []


def test_exactly_the_granted_cells_are_permitted(node, record_property):
    """Each command: with nothing, with what it needs, with all but one of what it needs, with each
    single other permission, and with everything."""
    cells, differences = 0, []
    for name in ROWS:
        needed = NEEDS.get(name, [])
        kinds = {tuple(one.partition(":")[0].split()) for one in needed}
        without = [
            (one, [p for p in EVERYTHING if tuple(p.partition(":")[0].split()) != one])
            for one in kinds
        ]
        if name in ("OpenFile", "CloseFile", "FILE"):  # a producer of either kind
            without = [
                (("produce",), [p for p in EVERYTHING if not p.startswith(("produce", "publish"))])
            ]
        expected = [
            ("nothing", [], not needed),
            ("needed", needed, True),
            ("all", EVERYTHING, True),
        ]
        expected += [(f"all but {one}", rest, False) for one, rest in without]
        if needed:
            others = [p for p in EVERYTHING if tuple(p.partition(":")[0].split()) not in kinds]
            files = name in ("OpenFile", "CloseFile", "FILE")
            expected += [
                (p, [p], files and p.startswith("publish")) for p in others if len(kinds) == 1
            ]
        for what, permissions, is_granted in expected:
            cells += 1
            if permitted(node, name, permissions) is not is_granted:
                differences.append((name, what))
    record_property(
        "figures",
        {"test": "matrix", "commands": len(ROWS), "cells": cells, "differences": len(differences)},
    )

    assert differences == []


@pytest.mark.parametrize(
    ("head", "needs"),
    [
        (wire.OpenProducer(9, 1, "topic", "news"), ["publish topic:news"]),
        (wire.OpenProducer(9, 1, "topic", "news", topic="a/b"), ["publish topic:news/a"]),
        (wire.OpenProducer(9, 1, "queue", "HMS.DLQ"), ["produce queue:HMS.*"]),
        (wire.OpenConsumer(9, 1, "topic", "news", 1), ["subscribe topic:news"]),
        (
            wire.OpenConsumer(9, 1, "topic", "news", 1, durable="d"),
            ["subscribe topic:news", "subscribe-durable topic:news"],
        ),
        (
            wire.OpenConsumer(9, 1, "topic", "news", 1, name="s", is_shared=True),
            ["subscribe topic:news", "consume subscription:s"],
        ),
        (
            wire.OpenConsumer(9, 1, "topic", "news", 1, queue="orders"),
            ["subscribe topic:news", "produce queue:orders"],
        ),
        (
            wire.OpenConsumer(9, 1, "queue", "orders", 1, listener="PAY"),
            ["consume queue:orders", "call service:PAY"],
        ),
        *[
            (order(f"message.{verb}", {"place": place, "to": to}), [needed, "produce queue:later"])
            for verb in ("move", "copy")
            for place, needed in (
                ("queue:orders", "manage queue:orders"),
                ("subscription:daily@news/a", "manage subscription:daily"),
                ("retained:news/#", "manage topic:news"),
            )
            for to in ("later", "queue:later")
        ],
        (
            order("dlq.return", {"place": "queue:HMS.DLQ", "to": "queue:later"}),
            ["manage queue:HMS.*", "produce queue:later"],
        ),
        *[
            (
                order("message.alter", {"place": "queue:orders", "is_id_taken": True, "to": to}),
                ["purge queue:orders", *needs],
            )
            for to, needs in (
                ("queue:later", ["produce queue:later"]),
                ("subscription:daily", ["configure subscription:daily"]),
                ("retained:news/#", ["publish topic:news", "retain topic:news"]),
            )
        ],
        # what a message says is not told, yes by yes and no by no, to who may not read it
        (order("schedule.list", {"selector": "a = 1"}), ["view queue:orders", "browse queue:*"]),
    ],
)
def test_a_command_that_needs_several_permissions_needs_each(node, monkeypatch, head, needs):
    """What is delivered into a queue, shared or durable has more than one door."""
    name = head.command.name if isinstance(head, Order) else type(head).__name__
    monkeypatch.setitem(HEADS, name, head)

    assert permitted(node, name, needs)
    for missing in needs:
        rest = [one for one in needs if one != missing]
        assert not permitted(node, name, rest)
        assert not permitted(node, name, [*rest, "produce queue:other", "view topic:#"])


@pytest.mark.parametrize("verb", ["message.move", "message.copy", "dlq.return"])
def test_a_target_is_judged_by_its_name_however_it_is_written(node, monkeypatch, verb):
    """It was judged as a queue called queue:secret, so that queue:q* opened each queue."""
    asked = {"place": "queue:orders", "to": "queue:secret"}
    monkeypatch.setitem(HEADS, verb, order(verb, asked))
    source = "manage queue:orders"

    assert not permitted(node, verb, [source, "produce queue:q*"])
    assert permitted(node, verb, [source, "produce queue:secret"])


def test_the_end_of_a_branch_of_others_is_for_recovery(node, monkeypatch):
    """P12: knowing an xid grants nothing."""
    other = node.login("other", "u", 2).connection
    rights = Policy().rights_of(["admin"])
    node.registry.logins[other] = Login("u", "PASSWORD", ("admin",), rights, Caller("x"))
    node.ask("other", wire.OpenSession(1, is_xa=True))
    node.ask("other", xa.XaStart(1, OTHER_XID))

    for name in ("XaPrepare", "XaCommit", "XaRollback", "XaForget"):
        monkeypatch.setitem(HEADS, name, ROWS[name].structure(OTHER_XID))
        assert not permitted(node, name, ["transact node:*"])
        assert permitted(node, name, ["transact node:*", "recover transaction:*"])


def test_a_file_of_others_is_not_read_by_its_name(node, monkeypatch):
    """Names of files are no secrets."""
    monkeypatch.setitem(HEADS, "ReadFile", wire.ReadFile("00000000deadbeef-00000001-x", 0, 1))

    assert not permitted(node, "ReadFile", EVERYTHING)


def test_absent_and_present_resources_are_refused_alike(node, monkeypatch):
    """A refusal tells nobody what there is."""
    told = set()
    for destination in ("orders", "absent"):
        for kind in ("queue", "topic"):
            monkeypatch.setitem(HEADS, "OpenProducer", wire.OpenProducer(9, 1, kind, destination))
            told.add(permitted(node, "OpenProducer", ["produce queue:x"]))

    assert told == {False}


@pytest.mark.parametrize("name", ["orders", "news"])
def test_a_lookup_tells_only_who_may_use_it_that_a_destination_is_there(node, name):
    """What is forbidden is answered as what is absent, not only refused alike."""
    kind = "queue" if name == "orders" else "topic"
    uses = {"queue": ["browse", "consume", "produce", "view"]}
    uses["topic"] = ["publish", "subscribe", "view"]

    def looked_up(permission, asked=name):
        roles = {"r": Role((read_permission(permission),))}
        rights = Policy(roles).rights_of(["r"])
        node.registry.logins[1] = Login("u", "PASSWORD", ("r",), rights, Caller("x"))
        return node.ask("p", wire.Administer("destination.lookup.show", {"name": asked}))

    for use in uses[kind]:
        assert looked_up(f"{use} {kind}:{name}") == {"name": name, "kind": kind}
        refused, absent = looked_up(f"{use} {kind}:other"), looked_up(f"{use} {kind}:other", "lost")
        assert type(refused) is type(absent) is hms.ExportNameNotFound
        assert (refused.fields, absent.fields) == ({"export_name": name}, {"export_name": "lost"})
    assert isinstance(looked_up(f"purge {kind}:{name}"), hms.ExportNameNotFound)


@pytest.mark.parametrize(
    ("granted", "wanted", "is_granted"),
    [
        ("prices", {"pattern": "prices/#"}, True),
        ("prices", {"pattern": "prices/+/oil"}, True),
        ("prices", {"pattern": "prices/o*", "scheme": "CHARACTER"}, True),
        ("+/oil", {"pattern": "+/oil/#"}, True),
        ("#", {"pattern": "#"}, True),
        ("prices/+", {"pattern": "prices/+/#"}, True),
        ("prices/+", {"pattern": "+/+"}, False),
        ("prices/oil", {"pattern": "prices/#"}, False),
        ("prices/oil", {"pattern": "prices/+"}, False),
        ("prices", {"pattern": "p*", "scheme": "CHARACTER"}, False),
        ("prices", {"pattern": "prices*", "scheme": "CHARACTER"}, False),
        ("+/oil", {"pattern": "#/oil"}, False),
        ("+/oil", {"pattern": "*/oil", "scheme": "CHARACTER"}, False),
    ],
)
def test_a_pattern_is_cleared_by_who_may_clear_all_that_it_can_match(
    node, monkeypatch, granted, wanted, is_granted
):
    """It was judged by its text in front of /#, as if that were a topic: #/oil by +/oil."""
    monkeypatch.setitem(HEADS, "topic.clear_retained", order("topic.clear_retained", wanted))

    assert permitted(node, "topic.clear_retained", [f"purge topic:{granted}"]) is is_granted


@pytest.mark.parametrize(
    ("has", "gives", "may"),
    [
        (["secure role:desk"], "secure role:*", False),
        (["secure role:desk"], "produce queue:orders", False),
        (["secure role:desk", "produce queue:*"], "produce queue:orders", True),
        (["secure role:*"], "secure role:*", True),
    ],
)
def test_who_may_change_some_roles_gives_no_more_than_it_has(node, has, gives, may):
    """Else it would give itself everything."""
    asked = ChangeGrant("desk", gives)
    rights = Policy({"r": Role(tuple(map(read_permission, has)))}).rights_of(["r"])
    node.registry.logins[1] = Login("u", "PASSWORD", ("r",), rights, Caller("x"))
    if may:
        check_grant(node.registry.logins[1], asked.permission)
        return
    with pytest.raises(hms.NotAuthorized):
        node.gate.policy(1, "permission.grant", asked)
