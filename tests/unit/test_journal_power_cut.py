"""The power goes at any moment: what was confirmed is there afterwards (P1)."""

import pytest
from journal_support import CutDisk, PowerCut, opened, recovered


def work_until_cut(path, disk, tag):
    """Boot and write; what was sent, how much of it was confirmed, and whether the power went."""
    sent, confirmed, journal = [], 0, None
    try:
        journal = opened(path, disk)
        list(journal.recover())
        journal.start(lambda: (11, 1, (b"dictionary",)))
        for batch in range(12):
            for _ in range(batch % 4 + 1):
                sent.append(b"%s%05d" % (tag, len(sent)) * (20 + len(sent) * 37 % 150))
                journal.append(3, 1, (sent[-1],))
            journal.commit()
            confirmed = len(sent)
            journal.maintain()
    except PowerCut:
        pass
    finally:
        if journal is not None:
            journal.close()
    return sent, confirmed


@pytest.mark.parametrize("seed", range(3))
def test_after_a_power_cut_at_any_call_all_that_was_confirmed_is_there(tmp_path, seed):
    """P1, for every place where the power can go, and again in the boot that follows."""
    cut_at, disk = 0, CutDisk(seed)
    is_over = False
    while not is_over:
        path, expected = tmp_path / str(cut_at), []
        for tag, at in ((b"a", cut_at), (b"b", cut_at % 7), (b"c", cut_at % 31)):
            disk.switch_on(at)
            sent, confirmed = work_until_cut(path, disk, tag)
            is_over = is_over or (tag == b"a" and not disk.is_cut)
            disk.fall(path)
            disk.switch_on(1000)
            found = recovered(path, disk)
            fresh = found[len(expected) :]
            assert found[: len(expected)] == expected, f"cut at {cut_at}, seed {seed}"
            assert confirmed <= len(fresh), f"cut at {cut_at}, seed {seed}"
            assert fresh == sent[: len(fresh)], f"cut at {cut_at}, seed {seed}"
            expected = found
        cut_at += 1
    assert cut_at > 60
