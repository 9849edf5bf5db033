"""Schedules in the engine: each occurrence is sent once, over crashes too; what was missed."""

import msgspec
import pytest

from hms.boot.calendar import CronCalendar
from hms.engine.effects import Effects
from hms.engine.messages import OF_COMMIT
from hms.engine.schedule import schedule_plans
from hms.engine.schedule.schedule_plans import TIME_MS_MAX, Plan
from hms.errors.catalogue import (
    InvalidSchedule,
    MessageTooLarge,
    NodeFull,
    ScheduleExists,
    ScheduleLimit,
    ScheduleNotFound,
    StoreFull,
)
from hms.wire.packed_messages import ROW, Head, encode_head
from tests.support.engine_rig import EngineRig, delivered

EVERY_MS = 1000


def _plan(name="beat", **options):
    given = {"every_ms": EVERY_MS, "first_ms": 2000} | options
    return Plan(name, "queue", "orders", **given)


class _Rig(EngineRig):
    """An engine with a calendar, and short words for schedules."""

    def __init__(self, **limits):
        super().__init__(**{"calendar": CronCalendar()} | limits)

    def schedule(
        self,
        plan,
        *,
        body=b"tick",
        properties=None,
        may_replace=False,
        request=(0, 0),
        refused=None,
    ):
        head = encode_head(Head(properties or {}))
        pack = memoryview(ROW.pack(len(head), len(body), 0, 0, 4, 0, 0, 0) + head + body)
        producer = 2 if plan.kind == "topic" else 1
        return self.run(
            lambda fx: self.engine.schedule(
                *(1, 5, producer, plan, pack, self.now_ms, fx),
                may_replace=may_replace,
                request=request,
                refused=refused,
            )
        )

    def at(self, now_ms):
        """Let the time come; what is delivered then."""
        self.now_ms = now_ms
        return delivered(self.run(lambda fx: self.engine.tick(now_ms, fx)))

    def crash(self, now_ms):
        """The node is away until then."""
        self.now_ms = now_ms
        self.start()

    def shown(self):
        return {
            one["name"]: one
            for one in self.engine.administer("schedule.list", {}, self.now_ms, Effects())
            if one["kind"] == "schedule"
        }

    def waiting(self):
        return list(self.engine.state.queues["orders"].line.in_order())


def _fill(rig):
    """Until the node has no room; how many messages that took."""
    for count in range(100):
        try:
            rig.send(body=b"x" * 100, is_persistent=False)
        except NodeFull:
            return count
    raise AssertionError("it has room for ever")


def _numbers(messages):
    return [m.head().node["$ScheduleCount"] for m in messages]


def test_a_schedule_sends_its_message_again_and_again():
    """The same body and properties, and what the reader needs to know which one it is."""
    rig = _Rig()
    rig.schedule(_plan(), properties={"Type": "News"})
    rig.consume(1)

    assert rig.at(1999) == []
    first, second = *rig.at(2000), *rig.at(3000)

    assert first.payload.endswith(b"tick")
    assert first.head().properties == {"Type": "News"}
    assert first.head().node == {
        "$ScheduleName": "beat",
        "$ScheduledTime": 2000,
        "$ScheduleCount": 1,
    }
    assert second.head().node["$ScheduledTime"] == 3000
    assert first.id != second.id


def test_a_late_tick_sends_all_that_was_due_meanwhile():
    """A node that was busy has missed nothing: nobody was told to skip."""
    rig = _Rig()
    rig.schedule(_plan(missed="SKIP"))
    rig.at(5500)

    assert _numbers(rig.waiting()) == [1, 2, 3, 4]
    assert rig.engine.due_ms() == 6000


@pytest.mark.parametrize(
    ("missed", "times"),
    [("SKIP", [6000]), ("ONE", [2000, 6000]), ("ALL", [2000, 3000, 4000, 5000])],
)
def test_what_was_due_while_the_node_was_down_follows_the_plan(missed, times):
    """Three reports at once are as wrong for one user as one that is lost is for the next."""
    rig = _Rig()
    rig.schedule(_plan(missed=missed))
    rig.crash(5500)
    for now_ms in (5500, 5500, 5500, 5500, 6000, 6000):
        rig.at(now_ms)

    said = [m.head().node["$ScheduledTime"] for m in rig.waiting()]
    assert said[: len(times)] == times
    assert said == sorted(set(said))
    assert 6000 in said


