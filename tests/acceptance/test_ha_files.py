"""The body of a file message goes to other copies by blocks: a copy that stands still in the midst
of it takes no memory of the one that leads, and has all of it when it goes on.
"""

from pathlib import Path

import pytest

import hms
from hms.store.files import is_whole_file
from tests.acceptance.copies_rig import copies_in
from tests.acceptance.ha_rig import QUEUES, WAIT_S, connect
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

MIB = 1 << 20
FILE_MIB = 192
GROWS_MAX = 64 * MIB
"""8 MiB are on their way to each copy, and blocks of the sender are on theirs to the node."""
PATIENT_S = 30


def _peak(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def test_a_copy_that_stands_still_in_a_file_takes_no_memory_of_the_primary(tmp_path):
    """Also it gets all of the file, and what was sent behind it, when it goes on."""
    source = tmp_path / "source"
    block = bytes(range(256)) * (MIB // 256)
    with source.open("wb") as file:
        for number in range(FILE_MIB):
            file.write(number.to_bytes(8, "big") + block[8:])
    with copies_in(tmp_path, lease_s=PATIENT_S, hms=QUEUES) as copies:
        for one in copies.nodes.values():
            one.boot()
        copies.wait_for_all()
        leader = copies.nodes[copies.leader]
        still = next(one for name, one in copies.nodes.items() if name != copies.leader)
        with connect(*copies.nodes.values()) as connection, connection.session() as session:
            producer = session.producer("orders")
            producer.send(b"before")
            pid = leader.pid
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins at what it is now
            before = _peak(pid)
            still.pause()
            try:
                producer.send(hms.Message.file(source))  # two of three have it
                producer.send(b"behind")
                assert _peak(pid) - before < GROWS_MAX
            finally:
                still.resume()
        copies.wait_for_all()
        wait_until(lambda: _files(still), WAIT_S)
        (file,) = _files(still)
        assert file.read_bytes() == source.read_bytes()
        assert copies.leader == leader.folder.name


def _files(one):
    folder = Path(one.store) / "files"
    return [path for path in folder.iterdir() if is_whole_file(path.name)]
