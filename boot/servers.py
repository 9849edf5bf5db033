"""The server processes of a node: started, watched, started again, more or fewer, ended.

One thread starts them and watches all through their pidfds; everything else only marks what it is
to do and wakes it.
"""

import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from hms.boot.entries import LETTERS, Config, Node, Server
from hms.boot.instances import Instance, Pool
from hms.boot.restarts import Demand
from hms.boot.withheld_variables import withheld_from
from hms.client.core.log_output import PAYLOADS_VARIABLE
from hms.errors.catalogue import InvalidArgument, ServerNotFound
from hms.server.service_monitor import Load
from hms.wire.client_identity import uid_of

__all__ = ["Servers"]

STOP_TIMEOUT_S = 10.0
PROCESSES_MAX = 256
_LONG_MS = 60_000.0

RECOVERY = "_recovery"
"""The process that ends branches in doubt; no name in hms.conf begins so."""

log = logging.getLogger("hms.servers")


class Servers:
    """Runs what [server.NAME] says; every name has between MIN and MAX processes.

    on_ended is called, on the watching thread, with the client name "NAME:pid" of a process that
    ended without a good-bye, before another is started in its place. secret: the variables that
    hold secrets of the node, when a process is started.
    """

    def __init__(
        self,
        config: Config,
        node: Node,
        *,
        on_ended: Callable[[str], None] = lambda _: None,
        secret: Callable[[], Iterable[str]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._folder = config.path, config.path.parent
        self._withheld_from: Callable[[Server], set[str]] = lambda server: withheld_from(
            server, config, secret()
        )
        self.on_ended = on_ended
        self._clock = clock
        self._address = ""
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._is_stopping = False
        self._pools = {
            s.name: Pool(s, Demand(s.min, s.max, s.idle_s)) for s in config.servers_of(node)
        }
        for one in config.letter_handlers_of(node):
            name = f"{LETTERS}{one.name}"
            self._pools[name] = Pool(_own(name, "hms.boot.letter_handler"), Demand(1, 1))
        if config.resources:
            self._pools[RECOVERY] = Pool(_own(RECOVERY, "tpmon.xa.recoverer"), Demand(1, 1))
        self._orders: deque[Callable[[], None]] = deque()
        self._shown: list[dict[str, Any]] = []
        self._returning: frozenset[str] = frozenset()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._watch, name="hms-servers", daemon=True)

    def start(self, address: str) -> None:
        """Start MIN processes of each server; they connect to that address."""
        self._address = address
        for pool in self._pools.values():
            pool.scale(pool.server.min)
        self._show()
        if self._pools:
            self._thread.start()

    def wait_until_settled(self, timeout_s: float) -> bool:
        """Wait until every process offers its services or has failed to, once; False: not yet."""
        with self._settled:
            return self._settled.wait_for(
                lambda: self._is_stopping or all(i.is_settled for i in self._instances()), timeout_s
            )

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Let every process finish its call; one that does not end in time is killed."""
        with self._lock:
            is_first, self._is_stopping = not self._is_stopping, True
            for instance in self._instances():
                instance.retire()
            self._show()
            self._settled.notify_all()
        if is_first and self._thread.ident is not None:
            self._wake()
            self._thread.join(timeout_s)
            self._kill_rest()

    def __del__(self) -> None:
        os.close(self._wake_fd)  # not before: an order may come at any time

    def adjust(self, loads: Sequence[Load]) -> None:
        """Start or end a process where the load asks for it; to be called every second."""
        now = self._clock()
        with self._lock:
            for load in loads:
                pool = self._pools.get(load.name)
                if pool is not None and not self._is_stopping and not pool.is_restarting:
                    self._adjust(pool, load, now)
            self._show()

    def tell_log(self, file: str) -> None:
        """The node's log, to which the processes write too, goes on in a new file of that name."""
        with self._lock:
            for instance in self._instances():
                instance.tell_log(file)

    def tell_payloads(self, is_on: bool) -> None:
        """Whether they log what they fail at, from now on, and those that are started later."""
        shown = os.environ[PAYLOADS_VARIABLE] = "1" if is_on else ""
        with self._lock:
            for instance in self._instances():
                instance.tell_payloads(shown)

    # orders, which wait for nothing: they are given under the engine's lock

    def describe(self) -> list[dict[str, Any]]:
        """The servers for operators; fault: why a process is not started again."""
        return self._shown

    def is_own(self, name: str, uid: int) -> bool:
        """Whether the client of that uid is the process "NAME:pid" that was started here."""
        server = name.rpartition(":")[0]
        secrets = [one.secret for one in self._instances() if one.server.name == server]
        return any(secret and uid_of(secret) == uid for secret in secrets)

    def kill(self, name: str) -> None:
        """End the process "NAME:pid" at once: its service hangs."""
        self._order(partial(self._kill, name))

    def comes_back(self, name: str) -> bool:
        """Whether a process of that server which ends now is followed by another."""
        return name in self._returning

    def restart(self, name: str) -> None:
        """Replace the processes of a server one by one; ServerNotFound."""
        self._order(self._pool(name).begin_restart)

    def scale(self, name: str, count: int) -> None:
        """Have so many processes of a server; ServerNotFound, InvalidArgument."""
        if not 0 <= count <= PROCESSES_MAX:
            detail = f"{count} is not between 0 and {PROCESSES_MAX}"
            raise InvalidArgument(what="scale", detail=detail)
        self._order(partial(self._pool(name).scale, count))

    def _pool(self, name: str) -> Pool:
        if name not in self._pools:
            raise ServerNotFound(server=name)
        return self._pools[name]

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        self._wake()

    # with the lock held

    def _kill(self, name: str) -> None:
        for instance in self._instances():
            process = instance.process
            if process is not None and name == f"{instance.server.name}:{process.pid}":
                log.error("process %s is ended: its service ran past its limit", name)
                process.kill()

    def _carry_out(self) -> None:
        """What was ordered, and what goes on of it."""
        while self._orders:
            order = self._orders.popleft()
            if not self._is_stopping:
                order()
        for pool in self._pools.values():
            pool.go_on_restarting()

    def _show(self) -> None:
        self._shown = [pool.describe() for pool in self._pools.values()]
        self._returning = frozenset(
            name for name, pool in self._pools.items() if any(not i.fault for i in pool.wanted)
        )

    def _instances(self) -> list[Instance]:
        return [instance for pool in self._pools.values() for instance in pool.instances]

    def _adjust(self, pool: Pool, load: Load, now: float) -> None:
        wanted = pool.wanted
        change = pool.demand.change(now, len(wanted), load.servers, load.busy, load.waiting)
        if change > 0:
            log.info("server %s gets one more process: %d calls wait", load.name, load.waiting)
            pool.add()
        elif change < 0:
            log.info("server %s ends a process that is not needed", load.name)
            wanted[-1].retire()
        if change:
            self._wake()

    def _command(self, instance: Instance) -> list[str]:
        """Only --path holds the application's folders: what the process loads first is ours."""
        server = instance.server
        if server.name == RECOVERY:
            return [sys.executable, "-P", "-m", server.module, "--until-eof", self._address]
        if server.name.startswith(LETTERS):
            command = [sys.executable, "-P", "-m", server.module, "--config", str(self._config)]
            command += ["--name", server.name.removeprefix(LETTERS)]
            return [*command, "--until-eof", self._address]
        command = [sys.executable, "-P", "-m", "tpmon.server", "--connect", self._address]
        command += ["--name", server.name, "--until-eof", "--threads", str(server.threads)]
        for folder in server.python_path:
            command += ["--path", str(folder)]
        return [*command, server.module]

    # the watching thread

    def _watch(self) -> None:
        while True:
            with self._lock:
                self._carry_out()
                wait_ms = self._start_due()
                watched = self._watched()
                self._show()
                if self._is_stopping and not watched:
                    return
            for name in filter(None, self._wait(watched, wait_ms)):
                try:
                    self.on_ended(name)
                except Exception:
                    log.exception("the end of server %s could not be told", name)

    def _watched(self) -> dict[int, Instance]:
        """The descriptors that tell of an instance."""
        running = [i for i in self._instances() if i.process is not None]
        return {fd: i for i in running for fd in (i.pidfd, i.ready_fd) if fd >= 0}

    def _start_due(self) -> float:
        """Start what is due; milliseconds until something else is."""
        now, wait_ms = self._clock(), _LONG_MS
        for pool in self._pools.values():
            pool.instances = [i for i in pool.instances if i.is_wanted or i.process is not None]
            for instance in pool.instances:
                if instance.start_at is not None and instance.start_at <= now:
                    withheld = self._withheld_from(instance.server)
                    instance.spawn(self._command(instance), self._folder, now, withheld)
                if instance.start_at is not None:
                    wait_ms = min(wait_ms, (instance.start_at - now) * 1000)
        return max(0.0, wait_ms)

    def _wait(self, watched: dict[int, Instance], wait_ms: float) -> list[str]:
        """Wait until a process ends or there is something to do; the names of those that ended."""
        poll = select.poll()
        for fd in (self._wake_fd, *watched):
            poll.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(wait_ms)]
        if self._wake_fd in ready:
            os.eventfd_read(self._wake_fd)
        ended = []
        with self._lock:
            for fd in ready:
                instance = watched.get(fd)
                if instance is not None and fd == instance.pidfd:
                    ended.append(instance.reap(self._clock()))
                elif instance is not None:
                    instance.settle()
            self._show()
            self._settled.notify_all()
        return ended

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def _kill_rest(self) -> None:
        with self._lock:
            left = [i.process for i in self._instances() if i.process is not None]
            for process in left:
                log.warning("process %d does not end; it is killed", process.pid)
                process.kill()
        self._thread.join(STOP_TIMEOUT_S)


def _own(name: str, module: str) -> Server:
    """A process of the node's own, started again as often as it ends: without it branches would
    stay in doubt, and dead letters where they are."""
    return Server(
        name=name,
        module=module,
        svgname=None,
        min=1,
        max=1,
        python_path=(),
        restart_delay_s=0.5,
        restart_delay_max_s=10,
        maxrstart=-1,
        gperiod=60,
        idle_s=60,
        environment=(),
        secrets=(),
    )
