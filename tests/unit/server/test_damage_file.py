"""What is known of a copy's damage, while two threads change that."""

from concurrent.futures import ThreadPoolExecutor

from hms.server.replicas.damage import Damage, forget_damages, note_damages, read_damages
from hms.store.journal.disk import RealDisk

TIMES = 200


class Unsynced(RealDisk):
    """Faster, for a test without a crash."""

    def fsync(self, fd):
        pass

    def fsync_dir(self, path):
        pass


def test_what_scrubbing_finds_and_what_is_repaired_meanwhile_do_not_undo_each_other(tmp_path):
    """The file that one had just written was removed by the other one, and the copy's process ended
    with an error of its disk; or what was repaired was there again."""
    disk = Unsynced()

    def finds():
        for number in range(TIMES):
            note_damages(disk, tmp_path, [Damage(number, 64, "bad")])

    def repairs():
        for number in range(TIMES, 2 * TIMES):
            note_damages(disk, tmp_path, [Damage(number, 64, "bad")])
            forget_damages(disk, tmp_path, [number])

    with ThreadPoolExecutor() as pool:
        for one in [pool.submit(finds), pool.submit(repairs)]:
            one.result()
    assert sorted(read_damages(disk, tmp_path)) == list(range(TIMES))
