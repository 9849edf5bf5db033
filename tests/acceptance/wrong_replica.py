"""A machine whose copy works as a mistake would have it, of those that the simulator plants. As a
program's prefix: PYTHON wrong_replica.py MISTAKE PYTHON -P -m hms.boot.node OPTIONS…
"""

import os
import sys

from tests.sim.replicas import planted


class Patch:
    """What monkeypatch is to the simulator; for as long as the process lives."""

    setattr = staticmethod(setattr)


def main(mistake, words_of_node):
    """Boot the node."""
    from hms.boot import node

    getattr(planted, mistake)(Patch)
    code = node.main(words_of_node)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[sys.argv.index("hms.boot.node") + 1 :])
