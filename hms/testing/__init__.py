"""For tests, theirs and ours: a real node, in a process of its own, on a free port.

with hms.testing.node() as node:
    with hms.connect(node.address) as conn: ...
"""

from hms.testing.etcd import TestEtcd
from hms.testing.nodes import TestNode, node

__all__ = ["TestEtcd", "TestNode", "node"]
