"""The page of the night shift: each of its commands is run, in order, against a real node."""

import json
import re
import shlex
from dataclasses import asdict

from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.supervise import identify
from tests.support.project import ROOT

CONFIG = {"hms": {"queue": {"orders": {"redelivery_limit": 1}}}}
PAGE = ROOT / "docs" / "how-to" / "night-shift.md"
FENCE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
WAIT_S = 60
DOCTOR = {0, 1, 3}
"""What it finds of the machine that runs the tests is another matter."""


def _commands():
    text = PAGE.read_text()
    return [
        shlex.split(line[2:])
        for block in FENCE.findall(text)
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def test_each_command_of_the_page_does_what_it_says(node, tmp_path, monkeypatch):
    """The first command that fails at three in the morning is the last one that is believed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
    process = node.folder / "run" / f"{node.name}.process"  # as hms boot leaves it
    process.write_text(json.dumps(asdict(identify(node.pid))))
    with hms.connect(node.address) as connection:
        session = connection.session(ack=hms.AckMode.CLIENT)
        producer = session.producer("orders")
        letters = [producer.send(b"poison").message_id for _ in range(2)]
        consumer = session.consumer("orders", prefetch=1)
        for _ in letters:
            consumer.receive(WAIT_S)
            session.recover()
        consumer.close()
        for _ in range(3):
            producer.send(b"coffee")
        with hms.connect(node.address, client_id="bar", reconnect=False) as stuck:
            holder = stuck.session(ack=hms.AckMode.CLIENT)
            holder.consumer("orders").receive(WAIT_S)
            (number,) = [
                one["id"]
                for one in connection.administer("client.list", {})
                if one["client_id"] == "bar"
            ]
            names = {"12": str(number), "010000000001": letters[0]}
            commands = _commands()
            assert len(commands) > 25
            for words in commands:
                given = [names.get(word, word) for word in words[1:]]
                done = CliRunner().invoke(main, given)
                expected = DOCTOR if given[0] == "doctor" else {0}
                assert done.exit_code in expected, (words, done.output, done.exception)
