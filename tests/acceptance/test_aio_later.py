"""hms.aio on a real node: delays, schedules, compression and files, awaited."""

import asyncio

import pytest

import hms

CONFIG = "".join(f"[hms.queue.q{n}]\n" for n in range(5))
WAIT_S = 60
TEXT = " ".join(f"line {n} of many that are alike" for n in range(500))


@pytest.fixture
def play(running):
    """Runs a coroutine function with a session, and looks what is left of it afterwards."""

    def play(scene):
        async def whole():
            async with asyncio.timeout(250):
                async with hms.aio.connect(running.address) as conn, conn.session() as session:
                    result = await scene(conn, session)
                assert not conn.link.asked
                assert asyncio.all_tasks() == {asyncio.current_task()}
            return result

        return asyncio.run(whole())

    return play


def test_a_delayed_message_is_listed_and_comes_when_it_is_due(play):
    """F-D4: the same words as for threads."""

    async def scene(conn, session):
        out = await session.producer("queue:q0", delay_s=0.5)
        inn = await session.consumer("queue:q0")
        receipt = await out.send("next week", delay_s=7 * 86_400)
        (listed,) = await conn.schedules(destination="queue:q0")
        assert listed.name == receipt.message_id
        await out.send("later")
        return await inn.receive(timeout_s=WAIT_S)

    message = play(scene)
    assert message.body == "later"
    assert message.delivery_time_ms == message.timestamp_ms + 500


def test_a_schedule_runs_until_it_is_cancelled(play):
    """Made, shown and ended without a thread."""

    async def scene(conn, session):
        out, inn = await session.producer("queue:q1"), await session.consumer("queue:q1")
        made = await out.schedule("beat", "tick", every_s=0.1)
        found = [await inn.receive(timeout_s=WAIT_S) for _ in range(3)]
        assert (await conn.schedule("beat")).every_s == made.every_s == 0.1
        await conn.cancel_schedule("beat")
        with pytest.raises(hms.ScheduleNotFound):
            await conn.schedule("beat")
        return [message.properties["$ScheduleCount"] for message in found]

    assert play(scene) == [1, 2, 3]


def test_a_compressed_body_and_a_file_come_as_they_were(play, tmp_path):
    """F-D7 and F-F6; the event loop goes on while a file travels."""
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 8000)

    async def scene(_conn, session):
        out, inn = await session.producer("queue:q2"), await session.consumer("queue:q2")
        await out.send(TEXT, compress=True)
        message = await inn.receive(timeout_s=WAIT_S)
        assert (message.compression, message.body) == ("zlib", TEXT)
        turns, is_over = 0, False

        async def count():
            nonlocal turns
            while not is_over:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await out.send(hms.Message.file(source))
        message = await inn.receive(timeout_s=WAIT_S)
        await message.save(tmp_path / "target")
        is_over = True
        await counting
        return turns

    assert play(scene) > 10
    assert (tmp_path / "target").read_bytes() == source.read_bytes()


def test_a_save_that_is_cancelled_goes_on_later(play, tmp_path):
    """What has come stays beside the target; the next try takes the rest."""
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 40_000)

    async def scene(_conn, session):
        out, inn = await session.producer("queue:q3"), await session.consumer("queue:q3")
        await out.send(hms.Message.file(source))
        message = await inn.receive(timeout_s=WAIT_S)
        saving = asyncio.create_task(message.save(tmp_path / "target"))
        for _ in range(1_000_000):
            if any(part.stat().st_size for part in tmp_path.glob("*.part")):
                break
            await asyncio.sleep(0)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
        assert not (tmp_path / "target").exists()
        await message.save(tmp_path / "target")

    play(scene)
    assert (tmp_path / "target").read_bytes() == source.read_bytes()
