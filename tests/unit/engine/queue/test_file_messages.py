"""What the engine knows of files: who names them, and when they are given up."""

import pytest

from hms.engine.effects import FileDropped
from hms.engine.engine import Return
from hms.errors.catalogue import FileUnknown, InvalidArgument
from hms.wire.packed_messages import KIND_COMPRESSED, KIND_FILE, ROW, Head, encode_head
from tests.support.engine_rig import EngineRig, delivered

FILE = "0123456789abcdef-00000001-" + "ab" * 32


@pytest.fixture
def rig():
    rig = EngineRig(file_life_ms=10_000)
    rig.engine.file_stored(FILE, rig.now_ms)
    return rig


def _send(rig, producer=1, file=FILE, kind=KIND_FILE, is_persistent=True):
    head = encode_head(Head({"Type": "News"}, node={"$File": file} if file else {}))
    pack = memoryview(ROW.pack(len(head), 1, 0, 0, 4, kind, 0, 0) + head + b"x")
    rig.sequence += 1
    at = (1, 5, producer, rig.sequence, 1, is_persistent, pack, rig.now_ms)
    return _run(rig, lambda fx: rig.engine.send(*at, fx))


def _run(rig, call):
    """As the broker does it: what has left is counted with each change."""

    def counted(fx):
        call(fx)
        if rig.engine.state.files.left:
            rig.engine.count_files(fx)

    return rig.run(counted)


def _dropped(fx):
    return [effect.file for effect in fx.out if isinstance(effect, FileDropped)]


def _settle(rig, handle, messages, how=None):
    spans = [(m.id, m.id) for m in messages]
    if how is None:
        return _run(rig, lambda fx: rig.engine.acknowledge(1, handle, 0, spans, rig.now_ms, fx))
    return _run(rig, lambda fx: rig.engine.give_back(1, handle, 0, spans, how, rig.now_ms, fx))


def test_a_file_goes_with_its_message_and_not_before_that_is_durable(rig):
    """P1: a crash between must leave a file too many, not one too few."""
    fx = _send(rig)
    assert _dropped(fx) == []
    messages = rig.consume(1)
    fx = _settle(rig, 1, messages)

    assert _dropped(fx) == [FILE]
    assert fx.must_wait
    assert FILE not in rig.engine.state.files.since_ms


def test_a_file_stays_for_the_last_of_its_subscribers(rig):
    """Two durable subscriptions share the message, and so the file."""
    rig.consume(1, "news", durable="a")
    rig.consume(2, "news", durable="b")
    fx = _send(rig, producer=2)
    messages = delivered(fx)

    assert _dropped(_settle(rig, 1, messages[:1])) == []
    assert _dropped(_settle(rig, 2, messages[:1])) == [FILE]


def test_a_dead_letter_keeps_the_file(rig):
    """It is the message, at another place."""
    _send(rig)
    messages = rig.consume(1)
    for _ in range(3):
        fx = _settle(rig, 1, messages, Return.FAILED)
        assert _dropped(fx) == []
    waiting = rig.engine.state.queues["HMS.DLQ"].line.waiting_count
    fx = _run(rig, lambda fx: rig.engine.administer("queue.purge", {"name": "HMS.DLQ"}, 1000, fx))

    assert waiting == 1
    assert _dropped(fx) == [FILE]


def test_a_file_that_a_transaction_names_is_kept(rig):
    """Its message is acknowledged, and sent on in a transaction that is still open."""
    _send(rig)
    messages = rig.consume(1)
    _send(rig, producer=11)

    assert _dropped(_settle(rig, 1, messages)) == []
    fx = _run(rig, lambda fx: rig.engine.commit(1, 2, 1, 1, rig.now_ms, fx))
    messages = delivered(fx)
    assert _dropped(_settle(rig, 1, messages)) == [FILE]


def test_a_file_that_nobody_names_is_given_up_in_time(rig):
    """Its client has died between file and message; while it may come back the file waits."""
    rig.now_ms += 9_000
    assert _dropped(rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))) == []
    rig.now_ms += 2_000
    assert _dropped(rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))) == [FILE]
    with pytest.raises(FileUnknown):
        _send(rig)


def test_after_a_crash_named_files_stay_and_missing_ones_are_told(rig):
    """What the log knows decides, not what the folder has."""
    _send(rig)
    rig.start()
    assert rig.engine.files_found(["other", FILE], rig.now_ms) == []
    rig.now_ms += 20_000
    fx = rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))
    assert _dropped(fx) == ["other"]
    rig.start()
    assert rig.engine.files_found([], rig.now_ms) == [FILE]


@pytest.mark.parametrize(
    ("file", "kind", "is_persistent", "error"),
    [
        ("", KIND_FILE, True, FileUnknown),
        ("nowhere", KIND_FILE, True, FileUnknown),
        (FILE, KIND_FILE, False, InvalidArgument),
        (FILE, KIND_FILE | KIND_COMPRESSED, True, InvalidArgument),
        (FILE, 7, True, InvalidArgument),
        (FILE, 64, True, InvalidArgument),
    ],
)
def test_a_message_without_its_file_is_refused(rig, file, kind, is_persistent, error):
    """A confirmed file message has its file."""
    before = len(rig.log)
    with pytest.raises(error):
        _send(rig, file=file, kind=kind, is_persistent=is_persistent)
    assert len(rig.log) == before


def test_without_acknowledgement_a_file_is_there_until_it_was_saved(rig):
    """F-B4: NONE is AUTO for file messages."""
    rig.engine.open_session(1, 3, 3, "")
    _send(rig)
    messages = rig.consume(1, session=3)

    assert rig.engine.state.queues["orders"].line.out_count == 1
    assert _dropped(_settle(rig, 1, messages)) == [FILE]
