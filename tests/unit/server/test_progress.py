"""Progress: what is busy and does not count hangs; what is idle does not."""

from hms.server.progress import Progress


def test_only_what_is_busy_and_does_not_come_on_grows_old():
    """A worker without work stands still for hours, and is well."""
    now, counts = [0.0], {"worker": 2, "log": 5, "main loop": 8}
    parts = {name: (lambda name=name: counts[name]) for name in counts}
    progress = Progress(parts, frozenset(("main loop",)), lambda: now[0])
    now[0] = 40.0
    assert progress.look() == {"worker": 0.0, "log": 40.0, "main loop": 40.0}
    counts["log"], counts["main loop"] = 7, 9
    assert progress.look() == {"worker": 0.0, "log": 0.0, "main loop": 0.0}
    now[0] = 45.0
    counts["log"] = 8
    assert progress.look() == {"worker": 0.0, "log": 0.0, "main loop": 5.0}
