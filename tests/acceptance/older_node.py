"""A node of the release before, as far as its store goes: it knows no format behind OLDER. As a
program's prefix: PYTHON older_node.py PYTHON -P -m hms.boot.node OPTIONS…
"""

import os
import sys

from hms.store.journal import journal, segment_walk

OLDER = 2


def main(words):
    """Boot the node."""
    from hms.boot import node

    segment_walk.FORMATS, segment_walk.VERSION, journal.VERSION = (OLDER,), OLDER, OLDER
    code = node.main(words)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[sys.argv.index("hms.boot.node") + 1 :])
