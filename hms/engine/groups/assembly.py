"""Group assembly: the lists of a queue that gathers groups, from their first member on (F-C17)."""

from collections.abc import Iterable

from hms.engine.groups.group_marks import Mark, checked_mark
from hms.engine.groups.message_group import GatheredGroup
from hms.engine.messages import StoredMessage
from hms.errors.catalogue import GroupMessageInvalid
from hms.wire.packed_messages import Head


class GroupAssembly:
    """life_ms: how long a list may wait to be whole; -1 for ever."""

    def __init__(self, life_ms: int) -> None:
        self.life_ms = life_ms
        self.incomplete_count = 0
        """Lists that became dead letters since the node booted."""
        self._numbers = 0
        self._groups: dict[int, GatheredGroup] = {}
        self._by_name: dict[str, list[GatheredGroup]] = {}

    def group_for(self, mark: Mark) -> GatheredGroup:
        """The list that a new message is part of. What fits into none begins another: nothing that
        is here already can refuse it any more."""
        open_ones = self._by_name.setdefault(mark.name, [])
        for group in open_ones:
            if group.fits(mark):
                return group
        self._numbers += 1
        made = GatheredGroup(("gather", mark.name, self._numbers))
        self._groups[self._numbers] = made
        open_ones.append(made)
        return made

    @property
    def count(self) -> int:
        """How many lists there are."""
        return len(self._groups)

    def forget(self, group: GatheredGroup) -> bool:
        """Nothing of a list is here; whether it was."""
        _, name, number = group.key
        if self._groups.pop(number, None) is None:
            return False
        open_ones = self._by_name[name]
        open_ones.remove(group)
        if not open_ones:
            del self._by_name[name]
        return True

    def groups(self) -> list[GatheredGroup]:
        """All lists, oldest first."""
        return list(self._groups.values())

    def overdue(self, now_ms: int) -> list[list[StoredMessage]]:
        """What waits of lists that are broken, or have waited too long to be whole."""
        found = []
        for group in self._groups.values():
            is_late = 0 <= self.life_ms <= now_ms - group.since_ms and not group.is_whole
            if (is_late or group.is_broken) and not group.out:
                found.append([group.waiting[i] for i in group.waiting])
        return [waiting for waiting in found if waiting]

    def check(self, destination: str, heads: Iterable[Head]) -> None:
        """GroupMessageInvalid for what can be part of no list, or has a number that is taken."""
        seen: dict[str, list[Mark]] = {}
        for head in heads:
            mark = checked_mark(destination, head)
            if mark is None:
                continue
            known = self._last(mark.name)
            detail = _conflict(mark, known, seen.setdefault(mark.name, []))
            if detail:
                raise GroupMessageInvalid(destination=destination, detail=detail)
            seen[mark.name].append(mark)

    def _last(self, name: str) -> GatheredGroup | None:
        """The list of that name that is not whole yet."""
        found = [t for t in self._by_name.get(name, ()) if not t.is_whole and not t.is_broken]
        return found[0] if found else None


def _conflict(mark: Mark, known: GatheredGroup | None, before: list[Mark]) -> str:
    """Why a message cannot be part of a list and of what comes with it; "" when it can."""
    taken = {m.number for m in before} | set(known.members if known is not None else ())
    end = next((m.number for m in before if m.is_end), known.count if known is not None else 0)
    if mark.number in taken and not _is_whole(taken, end):
        return f"group {mark.name} has a number {mark.number} already"
    if _is_whole(taken, end):
        return ""
    if mark.is_end and end:
        return f"group {mark.name} ends with number {end}, not {mark.number}"
    if mark.is_end and mark.number < max(taken, default=0):
        return f"group {mark.name} has a number {max(taken)} behind its end, {mark.number}"
    if end and mark.number > end:
        return f"group {mark.name} ends with number {end}, {mark.number} is behind it"
    return ""


def _is_whole(taken: set[int], end: int) -> bool:
    return end > 0 and len(taken) == end
