"""Key files: a secret one is its owner's alone."""

import pytest

from hms.errors.catalogue import LinkKeyError
from hms.server.links.keys import make_key_file, read_key_file


def test_a_key_file_that_others_may_read_is_refused_with_its_cure(tmp_path):
    """The refusal was taken for a fault of reading: "cannot be read: None"."""
    make_key_file(tmp_path / "k")
    (tmp_path / "k").chmod(0o640)

    with pytest.raises(LinkKeyError, match="may be read by others: chmod 600 it"):
        read_key_file(tmp_path / "k")
