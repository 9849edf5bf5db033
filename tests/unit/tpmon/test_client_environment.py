"""What the tp functions do without a node: the environment and buffers."""

import pytest

import hms
import tpmon
from field_buffer import FieldBuffer
from tpmon.environment import ADDRESS, addresses


def test_the_environment_names_the_node(tmp_path, monkeypatch):
    """tmaxreadenv: the file that Tmax programs have."""
    for name in ("TMAX_HOST_ADDR", "TMAX_HOST_PORT", "TMAX_BACKUP_ADDR", "HMS_ADDRESS"):
        monkeypatch.setenv(name, "")  # so that it is afterwards as it was before
    assert addresses() == [ADDRESS]
    file = tmp_path / "tmax.env"
    file.write_text("[OTHER]\nTMAX_HOST_ADDR=wrong\n[TMAX]\n# node\nTMAX_HOST_ADDR = n1\n")

    tpmon.tmaxreadenv(file, "TMAX")
    tpmon.tpputenv("TMAX_HOST_PORT=7701")

    assert addresses() == ["tcp://n1:7701"]
    assert tpmon.tpgetenv("TMAX_HOST_PORT") == "7701"
    with pytest.raises(hms.InvalidArgument):
        tpmon.tmaxreadenv(file, "NONE")


def test_buffers_are_allocated_by_their_type():
    """tpalloc, tptypes: kept for programs that are carried over."""
    assert isinstance(tpmon.tpalloc("FIELD"), FieldBuffer)
    assert tpmon.tptypes("text") == ("STRING", "", 4)
    assert tpmon.tptypes(b"x")[0] == "CARRAY"
    with pytest.raises(hms.InvalidArgument):
        tpmon.tpalloc("NONSENSE")
    tpmon.tpfree(tpmon.tprealloc("text", 10))
    assert "TPENOENT" in tpmon.tpstrerror(tpmon.TPENOENT)
