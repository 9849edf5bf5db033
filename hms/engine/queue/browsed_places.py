"""Browsed places: where the pages of browsers ended.

A browser goes on behind the message at which its last page ended. That message may have left since:
then its place is known from here, so that nothing that stays is shown twice or left out.
"""

from collections import OrderedDict

from hms.engine.groups.message_sort import Entry, MessageSort, entry_bytes
from hms.engine.messages import StoredMessage
from hms.engine.queue.pending_list import PendingList

__all__ = ["BrowsedPlaces"]

PLACES_MAX = 1024
PLACES_BYTES_MAX = 1 << 20
"""A key may have 64 KiB."""


class BrowsedPlaces:
    """Those that were told last, of all browsers together."""

    def __init__(self) -> None:
        self._places: OrderedDict[tuple[str, int], tuple[MessageSort | None, Entry, int]]
        self._places = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._places)

    def note(self, line: PendingList, message: StoredMessage) -> None:
        """A page ended at a message."""
        key, entry = (line.name, message.seq), line.entry(message)
        self._forget(key)
        size = entry_bytes(entry)
        self._places[key] = line.sort, entry[:-1], size
        self._bytes += size
        while len(self._places) > PLACES_MAX or self._bytes > PLACES_BYTES_MAX:
            self._forget(next(iter(self._places)))

    def find(self, line: PendingList, seq: int) -> Entry | None:
        """The place of a message by its place in the order of arrival; None for one that is not
        known any more, or had its place by other keys."""
        found = self._places.get((line.name, seq))
        return None if found is None or found[0] is not line.sort else found[1]

    def _forget(self, key: tuple[str, int]) -> None:
        found = self._places.pop(key, None)
        if found is not None:
            self._bytes -= found[2]
