"""Commands on messages over a node that checks logins: what is refused changes nothing, and a rules
table may put in the name of a letter's sender."""

from collections import Counter

import pytest

import hms
from hms.client.browse_pages import place_pages
from hms.client.letter_rules.rules_handler import RulesHandler
from hms.client.letter_rules.rules_table import read_table
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.waiting import wait_until

WAIT_S = 60
NOT_AUTHORIZED = "HMS-1030"
SOURCE = tuple(
    f"{action} queue:{name}"
    for action in ("browse", "purge", "manage")
    for name in ("orders", "HMS.*")
)
TARGET = ("produce queue:*", "configure subscription:*")
USERS = {
    "sender": ["produce queue:orders", "produce queue:manual", "consume queue:orders"],
    "other": ["produce queue:orders", "consume queue:orders"],
    "both": [*SOURCE, *TARGET],
    "no_source": [
        *(f"{action} queue:late" for action in ("browse", "purge", "manage")),
        "view queue:*",
        *TARGET,
    ],
    "no_target": [*SOURCE, "produce queue:late", "produce queue:queue*", "view queue:*"],
    "browser": ["browse queue:orders", "produce queue:late"],
    "handler": [*SOURCE, "browse queue:HMS.*", "impersonate user:sender", "impersonate user:oth*"],
    "bystander": [*SOURCE, "browse queue:HMS.*"],
}
CONFIG = {
    "hms": {
        "queue": {"orders": {}, "late": {}, "secret": {}, "manual": {}, "open": {}},
        "topic": {"news": {}},
    }
}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    with secured_node(folder, document(**USERS), CONFIG, own={"sender_identity": True}) as found:
        yield found


def connected(node, user):
    return hms.connect(node.address, user=user, password=PASSWORD)


def books(node):
    """What waits where."""
    with hms.connect(node.address) as connection:
        rows = connection.administer("queue.list", {"fields": "name waiting delayed"})
        return {row["name"]: row["waiting"] for row in rows if row["waiting"]}


@pytest.fixture(autouse=True)
def filled(node):
    with hms.connect(node.address) as connection:
        for queue in ("orders", "late", "secret", "manual", "open", "HMS.DLQ"):
            connection.administer("queue.purge", {"name": queue})
    with connected(node, "sender") as connection, connection.session() as session:
        session.producer("orders").send_many(b"%d" % n for n in range(4))


COMMANDS = {
    "list": lambda place: place.list(),
    "count": lambda place: place.count(),
    "view": lambda place: place.connection.admin.view(place.place, "1"),
    "move": lambda place: place.move(to="secret"),
    "move by kind": lambda place: place.move(to="queue:secret"),
    "copy": lambda place: place.copy(to="secret"),
    "copy by kind": lambda place: place.copy(to="queue:secret"),
    "delete": lambda place: place.delete(),
    "expire": lambda place: place.expire(),
    "alter": lambda place: place.alter(priority=9),
    "pause": lambda place: place.paused().move(to="secret"),
    "atomic": lambda place: place.atomic().move(to="secret"),
    "dry run": lambda place: place.dry_run().move(to="secret"),
    "return to": lambda place: place.send_back("secret"),
    "return": lambda place: place.send_back(),
    "take ids": lambda place: place.take_ids(to="queue:secret"),
    "forwarded": lambda place: place.forwarded(),
}
WITH_TARGET = {
    *("move", "move by kind", "copy", "copy by kind", "pause", "atomic", "dry run"),
    *("return to", "return", "take ids"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_without_permission_at_its_source_does_nothing(node, name):
    """Whoever may do all of it elsewhere."""
    before = books(node)
    with connected(node, "no_source") as connection, pytest.raises(hms.NotAuthorized):
        COMMANDS[name](connection.admin.messages("queue:orders").everything())
    assert books(node) == before == {"orders": 4}


@pytest.mark.parametrize("name", sorted(WITH_TARGET))
def test_a_command_without_permission_at_its_target_does_nothing(node, name):
    """Nor does one whose target is named with its kind, nor a dry run: it would tell."""
    before = books(node)
    with connected(node, "no_target") as connection, pytest.raises(hms.NotAuthorized):
        COMMANDS[name](connection.admin.messages("queue:orders").everything())
    assert books(node) == before == {"orders": 4}


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"view", "forwarded"}))
def test_with_both_it_is_done(node, name):
    """So the refusals above are not for another reason."""
    with connected(node, "both") as connection:
        COMMANDS[name](connection.admin.messages("queue:orders").everything())