def test_an_occurrence_is_not_sent_again_after_a_crash():
    """The message and the schedule's next time are one record."""
    rig = _Rig()
    rig.schedule(_plan(missed="ALL"))
    rig.at(2000)
    rig.crash(2500)
    rig.at(2600)

    assert _numbers(rig.waiting()) == [1]
    assert rig.shown()["beat"]["sent"] == 1
    assert rig.shown()["beat"]["next_ms"] == 3000


@pytest.mark.parametrize("until", [{"until_ms": 3500}, {"count_max": 2}])
def test_a_schedule_ends_by_itself(until):
    """What is over is not listed, after a crash neither."""
    rig = _Rig()
    rig.schedule(_plan(**until))
    for now_ms in (2000, 3000, 4000, 5000):
        rig.at(now_ms)
    assert rig.shown() == {}
    rig.crash(6000)

    assert _numbers(rig.waiting()) == [1, 2]
    assert rig.shown() == {}
    assert rig.engine.state.waiting_bytes == sum(m.size_bytes for m in rig.waiting())


def test_a_cancelled_schedule_sends_nothing_more():
    """Neither at once nor after a crash."""
    rig = _Rig()
    rig.schedule(_plan())
    rig.run(lambda fx: rig.engine.administer("schedule.cancel", {"name": "beat"}, 1500, fx))
    rig.at(2000)
    rig.crash(3000)
    rig.at(4000)

    assert rig.waiting() == []
    with pytest.raises(ScheduleNotFound):
        rig.engine.administer("schedule.cancel", {"name": "beat"}, 4000, Effects())


def test_a_cron_expression_is_kept_in_its_time_zone():
    """Nine o'clock is nine o'clock where the user is: 08:00 UTC in winter, 07:00 in summer."""
    rig = _Rig()
    day = 86_400_000
    rig.now_ms = 1_774_656_000_000  # 28 March 2026, the day before the clock is put forward
    rig.schedule(
        _plan(every_ms=0, first_ms=0, cron="0 9 * * *", time_zone="Europe/Berlin"),
    )
    start = rig.now_ms
    due = []
    for _ in range(3):
        due.append(rig.engine.due_ms() - start)
        rig.at(rig.engine.due_ms())

    hour = 3_600_000
    assert due == [8 * hour, day + 7 * hour, 2 * day + 7 * hour]


@pytest.mark.parametrize(
    "options",
    [
        {"every_ms": 0},
        {"cron": "* * * * *"},
        {"every_ms": 5},
        {"missed": "SOME"},
        {"name": ""},
        {"every_ms": 0, "cron": "0 0 30 2 *"},
        {"every_ms": 0, "cron": "* * * *"},
        {"every_ms": 0, "cron": "0 0 * * *", "time_zone": "Europe/Nowhere"},
        {"every_ms": 0, "cron": "0 0 * * *", "time_zone": "../../etc/passwd"},
        {"every_ms": 0, "cron": "0 " * 200},
        {"until_ms": 1500},
        {"first_ms": 1 << 62},
        {"first_ms": TIME_MS_MAX + 1},
        {"until_ms": TIME_MS_MAX + 1},
        {"every_ms": 0, "cron": "0 0 29 2 *", "first_ms": TIME_MS_MAX - 86_400_000},
    ],
)
def test_a_plan_that_never_comes_to_pass_is_refused(options):
    """Said when it is made, not found out when nothing came."""
    rig = _Rig()
    before = len(rig.log)

    with pytest.raises(InvalidSchedule):
        rig.schedule(_plan(**options))

    assert len(rig.log) == before
    assert rig.engine.due_ms() is None


def test_a_schedule_ends_with_the_year_9999():
    """Nobody can tell a later time; one that was accepted must not stop the node then."""
    rig = _Rig()
    rig.schedule(_plan(first_ms=TIME_MS_MAX - EVERY_MS))
    assert rig.engine.due_ms() == TIME_MS_MAX - EVERY_MS
    rig.at(TIME_MS_MAX)

    assert _numbers(rig.waiting()) == [1, 2]
    assert rig.shown() == {}


