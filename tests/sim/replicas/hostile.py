"""Frames that no copy sends. Lies of a copy that was let in are not among them."""

from zlib import crc32

from hms.server.replicas.frames import (
    FORMAT,
    Ack,
    Beat,
    BeatAck,
    Bye,
    Cut,
    Drop,
    Envelope,
    FilePart,
    Keep,
    Promised,
    Rejoin,
    Segment,
    Whole,
    Write,
    encode,
)

OTHER_LOG = "00" * 16


def frame(said, data=b"", **about):
    given = {"form": FORMAT, "log": OTHER_LOG, "epoch": 1, "replica": "a", "start": 1}
    return [encode(Envelope(**{**given, **about}, said=said)), data]


def garbage(rng):
    """No frame at all."""
    whole = frame(Beat(1.0))[0]
    return rng.choice(
        [
            [],
            [b""],
            [rng.randbytes(rng.randint(0, 80)), b""],
            [whole[: rng.randint(0, len(whole) - 1)], b""],
            [whole, b"", b""],
            [b"\x96" * 5000, b""],
            [whole.replace(b"Beat", b"Boat"), b""],
            frame(Beat(1.0), form=FORMAT + 1),
        ]
    )


def to_follower(rng, log, primary):
    """As if from its primary: of another log, of an epoch that is over, bytes that do not verify,
    what a primary does not say."""
    harm = rng.choice(
        [
            Write(1 << 40, 1, 64, crc32(b"harm")),
            Segment(1 << 40, 1, 4096, ".log"),
            Cut(1, 64),
            Drop(list(range(50)), []),
            Keep(1, 1 << 40, [], []),
            Whole(1 << 40),
            Bye(),
        ]
    )
    return rng.choice(
        [
            garbage(rng),
            frame(harm, b"harm", replica=primary),
            frame(harm, b"harm", log=log, epoch=0, replica=primary),
            frame(Write(1, 1, 64, 1), b"no such sum", log=log, epoch=1 << 20, replica=primary),
            frame(FilePart(1, "x", 0, is_last=True, crc=1), b"x", log=log, replica=primary),
        ]
    )


def to_primary(rng, log):
    """On the route of a copy: garbage, another log, what a copy does not say."""
    said = rng.choice([Rejoin(), Whole(1 << 40), Beat(1.0), Drop([1], []), Cut(1, 64)])
    acks = rng.choice([Ack(1 << 60, 1 << 60), BeatAck(1e300)])
    return rng.choice(
        [
            garbage(rng),
            frame(said, log=log, replica="b"),
            frame(acks),
            frame(BeatAck(1e300), log=log),
        ]
    )


def to_candidate(rng, log, now):
    """Promises of nobody, of another epoch, of a copy in a start before the last, or its own."""
    member = rng.choice(now.members)
    far = (1 << 40, 1 << 40, 64)
    said = Promised(member.copy_id, now.epoch, far, is_clean=True)
    return rng.choice(
        [
            garbage(rng),
            frame(said, replica=member.name, start=1 << 20),
            frame(said, log=log, replica=member.name, start=member.start - 1),
            frame(said, log=log, replica="z", start=1 << 20),
            frame(Promised("f" * 32, now.epoch, far, is_clean=True), log=log, replica=member.name),
            frame(Promised(member.copy_id, 1, far, is_clean=True), log=log, replica=member.name),
            frame(Ack(1 << 60, 1), log=log, replica=member.name),
        ]
    )


def by_stranger(rng, log):
    """Of nobody who has joined."""
    said = rng.choice([Ack(1 << 60, 1), Ack(-5, -5), BeatAck(1e300), Bye(), Whole(1), Rejoin()])
    return rng.choice([garbage(rng), frame(said, log=log, replica=rng.choice("abc"), start=99)])
