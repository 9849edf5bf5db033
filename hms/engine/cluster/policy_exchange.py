"""The security document in a cluster: the newest version of any node is that of all.

Of two documents the one of the higher version holds, of one version that of the node with the
higher index, as with destinations (directory.py). It is no record: passwords' hashes are in no log.
What another node has newer lies here until the keeper of the file has taken it.
"""

from hms.engine.cluster.cluster_messages import Policy

__all__ = ["PolicyExchange"]


class PolicyExchange:
    """own: what this node has; None while it takes no part."""

    def __init__(self) -> None:
        self.own: Policy | None = None
        self.heard: Policy | None = None
        """What another node has, and is newer."""
        self.of: dict[int, Policy] = {}
        """What each node has, as it told last."""

    def told(self, node: int, word: Policy) -> None:
        """What a node has."""
        self.of[node] = word
        own = self.own
        if own is None or _rank(word) <= _rank(own):
            return
        if word.text == own.text:
            self.own = word
        elif self.heard is None or _rank(word) > _rank(self.heard):
            self.heard = word

    def differs(self, node: int) -> bool:
        """Whether a node has told of another document than this one."""
        own, theirs = self.own, self.of.get(node)
        return own is not None and theirs is not None and theirs.text != own.text


def _rank(word: Policy) -> tuple[int, int]:
    return word.version, word.node
