"""Another version takes a store over, gives it back, and keeps it when the operator says so."""

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from global_queue_rig import CONFIG, Load, await_up

import hms
from hms.boot.cli import main
from hms.errors.catalogue import BootFailed
from hms.testing import node
from tests.support.waiting import wait_until

OLDER = (sys.executable, str(Path(__file__).with_name("older_node.py")))
ORDERS = hms.Queue("orders")
ROUNDS = int(os.environ.get("HMS_UPGRADES", "1"))


def switch(one, version=()):
    """End a node, without a word, and boot it as another version."""
    one.kill()
    one._prefix = list(version)
    one.boot(warm=True)


def send(one, *bodies):
    """Confirmed."""
    with hms.connect(one.address) as conn, conn.session() as session:
        session.producer(ORDERS).send_many([hms.Message(body) for body in bodies])


def take(one):
    """One message, for good."""
    with hms.connect(one.address) as conn, conn.session() as session:
        return session.consumer(ORDERS, prefetch=1).receive(timeout_s=60).body


def formats(one):
    """What the node says that it writes, and could."""
    with hms.connect(one.address) as conn:
        status = conn.administer("status")
        return status["store_format"], status["newest_store_format"]


def store_command(*words):
    """Exit code and answer."""
    done = CliRunner().invoke(main, ["store", *words, "--json"])
    return done.exit_code, json.loads(done.output)


def upgrade_check(first):
    """Exit code and rows."""
    words = ["cluster", "upgrade-check", "--config", str(first.config_file), "--json"]
    done = CliRunner().invoke(main, words)
    return done.exit_code, json.loads(done.output)


def test_the_release_before_has_its_store_back_until_an_operator_finalizes(tmp_path):
    """An upgrade that goes wrong at night is taken back by installing what was there."""
    store = tmp_path / "store"
    config = {"hms": {"queue": {"orders": {}}}}
    with node(store=store, config=config, command_prefix=OLDER) as one:
        send(one, b"1", b"2", b"3")
        assert formats(one) == (2, 2)

        switch(one)
        assert formats(one) == (2, 3)
        assert take(one) == b"1"
        send(one, b"4")
        code, found = store_command("upgrade", str(store), "--check")
        assert (code, found["format"], found["newest_format"], found["faults"]) == (0, 2, 3, [])

        switch(one, OLDER)
        assert take(one) == b"2"
        send(one, b"5")

        switch(one)
        at = ["--config", str(one.config_file)]
        assert store_command("finalize", "--yes", *at) == (0, {"format_before": 2, "format": 3})
        assert store_command("finalize", "--yes", *at) == (0, {"format_before": 3, "format": 3})
        assert formats(one) == (3, 3)
        with pytest.raises(BootFailed, match=r"store format 3; this version reads up to 2"):
            switch(one, OLDER)

        switch(one)
        assert [take(one) for _ in range(3)] == [b"3", b"4", b"5"]
        code, found = store_command("version", str(store))
        assert code == 0
        assert found["segments"].keys() == {"2", "3"}


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_nodes_are_upgraded_one_after_the_other_under_load(tmp_path):
    """No moment of an upgrade may lose or double a message, nor its way back.

    Three nodes, and each round there and back: HMS_UPGRADES=10.
    """
    load = Load()
    with node(
        store=tmp_path / "store", config=CONFIG, command_prefix=OLDER, nodes=3 if ROUNDS > 1 else 2
    ) as first:
        await_up(first)
        load.produce(first.nodes[0].address, "a")
        load.produce(first.nodes[1].address, "b")
        load.consume(first.nodes[0].address)
        load.consume(first.nodes[-1].address)
        for n in range(ROUNDS):
            for version in ((), OLDER)[: 2 if n < ROUNDS - 1 else 1]:
                for one in first.nodes:
                    load.await_flow(50)
                    one.stop()
                    switch(one, version)
                    if one is first and not version:
                        check = upgrade_check(first)
                        assert check[1][1]["in_the_way"].startswith("upgrade it before")
        await_up(first)
        wait_until(lambda: upgrade_check(first)[0] == 0)  # a link may be away for a moment
        assert [formats(one) for one in first.nodes] == [(2, 3)] * len(first.nodes)
        for one in first.nodes:
            code, done = store_command("finalize", "--yes", "--connect", one.address)
            assert (code, done) == (0, {"format_before": 2, "format": 3})
        load.await_flow(50)
        load.finish(first)
        assert [formats(one) for one in first.nodes] == [(3, 3)] * len(first.nodes)
    assert load.verdict().faults == (0, 0, 0, 0)
