"""transaction_idle_s on a real node: for threads and for asyncio."""

import asyncio

import pytest

import hms
import hms.aio
from tests.support.waiting import wait_until

WAIT_S = 60
WHY = "transaction_idle_s"
CONFIG = {
    "node": {"n": {"transaction_idle_s": 1.5}},
    "hms": {"queue": {"work": {}, "aio": {}, "done": {}}},
}


def test_what_an_idle_transaction_holds_goes_to_another_and_its_commit_says_why(running):
    """Its client is connected all the time, and hangs: nobody else got its messages."""
    with hms.connect(running.address) as conn, hms.connect(running.address) as other:
        conn.session().producer("work").send("x")
        idle = conn.session(transacted=True)
        held = idle.consumer("work", prefetch=1).receive(WAIT_S)
        idle.producer("done").send("y")

        again = other.session().consumer("work").receive(WAIT_S)

        assert (held.body, again.body) == ("x", "x")
        assert (again.redelivered, again.delivery_count) == (True, 2)
        with pytest.raises(hms.TransactionRolledBack, match=WHY):
            idle.commit()
        wait_until(lambda: _is_committed(idle, "z"))
        assert other.session().consumer("done").receive(WAIT_S).body == "z"


def _is_committed(session, body):
    """A client that has no processor for long between the two is idle as well."""
    session.producer("done").send(body)
    try:
        session.commit()
    except hms.TransactionRolledBack as idle:
        if WHY not in str(idle):
            raise
        return False
    return True


def test_the_same_in_asyncio(running):
    """Nothing but a receipt, which the client says by itself."""

    async def run():
        async with (
            hms.aio.connect(running.address) as conn,
            hms.aio.connect(running.address) as other,
        ):
            await (await (await conn.session()).producer("aio")).send("x")
            idle = await conn.session(transacted=True)
            held = await (await idle.consumer("aio", prefetch=1)).receive(WAIT_S)

            again = await (await (await other.session()).consumer("aio")).receive(WAIT_S)

            assert (held.body, again.body, again.redelivered) == ("x", "x", True)
            with pytest.raises(hms.TransactionRolledBack, match=WHY):
                await idle.commit()
            await idle.commit()

    asyncio.run(run())
