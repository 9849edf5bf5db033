"""One server process after the other: how it is started, how it ended, whether another follows."""

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from hms.boot.entries import Server
from hms.boot.restarts import Demand, Restarts
from hms.boot.supervise import environment
from hms.client.core.log_output import PAYLOADS_VARIABLE
from hms.store.journal.descriptor_wait import with_descriptor
from hms.wire.client_identity import SECRET_BYTES
from tpmon.environment import SECRET_VARIABLE

__all__ = ["Instance", "Pool"]

log = logging.getLogger("hms.servers")


@dataclass(slots=True, eq=False)
class Instance:
    """A place for one process; start_at: when the next one is due, None when there is none.

    fault: why it is not started again; last_end: how the last process ended; is_serving: it offers
    its services. ready_fd: its process writes to it when it serves, or closes it by ending. The
    process reads a pipe whose other end only the node has: when the node ends, however that may be,
    the process ends too.
    """

    server: Server
    restarts: Restarts
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    ready_fd: int = -1
    start_at: float | None = 0.0
    is_wanted: bool = True
    is_settled: bool = False
    is_serving: bool = False
    fault: str = ""
    last_end: str = ""
    payloads: str = ""
    """What its process has heard of PAYLOADS_VARIABLE."""
    secret: bytes = field(default=b"", repr=False)
    """By which the node knows its present process, whatever others call themselves."""

    def spawn(
        self,
        command: Sequence[str],
        folder: os.PathLike[str],
        now: float,
        withheld: Container[str] = (),
    ) -> None:
        """Start a process; withheld: the node's variables that it does not get."""
        self.start_at, self.is_serving = None, False
        self.secret = os.urandom(SECRET_BYTES)
        inherited = {k: v for k, v in environment().items() if k not in withheld}
        own = {SECRET_VARIABLE: self.secret.hex()}
        self.payloads = inherited.get(PAYLOADS_VARIABLE, "")
        try:
            self.ready_fd, writer = with_descriptor(os.pipe)
        except OSError as fault:
            self.is_settled = True
            self._ended(f"its process cannot be started: {fault}", now)
            return
        try:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [*command[:-1], "--ready-fd", str(writer), command[-1]],
                stdin=subprocess.PIPE,
                pass_fds=[writer],
                cwd=folder,
                env=inherited | dict(v.split("=", 1) for v in self.server.environment) | own,
                # A terminal's Ctrl-C is for the node, which then ends it and what it forked.
                start_new_session=True,
            )
            assert process.stdin is not None
            os.set_blocking(process.stdin.fileno(), False)
            self.pidfd = os.pidfd_open(process.pid)
        except OSError as fault:  # without a pidfd, the closing of its pipe ends the process
            self.settle()
            self._ended(f"its process cannot be started: {fault}", now)
            return
        finally:
            os.close(writer)
        self.process = process
        log.info("server %s runs as process %d", self.server.name, process.pid)

    def tell_log(self, file: str) -> None:
        """Have its process write to a new file of that name; one that hears nothing is told again
        with the next file, so a full pipe is nothing to wait for."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self.process.stdin.fileno(), os.fsencode(f"{file}\n"))

    def tell_payloads(self, shown: str) -> None:
        """Have its process log payloads, or not; one whose pipe is full is told the next time."""
        if self.process is None or self.process.stdin is None or self.payloads == shown:
            return
        with contextlib.suppress(OSError):
            os.write(self.process.stdin.fileno(), f"{PAYLOADS_VARIABLE}={shown}\n".encode())
            self.payloads = shown

    def settle(self) -> None:
        """It serves now, or has ended."""
        self.is_settled = True
        if self.ready_fd >= 0:
            self.is_serving = self.process is not None and bool(os.read(self.ready_fd, 1))
            os.close(self.ready_fd)
            self.ready_fd = -1

    def reap(self, now: float) -> str:
        """Note that its process has ended; when it said no good-bye, the client name under which
        the node knows it."""
        process = self.process
        assert process is not None
        assert process.stdin is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # What a service forked; the number is the group's as long as this child is not reaped.
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        process.stdin.close()
        os.close(self.pidfd)
        self.process, self.pidfd = None, -1
        self.settle()
        self.is_serving = False
        if self.is_wanted:
            self._ended(f"process {process.pid} {_how(code)}", now)
        return f"{self.server.name}:{process.pid}" if code else ""

    def retire(self) -> None:
        """Let its process finish its call and end; none follows. A signal goes to a child that was
        not yet reaped, so it can reach no other process."""
        self.is_wanted, self.start_at = False, None
        if self.process is not None:
            self.process.terminate()
        else:  # who waits for it would wait for ever
            self.is_settled = True

    def _ended(self, how: str, now: float) -> None:
        server = self.server
        self.last_end = how
        self.start_at = self.restarts.ended(now)
        if self.start_at is not None:
            log.warning("server %s: %s; another is started", server.name, how)
            return
        self.fault = (
            f"{how}; after {server.maxrstart} restarts within {server.gperiod} s no other is "
            f"started. Correct {server.module} (hms serve {server.module} shows the fault), then "
            f"hms server restart {server.name}"
        )
        log.error("server %s: %s", server.name, self.fault)


@dataclass(slots=True)
class Pool:
    """The processes of one [server.NAME]. leaving: in a restart, those that are still to be
    replaced, newcomer: who replaces the next one."""

    server: Server
    demand: Demand
    instances: list[Instance] = field(default_factory=list)
    leaving: list[Instance] = field(default_factory=list)
    newcomer: Instance | None = None
    restarted: int = 0
    restart_faults: int = 0
    restart_fault: str = ""

    @property
    def is_restarting(self) -> bool:
        """Whether processes are being replaced."""
        return self.newcomer is not None

    @property
    def wanted(self) -> list[Instance]:
        """Those that are not being retired."""
        return [instance for instance in self.instances if instance.is_wanted]

    def add(self) -> Instance:
        """Have one more process."""
        server = self.server
        restarts = Restarts(
            server.restart_delay_s, server.maxrstart, server.gperiod, server.restart_delay_max_s
        )
        self.instances.append(Instance(server, restarts))
        return self.instances[-1]

    def begin_restart(self) -> None:
        """Replace every process by one that loads the module anew: the new one comes first, so
        that no call finds nobody."""
        if self.is_restarting:
            return
        self.leaving, self.restart_fault = self.wanted, ""
        self.newcomer = self.add()

    def go_on_restarting(self) -> None:
        """Let an old one go for a new one that serves; give up when the new one cannot."""
        while (newcomer := self.newcomer) is not None and newcomer.is_settled:
            if not newcomer.is_serving:
                self._give_up_restart(newcomer)
                return
            if self.leaving:
                self.leaving.pop(0).retire()
            self.newcomer = self.add() if self.leaving else None
            self.restarted += 0 if self.is_restarting else 1

    def _give_up_restart(self, newcomer: Instance) -> None:
        newcomer.retire()
        self.leaving, self.newcomer = [], None
        self.restart_faults += 1
        self.restart_fault = newcomer.last_end or "the new process did not begin to serve"
        log.error("server %s is not restarted: %s", self.server.name, self.restart_fault)

    def scale(self, count: int) -> None:
        """Have so many processes, at least; above MAX too."""
        self.demand.least, self.demand.most = count, max(count, self.demand.most, 1)
        given_up = [instance for instance in self.wanted if instance.fault]
        for instance in (*given_up, *[i for i in self.wanted if not i.fault][count:]):
            instance.retire()
        for _ in range(count - len(self.wanted)):
            self.add()

    def describe(self) -> dict[str, Any]:
        """The server for operators."""
        return {
            "name": self.server.name,
            "module": self.server.module,
            "min": self.demand.least,
            "max": self.demand.most,
            "pids": [i.process.pid for i in self.instances if i.process is not None],
            "restarts": sum(i.restarts.count for i in self.instances),
            "restarting": self.is_restarting,
            "restarted": self.restarted,
            "restart_faults": self.restart_faults,
            "restart_fault": self.restart_fault,
            "fault": next((i.fault for i in self.instances if i.fault), ""),
            "failing": next((i.last_end for i in self.wanted if not i.is_serving), ""),
        }


def _how(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
