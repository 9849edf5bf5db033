"""What tests of the configuration share."""

import pytest


@pytest.fixture
def write(tmp_path):
    """Write an hms.conf and give its path."""

    def run(text):
        path = tmp_path / "hms.conf"
        path.write_text(text)
        return path

    return run
