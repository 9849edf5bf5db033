"""A declared listener whose servers are killed: every message is handled, none is lost, doubles are
flagged, and poison ends in the dead letter queue after exactly its limit.

HMS_MESSAGES=100000 pytest tests/acceptance/test_listener_under_kills.py --timeout 3600
"""

import collections
from pathlib import Path

import pytest
from kills_rig import Killer, sized
from services_rig import until

import hms
from hms.testing import node

MESSAGES = sized("HMS_MESSAGES", 2_000)
POISON_EVERY = 200
LIMIT = 4
CONFIG = f"""
[server.load]
module = "load_services"
MIN = 2
MAX = 2
restart_delay_s = 0
restart_delay_max_s = 0
MAXRSTART = -1
[hms.queue.work]
listener = "KEEP"
listener_sessions = 2
redelivery_limit = {LIMIT}
"""


def bodies():
    """Every so many messages one that cannot be handled."""
    for number in range(MESSAGES):
        yield b"%s%d" % (b"poison" if number % POISON_EVERY == 0 else b"good", number)


@pytest.mark.timeout(3600)
def test_no_message_is_lost_while_its_listeners_are_killed(tmp_path, monkeypatch, capsys):
    """The promise of an asynchronous session, with crashes all the time."""
    monkeypatch.setenv("HMS_BOOK", str(tmp_path))
    with (
        node(config=CONFIG, python_path=[Path(__file__).parent]) as started,
        hms.connect(started.address) as conn,
        conn.session() as session,
        Killer(started.address, 0.2) as killer,
    ):
        session.producer(hms.Queue("work")).send_many(hms.Message(body) for body in bodies())
        until_empty(conn)
        dead = letters(session)

    with capsys.disabled():
        print(f"\n{killer.kills} kills")
        judge({body.decode() for body in bodies()}, read_books(tmp_path), dead)


def judge(sent, handled, dead):
    """Every message is accounted for."""
    poison = {body for body in sent if body.startswith("poison")}
    lost, victims = sent - set(handled) - set(dead), set(dead) - poison
    doubles = [body for body, seen in handled.items() if len(seen) > 1 and body not in poison]
    print(
        f"{len(sent)} messages: {len(handled)} handled, {len(lost)} lost, {len(doubles)} handled "
        f"twice and flagged, {len(dead)} dead letters, {len(victims)} of them victims of kills"
    )
    assert lost == victims == set()
    assert poison == set(dead)
    assert set(dead.values()) == {LIMIT}
    for body, seen in handled.items():
        assert sum(not is_flagged for is_flagged in seen) <= 1, body


def read_books(folder):
    """What servers handled: for each body whether it was flagged, each time."""
    handled = collections.defaultdict(list)
    for book in folder.glob("*.book"):
        for line in book.read_text().splitlines():
            body, _, redelivered = line.split()
            handled[body].append(redelivered == "1")
    return handled


def until_empty(conn):
    """Wait until nothing waits; as long as something moves."""

    def left():
        (found,) = [q for q in conn.administer("queue.list") if q["name"] == "work"]
        return found["waiting"] + found["in_flight"]

    seen = left()
    while seen:
        before = seen
        until(lambda before=before: left() < before)
        seen = left()


def letters(session):
    """The dead letters: body, and after how many attempts."""
    browser = session.browser(hms.Queue("HMS.DLQ"))
    return {m.body.decode(): m.property("$DeadCount") for m in browser}
