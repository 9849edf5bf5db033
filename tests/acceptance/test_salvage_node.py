"""A damaged store, from the refused boot over verify and salvage to a node that works again."""

import subprocess
import sys
from pathlib import Path

import pytest

import hms
from hms.testing import node

CONFIG = {
    "node": {
        "node1": {
            "max_message_bytes": "64 KiB",
            "max_transaction_bytes": "64 KiB",
            "segment_bytes": "1 MiB",
        }
    },
    "hms": {"queue": {"orders": {}}},
}
COUNT = 150
MARK = b"MESSAGE %06d "


def hms_store(*words):
    """The exit code and output of the command."""
    code = "from boot.cli import main; main(prog_name='hms')"
    command = [sys.executable, "-c", code, "store", *map(str, words)]
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run(
        command, check=False, cwd=root, capture_output=True, text=True, timeout=250
    )
    return done.returncode, done.stdout + done.stderr


def damage(store, number):
    """Change a byte in the middle of a message on the disk."""
    for file in sorted(store.glob("0*.log")):
        data = bytearray(file.read_bytes())
        at = data.find(MARK % number)
        if at >= 0:
            data[at + 2000] ^= 0x40
            file.write_bytes(data)
            return file
    raise AssertionError("the message is not in the log")


def bodies(address):
    """What waits, oldest first."""
    with (
        hms.connect(address) as conn,
        conn.session() as session,
        session.browser(hms.Queue("orders"), oldest_first=True) as browser,
    ):
        return [message.body for message in browser]


def test_after_a_damage_all_other_messages_are_saved_and_the_node_works_on(tmp_path):
    """The whole way that an operator goes, with nothing but the commands that the node names."""
    store, new = tmp_path / "store", tmp_path / "saved"
    sent = [MARK % n + bytes(20_000) for n in range(COUNT)]
    with node(store=store, config=CONFIG) as running:
        with hms.connect(running.address) as conn, conn.session() as session:
            out = session.producer(hms.Queue("orders"))
            ids = [out.send(body).message_id for body in sent]
        running.stop()
        assert hms_store("verify", store)[0] == 0
        file = damage(store, 20)
        with pytest.raises(hms.BootFailed, match="HMS-5002"):
            running.boot(warm=True)
    code, said = hms_store("verify", store)
    assert code == 4
    assert str(file) in said
    code, said = hms_store("salvage", store, "--to", new, "--yes")
    assert code == 0, said
    assert f"ids between {ids[19]} and {ids[21]}" in said
    assert hms_store("verify", new)[0] == 0
    with node(store=new, config=CONFIG, warm=True) as running:
        assert bodies(running.address) == [body for n, body in enumerate(sent) if n != 20]
        with hms.connect(running.address) as conn, conn.session() as session:
            session.producer(hms.Queue("orders")).send(b"goes on")
        assert bodies(running.address)[-1] == b"goes on"


def test_verify_of_a_running_node_disturbs_it_in_nothing(tmp_path):
    """An operator may look at any time."""
    with node(store=tmp_path / "store", config=CONFIG) as running:
        with hms.connect(running.address) as conn, conn.session() as session:
            out = session.producer(hms.Queue("orders"))
            for n in range(20):
                out.send(MARK % n)
                if n % 5 == 0:
                    code, said = hms_store("verify", running.store)
                    assert code == 0, said
                    assert f"Process {running.pid} has it in use" in said
        assert len(bodies(running.address)) == 20