def test_a_store_with_a_schedule_beyond_all_calendars_boots(monkeypatch):
    """It was accepted once; it waits for ever, and may be cancelled."""
    rig = _Rig()
    with monkeypatch.context() as patch:
        patch.setattr(schedule_plans, "TIME_MS_MAX", 1 << 63)
        rig.schedule(_plan(first_ms=1 << 62))
    rig.send()
    rig.crash(10_000)

    assert rig.at(10_000) == []
    assert len(rig.waiting()) == 1
    assert rig.engine.due_ms() == 1 << 62
    rig.run(lambda fx: rig.engine.administer("schedule.cancel", {"name": "beat"}, 10_000, fx))
    assert rig.shown() == {}


def test_the_same_schedule_once_more_changes_nothing():
    """A client that has lost its connection asks again."""
    rig = _Rig()
    rig.schedule(_plan())
    before = len(rig.log)
    fx = rig.schedule(_plan())

    assert len(rig.log) == before
    assert fx.must_wait
    with pytest.raises(ScheduleExists):
        rig.schedule(_plan(), body=b"another")
    with pytest.raises(ScheduleExists):
        rig.schedule(_plan(every_ms=500))


def test_what_a_connected_client_asked_for_is_known_however_many_others_come_and_go():
    """Its numbers counted as those of one that is away: what was asked again after others had
    pushed them out was made once more, though it had been cancelled."""
    rig = _Rig(producers_remembered=5)
    rig.schedule(_plan(), request=(50, 1))
    for number in range(8):
        connection, uid = 100 + number, 1000 + number
        rig.engine.open_connection(connection, uid, "", "")
        rig.engine.open_session(connection, 1, 2, "")
        rig.engine.open_producer(connection, 1, 1, "queue", "orders")
        rig.send(connection=connection)
        rig.run(lambda fx, c=connection: rig.engine.close_connection(c, rig.now_ms, fx))
    assert rig.engine.state.memories.known(1000, 1) is None
    rig.run(lambda fx: rig.engine.administer("schedule.cancel", {"name": "beat"}, 1500, fx))

    rig.schedule(_plan(), request=(50, 1))

    assert rig.shown() == {}
    rig.schedule(_plan(), request=(50, 2))
    assert list(rig.shown()) == ["beat"]
    memories = rig.engine.state.memories
    rig.run(lambda fx: rig.engine.close_producer(1, 1, fx))
    assert memories.known(77, 50) is None


def test_a_replaced_schedule_ends_when_the_other_begins():
    """Both are one record: never both, never none."""
    rig = _Rig()
    rig.schedule(_plan())
    rig.schedule(_plan(every_ms=500), body=b"tock", may_replace=True)
    for now_ms in (2000, 2500):
        rig.at(now_ms)
    rig.crash(2600)

    assert [m.payload[-4:] for m in rig.waiting()] == [b"tock", b"tock"]
    assert list(rig.shown()) == ["beat"]


def test_an_occurrence_for_which_there_is_no_room_is_sent_when_there_is():
    """Nothing is lost in silence; a full queue is said."""
    rig = _Rig(memory_bytes_max=4000, paging_share=9)
    rig.schedule(_plan(is_persistent=False), body=b"t" * 150)
    sent = _fill(rig)
    rig.at(2000)
    assert "HMS-4013" in rig.shown()["beat"]["error"]
    messages = rig.consume(1)
    rig.acknowledge(1, messages)

    assert len(messages) == sent
    assert rig.at(2100) == []
    late, *_ = rig.at(3000)
    assert late.head().node["$ScheduledTime"] == 2000
    assert rig.shown()["beat"]["error"] == ""


