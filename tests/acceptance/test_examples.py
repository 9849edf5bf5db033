"""The examples run as they stand, and are as short as they are said to be."""

import os
import subprocess
import sys
import tomllib
from functools import partial

import pytest

import hms
from hms.testing import node
from tests.acceptance.bank_rig import ACCOUNTS, BALANCE, bank
from tests.support.waiting import wait_until

WAIT_S = 120
BEGINS, ENDS = (f"{state} unconsumed_queue queue:others" for state in ("begins", "ends"))

SAID = [
    "ordered 2 coffee for 500 cents",
    "ordered 3 tea for 600 cents",
    "shipped 2 coffee",
    "shipped 3 tea",
]


@pytest.mark.parametrize("name", ["order_desk", "order_desk_tmax"])
def test_the_order_desk_takes_orders_and_ships_them(project_root, name):
    """Client, service, queue, listener and event in one small file."""
    example = project_root / "examples" / f"{name}.py"
    conf = example.with_suffix(".conf")
    with node(config=conf, python_path=[example.parent]) as started:
        environment = os.environ | {"HMS_ADDRESS": started.address}
        done = subprocess.run(
            [sys.executable, example],
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
            env=environment,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == SAID
    assert len(example.read_text().splitlines()) < 80


@pytest.mark.parametrize("name", ["order_desk", "order_desk_tmax"])
def test_the_page_shows_the_example_that_is_run(project_root, name):
    """What stands in the documentation must be what works."""
    page = (project_root / "docs" / "how-to" / "order-desk.md").read_text()

    assert (project_root / "examples" / f"{name}.py").read_text() in page
    assert (project_root / "examples" / "order_desk.conf").read_text() in page


def test_the_pager_is_told_when_an_alert_begins_and_when_it_ends(project_root):
    """Of what has begun before it came, too; what ends is told once."""
    example = project_root / "examples" / "alert_pager.py"
    config = {"alerts": {"unconsumed_queue_s": 1}, "hms": {"queue": {"orders": {}, "others": {}}}}
    with node(config=config) as started, hms.connect(started.address) as connection:
        session = connection.session()
        session.producer("orders").send("x")
        show = partial(connection.administer, "alert.list", {})
        wait_until(lambda: "unconsumed_queue" in {a["alert"] for a in show()["active"]}, WAIT_S)
        with subprocess.Popen(
            [sys.executable, example, "unconsumed_queue"],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"HMS_ADDRESS": started.address},
        ) as pager:
            try:
                begun = pager.stdout.readline()
                assert begun.startswith("active unconsumed_queue queue:orders the oldest message ")
                assert pager.stdout.readline() == "waiting\n"
                session.producer("others").send("y")
                assert " ".join(pager.stdout.readline().split()[:3]) == BEGINS
                assert session.consumer("others").receive(WAIT_S).body == "y"
                assert " ".join(pager.stdout.readline().split()[:3]) == ENDS
            finally:
                pager.kill()


def test_the_page_shows_the_pager_that_is_run(project_root):
    """What an operator copies is what works."""
    page = (project_root / "docs" / "how-to" / "watch-a-node.md").read_text()
    assert (project_root / "examples" / "alert_pager.py").read_text() in page


def test_the_bank_moves_money_between_two_databases(project_root):
    """The example of transactions, as it stands, over databases of the test's own."""
    example = project_root / "examples" / "bank.py"
    with bank() as both:
        config = tomllib.loads(example.with_suffix(".conf").read_text())
        config["rm"]["west"]["open"] = both.postgres.url
        config["rm"]["east"]["open"] = both.mariadb.url
        with node(config=config, python_path=[example.parent]) as started:
            done = subprocess.run(
                [sys.executable, example],
                capture_output=True,
                text=True,
                timeout=250,
                check=False,
                env=os.environ | {"HMS_ADDRESS": started.address},
            )
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == sorted(
            ["moved at-once", *(f"moved order-{number}" for number in range(10))]
        )
        assert both.entries()[0] == both.entries()[1]
        assert both.total() == 2 * ACCOUNTS * BALANCE
