"""What an arbiter is to the rest: values, and the calls."""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from hms.errors.catalogue import ArbiterDamaged, ArbiterWentBack

__all__ = [
    "ENDED",
    "Arbiter",
    "Configuration",
    "Leader",
    "Member",
    "Seen",
    "Standing",
    "decode_configuration",
    "encode",
    "ended_in",
    "goes_on_alone",
    "has_ended",
    "led_by",
    "may_campaign",
    "next_epoch",
]

ENDED: Final = "*"
"""No name of a replica begins with it."""


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A copy that counts. copy_id: 32 hexadecimal digits, made with the copy; start: the highest
    start of its process that is known."""

    name: str
    copy_id: str
    start: int = 0


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """version: raised by each change; log: the node's, in hexadecimal; epoch, primary, start: who
    was granted the last term; copies: how many must have synced before a confirmation;
    copies_min: the fewest members; record_format: the highest that all members know; removed: names
    of replicas that an operator removed; lossy: epochs behind which an operator had a copy go on
    without enough others; is_forced: it does so still, with fewer than copies_min."""

    version: int
    log: str
    epoch: int = 0
    primary: str = ""
    start: int = 0
    members: tuple[Member, ...] = ()
    copies: int = 1
    copies_min: int = 1
    record_format: int = 2
    removed: tuple[str, ...] = ()
    lossy: tuple[int, ...] = ()
    is_forced: bool = False


class Leader(msgspec.Struct, frozen=True):
    """Whose lease lives now."""

    replica: str
    epoch: int


class Standing(msgspec.Struct, frozen=True):
    """What the arbiter says. preferred: who alone may campaign now, after a leader resigned; or
    what ended_in() understands, when the process of a leader has ended: then anyone may."""

    configuration: Configuration
    leader: Leader | None = None
    preferred: str = ""


class Arbiter(Protocol):
    """See the package. One object for one node and one replica process; ArbiterUnavailable from
    every call means that nobody knows: read again."""

    def read(self) -> Standing | None:
        """None: there is no configuration. ArbiterDamaged, ArbiterWentBack."""

    def begin(self, first: Configuration) -> bool:
        """Put the first configuration there; False when there is one."""

    def change(self, expected_version: int, new: Configuration) -> bool:
        """Put another one there, of the next version and the same epoch; False when the version is
        another by now, or the epoch was not granted here."""

    def campaign(self, expected_version: int, replica: str, start: int) -> Configuration | None:
        """The configuration with the next epoch and its lease; None when the version is another,
        somebody leads, or another one is preferred."""

    def force(self, expected_version: int, new: Configuration) -> bool:
        """By an operator, who has one copy go on without enough others: put a configuration there
        of the next version, with that one member; False when the version is another by now, or
        another one has a lease."""

    def renew(self) -> bool:
        """The lease of the epoch that campaign() gave here lives on, made again when it had ended
        and the epoch is still the last. False: it is not, or none was given."""

    def resign(self, to: str = "") -> None:
        """Give the lease back; for one lease only the replica `to` may campaign. Asked again, when
        nobody knows whether it was done, it is done once."""

    def ended(self, granted: Leader) -> bool:
        """The process of a leader was seen to end: so does its lease, and for one lease a Standing
        says why (ended_in). False: that one leads no more."""

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have it called when something may be new; returns how to end that."""

    def close(self) -> None:
        """Let go of connections; a lease ends by itself."""


def has_ended(epoch: int) -> str:
    """In the place of who is preferred: the process that led in that epoch has ended."""
    return f"{ENDED}{epoch}"


def ended_in(preferred: str) -> int | None:
    """The epoch whose leader's process has ended; None for the name of a replica, or nobody's."""
    said = preferred.removeprefix(ENDED)
    return int(said) if preferred.startswith(ENDED) and said.isdigit() else None


def may_campaign(preferred: str, replica: str) -> bool:
    """Whether a replica may, as that stands."""
    return preferred in ("", replica) or preferred.startswith(ENDED)


class Seen:
    """The highest version and epoch that were seen: an arbiter that has less has lost something."""

    def __init__(self) -> None:
        self._version = self._epoch = 0

    def decode(self, value: bytes, endpoint: str) -> Configuration:
        """What stands in the arbiter; ArbiterDamaged, or ArbiterWentBack when it is older than a
        configuration that was seen."""
        found = decode_configuration(value, endpoint)
        if found.version < self._version or found.epoch < self._epoch:
            raise ArbiterWentBack(endpoint=endpoint, now=found.version, seen=self._version)
        self._version, self._epoch = found.version, found.epoch
        return found


def encode(configuration: Configuration) -> bytes:
    """As it stands in the arbiter: JSON, so that an operator can read it."""
    return msgspec.json.encode(configuration)


def decode_configuration(value: bytes, what: str) -> Configuration:
    """ArbiterDamaged for what is none, or cannot be true."""
    try:
        found = msgspec.json.decode(value, type=Configuration)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ArbiterDamaged(endpoint=what, detail=str(error)[:200]) from error
    names, ids = {one.name for one in found.members}, {one.copy_id for one in found.members}
    count = len(found.members)
    if len(names) < count or len(ids) < count:
        raise ArbiterDamaged(endpoint=what, detail="two members are the same")
    if not (1 <= found.copies <= max(count, 1)) or found.version < 1 or found.epoch < 0:
        detail = f"{found.copies} copies of {count} members, version {found.version}"
        raise ArbiterDamaged(endpoint=what, detail=detail)
    return found


def goes_on_alone(now: Configuration, member: Member) -> Configuration:
    """What an operator puts there who has one copy lead without enough others, also one that was
    removed: what it says counts from here on."""
    return msgspec.structs.replace(
        now,
        version=now.version + 1,
        members=(member,),
        copies=1,
        removed=tuple(one for one in now.removed if one != member.name),
        lossy=(*now.lossy, now.epoch),
        is_forced=True,
    )


def next_epoch(now: Configuration, replica: str, start: int) -> Configuration:
    """The configuration that a won campaign makes."""
    return msgspec.structs.replace(
        now, version=now.version + 1, epoch=now.epoch + 1, primary=replica, start=start
    )


def led_by(now: Configuration, new: Configuration, granted: Leader | None) -> bool:
    """Whether a change keeps the epoch that was granted to the one who asks for it."""
    same = (now.epoch, now.primary, now.start, now.log)
    is_next = new.version == now.version + 1
    is_granted = now.epoch == (0 if granted is None else granted.epoch)
    return is_granted and is_next and (new.epoch, new.primary, new.start, new.log) == same
