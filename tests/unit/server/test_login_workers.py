"""Login workers: how many there are, how much waits, and when refusals are sent, may change."""

import threading

from hms.server.logins.login_workers import LoginWorkers
from tests.support.waiting import wait_until


def started(workers, count):
    """So many jobs that wait until they are let go on; how many of them run."""
    go_on, running = threading.Event(), []

    def job():
        running.append(threading.current_thread().name)
        go_on.wait(60)

    taken = sum(workers.submit(job) for _ in range(count))
    return go_on, running, taken


def test_more_and_fewer_workers_hold_at_once_and_lose_no_job():
    """They were those of the boot."""
    workers = LoginWorkers(1, 10, 0)
    go_on, running, taken = started(workers, 5)
    wait_until(lambda: len(running) == 1)
    assert taken == 5
    workers.change(3, 10, 0)
    wait_until(lambda: len(running) == 3)
    workers.change(1, 10, 0)
    go_on.set()
    wait_until(lambda: len(running) == 5)
    go_on, running, _ = started(workers, 3)
    wait_until(lambda: running)
    assert {*running} == {"hms-login-0"}
    go_on.set()
    wait_until(lambda: len(running) == 3)
    workers.change(2, 10, 0)
    go_on, running, _ = started(workers, 2)
    wait_until(lambda: {*running} == {"hms-login-0", "hms-login-1"})
    go_on.set()
    workers.close()


def test_another_length_of_the_queue_and_another_delay_hold_at_once():
    """A reload may make room for logins."""
    workers = LoginWorkers(1, 0, 60_000)
    go_on, running, taken = started(workers, 1)
    assert taken == 0
    workers.change(1, 2, 1)
    go_on, running, taken = started(workers, 1)
    wait_until(lambda: running)
    go_on.set()
    said = threading.Event()
    workers.at_next_multiple(said.set)
    assert said.wait(60)
    workers.close()


def test_who_is_known_does_not_wait_behind_those_who_are_not():
    """Nor is it told that too many wait: a flood of wrong passwords is checked behind it."""
    workers, order = LoginWorkers(1, 2, 0), []
    go_on, running, _ = started(workers, 1)
    wait_until(lambda: running)
    strangers = [workers.submit(lambda: order.append("stranger")) for _ in range(3)]

    known = [workers.submit(lambda: order.append("known"), is_known=True) for _ in range(3)]

    assert strangers == known == [True, True, False]
    assert not workers.submit_spare(lambda: order.append("spare"))
    go_on.set()
    wait_until(lambda: len(order) == 4)
    assert order == ["known", "known", "stranger", "stranger"]
    workers.close()