@pytest.mark.parametrize(
    ("reason", "attributes"),
    [("DESTINATION_UNKNOWN", {}), ("MESSAGE_TOO_LARGE", {"max_message_bytes": 5})],
)
def test_an_occurrence_that_nothing_takes_is_a_dead_letter(reason, attributes):
    """It is not lost, and its schedule goes on; it can be sent to where it was to go."""
    rig = _Rig()
    ask = rig.engine.administer
    rig.run(lambda fx: ask("queue.create", {"name": "brief"}, rig.now_ms, fx))
    rig.engine.open_producer(1, 50, 1, "queue", "brief")
    plan = msgspec.structs.replace(_plan(), destination="brief")
    head = encode_head(Head({}))
    pack = memoryview(ROW.pack(len(head), 9, 0, 0, 4, 0, 0, 0) + head + b"wonderful")
    schedule = rig.engine.schedule
    rig.run(lambda fx: schedule(1, 5, 50, plan, pack, rig.now_ms, fx, may_replace=False))
    rig.engine.close_producer(1, 50)
    verb = "queue.alter" if attributes else "queue.delete"
    rig.run(lambda fx: ask(verb, {"name": "brief", **attributes}, rig.now_ms, fx))

    rig.at(2000)
    rig.at(3000)

    for _ in range(2):
        letters = rig.engine.state.queues["HMS.DLQ"].line.everything()
        said = [letter.head().node for letter in letters]
        assert [one["$DeadReason"] for one in said] == [reason] * 2
        assert [one["$DeadOrigin"] for one in said] == ["queue:brief"] * 2
        assert all("brief" in one["$DeadText"] or "limit" in one["$DeadText"] for one in said)
        assert letters[0].payload.endswith(b"wonderful")
        rig.start()


def test_nothing_is_sent_while_the_disk_is_full():
    """P10: acknowledgements need the room that is left."""
    rig = _Rig()
    rig.schedule(_plan())
    rig.now_ms = 2000
    rig.run(lambda fx: rig.engine.tick(2000, fx, "the disk is full"))

    assert rig.waiting() == []
    assert rig.engine.due_ms() == 3000
    rig.at(3000)
    assert _numbers(rig.waiting()) == [1, 2]


def test_a_schedule_that_the_log_has_is_not_refused_when_it_is_asked_for_again():
    """Its client lost the answer, and then the disk became full: told that it was refused, he would
    make another one. One that ends by itself is known by its number, even when it has ended."""
    rig = _Rig()
    plan, other = _plan(count_max=1), _plan("other")
    rig.schedule(plan, request=(7, 1))
    rig.schedule(other)
    rig.at(2000)
    before = len(rig.log)

    assert rig.schedule(plan, request=(7, 1), refused="the disk is full").must_wait
    assert rig.schedule(other, refused="the disk is full").must_wait
    assert len(rig.log) == before
    with pytest.raises(StoreFull):
        rig.schedule(_plan("new"), request=(7, 2), refused="the disk is full")
    with pytest.raises(StoreFull):
        rig.schedule(_plan("other", every_ms=500), may_replace=True, refused="the disk is full")
    assert list(rig.shown()) == ["other"]


def test_too_many_or_too_large_schedules_are_refused():
    """P8: every table has a limit."""
    rig = _Rig(schedules_max=1, message_bytes_max=2000)
    with pytest.raises(MessageTooLarge):
        rig.schedule(_plan(), body=b"x" * 1500)
    rig.schedule(_plan())
    with pytest.raises(ScheduleLimit):
        rig.schedule(_plan("other"))


def test_a_schedule_publishes_on_a_topic():
    """To the subscribers of that moment."""
    rig = _Rig()
    rig.schedule(msgspec.structs.replace(_plan(), kind="topic", destination="news"))
    rig.consume(1, "news")
    rig.at(2000)
    (second,) = rig.at(3000)

    assert _numbers([second]) == [2]


def test_a_cold_boot_forgets_schedules():
    """F-H2: they are what the store holds for their destination."""
    rig = _Rig()
    rig.schedule(_plan())
    rig.now_ms = 1500
    rig.start(is_warm=False)

    assert rig.shown() == {}
    assert rig.at(2000) == []
    assert rig.waiting() == []


def test_an_occurrence_in_memory_only_is_not_seen_before_the_log_knows_of_it():
    """Else a crash just then would send it twice: the schedule would be due again."""
    rig = _Rig()
    rig.schedule(_plan(is_persistent=False))

    rig.at(2000)

    (waiting,) = rig.engine.state.queue("orders").line.in_order()
    assert not waiting.is_persistent
    assert waiting.slot == OF_COMMIT
