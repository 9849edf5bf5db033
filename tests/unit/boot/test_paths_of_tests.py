"""The paths of a configuration that a node for tests is given."""

from hms.boot import kinds
from hms.boot.sections import SECTIONS
from hms.testing.nodes import PATH_KEYS


def test_a_node_for_tests_knows_every_key_that_is_a_path():
    """A file that is its config lies elsewhere than the one that it is made of."""
    paths = {
        key.name for section in SECTIONS for key in section.keys if key.read is kinds.directory
    }

    assert paths == PATH_KEYS