def test_who_may_browse_neither_copies_nor_takes_away(node):
    """To browse is neither to manage nor to purge."""
    with connected(node, "browser") as connection:
        place = connection.admin.messages("queue:orders").everything()
        moving = (lambda: place.move(to="late"), lambda: place.copy(to="late"))
        for change in (place.delete, place.expire, *moving):
            with pytest.raises(hms.NotAuthorized):
                change()
    assert books(node) == {"orders": 4}


def test_who_may_not_browse_exports_nothing(node):
    """An export reads pages of a place."""
    for user, error in (("no_source", hms.NotAuthorized), ("browser", None)):
        with connected(node, user) as connection:
            steps = place_pages(connection.requests, "queue:orders", "", 0)
            if error is None:
                assert len(connection.run(steps)[0]) == 4
            else:
                with pytest.raises(error):
                    connection.run(steps)


def left(node):
    """How many wait in orders, or are in flight."""
    with hms.connect(node.address) as connection:
        shown = connection.administer("queue.show", {"name": "orders"})
        return shown["waiting"] + shown["in_flight"]


def letters(node, user, count):
    """Dead letters of a sender."""
    with connected(node, user) as connection, connection.session() as session:
        session.producer("orders").send_many(b"%d" % n for n in range(count))

        def refuse(_message):
            raise hms.Reject("no")

        session.consumer("orders").listen(refuse)
        wait_until(lambda: left(node) == 0, timeout_s=WAIT_S)


def handled(node, user, text):
    """How many actions succeeded, and how many failed with each number."""
    told = []
    with connected(node, user) as connection:
        clock = {"now_s": lambda: 0.0, "time_ms": lambda: 0, "sleep": lambda _: None}
        handler = RulesHandler(connection, read_table(text), told=told.append, **clock)
        handler.run()
    return Counter(one.fault.partition(" ")[0] for one in told)


def test_a_table_puts_in_the_name_of_the_sender(node):
    """PUTAUT(CTX): the handler itself may send nowhere; one sender may send to manual, the other
    may not. Another handler may act for nobody."""
    letters(node, "sender", 2)
    letters(node, "other", 3)
    text = "WAIT(NO)\nACTION(FWD) FWDQ('manual') PUTAUT({}) HEADER({})\n"
    for user, how in (("bystander", "CTX"), ("handler", "DEF")):
        for header in ("YES", "NO"):
            assert handled(node, user, text.format(how, header)) == Counter({NOT_AUTHORIZED: 9})

    assert handled(node, "handler", text.format("CTX", "YES")) == Counter(
        {"": 6, NOT_AUTHORIZED: 3}
    )
    assert books(node) == {"HMS.DLQ": 3, "manual": 6}
    assert handled(node, "handler", "WAIT(NO)\nACTION(RETRY) PUTAUT(CTX)\n") == Counter({"": 3})
    assert books(node) == {"orders": 3, "manual": 6}


def test_without_sender_identity_nobody_is_known(tmp_path):
    """A client of such a node may say in a head that it is somebody else."""
    with secured_node(tmp_path, document(**USERS), CONFIG) as node:
        letters(node, "sender", 2)
        text = "WAIT(NO)\nACTION(FWD) FWDQ('manual') PUTAUT(CTX)\n"
        assert handled(node, "handler", text) == Counter({NOT_AUTHORIZED: 2})
        assert books(node) == {"HMS.DLQ": 2}
