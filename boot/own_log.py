"""The log of this process: where its lines go, when it begins a new file, and that it is told to.

A log that is `log_file` is rotated by the process that writes it, at a size and at an age; what was
rotated is compressed on a thread of its own, at low pace. SIGHUP begins a new file too, after
somebody else, such as logrotate, has moved the old one. Server processes write to the same file;
they are told where it goes on. A log that goes to a terminal, to the journal or to a supervisor's
pipe stays as it is.
"""

import contextlib
import logging
import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hms.boot.entries import Node
from hms.boot.log_search import begun_ms
from hms.boot.rotated_files import RotatedFiles
from hms.client.core.log_output import ERRORS_FD, LogOutput, begin_file

__all__ = ["OwnLog", "file_of_errors"]

log = logging.getLogger("hms.node")

LOOK_S = 1.0
COMPRESS_AGAIN_S = 10.0
_DELETED = " (deleted)"


def file_of_errors(fd: int = ERRORS_FD) -> Path | None:
    """Where what the process writes goes, when that is a file; its name may change later."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    return Path(str(Path(f"/proc/self/fd/{fd}").readlink()).removesuffix(_DELETED))


class OwnLog:
    """node: what is configured; reload: tells, after SIGHUP, what level holds now.

    start() begins the threads; until then nothing is rotated.
    """

    def __init__(
        self,
        node: Node,
        output: LogOutput,
        reload: Callable[[], str | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._output, self._reload, self._clock = output, reload, clock
        self._bytes_max, self._age_ms_max = node.log_max_bytes, round(node.log_age_s * 1000)
        self._file = file_of_errors()
        configured = node.log_file.resolve()
        moved = (configured.name + ".", configured.name + "-")
        if (
            self._file is not None
            and self._file.parent == configured.parent
            and self._file.name.startswith(moved)
        ):
            self._file = configured  # it was moved away while nobody listened to SIGHUP
        self._is_rotated = self._file == configured
        self._files = RotatedFiles(configured, node.log_files, clock)
        self._tell: Callable[[str], object] = lambda _file: None
        self._lock = threading.Lock()
        self._rotated = threading.Event()
        self._begun_ms = 0
        self._fault = ""

    @property
    def lines_dropped(self) -> int:
        """Since the process began: the disk of the log had no room."""
        return self._output.dropped

    def tells(self, tell: Callable[[str], object]) -> None:
        """Who is told the path of the log when it goes on in a new file."""
        self._tell = tell

    def start(self) -> None:
        """From now on SIGHUP begins a new file, and so do size and age."""
        signal.signal(signal.SIGHUP, self._on_hangup)
        if not self._is_rotated:
            return
        with contextlib.suppress(OSError):
            self._files.mend()
        if not self._is_there():
            self._go_on()
        self._begun_ms = self._begin_of_file()
        for work, name in ((self._watch, "hms-log"), (self._compress, "hms-log-files")):
            threading.Thread(target=work, name=name, daemon=True).start()

    def look(self) -> None:
        """Rotate when it is due."""
        with self._lock:
            try:
                is_due = self._is_due()
                if is_due and not self._is_there():  # moved, and no signal came
                    self._go_on()
                elif is_due:
                    self._rotate()
                self._fault = ""
            except OSError as fault:
                if self._fault != str(fault):
                    self._fault = str(fault)
                    log.warning("the log is not rotated: %s", fault)

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_S)
            self.look()

    def _is_due(self) -> bool:
        size = os.fstat(ERRORS_FD).st_size
        now_ms = round(self._clock() * 1000)
        if not size or self._output.has_rest:
            self._begun_ms = self._begun_ms if size else now_ms
            return False
        is_old = self._age_ms_max and now_ms - self._begun_ms >= self._age_ms_max
        return bool(is_old or (self._bytes_max and size >= self._bytes_max))

    def _is_there(self) -> bool:
        """Whether the log has its name still."""
        assert self._file is not None
        try:
            there = self._file.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(ERRORS_FD))

    def _rotate(self) -> None:
        fd = self._files.begin_next()
        for standard in (1, ERRORS_FD):
            os.dup2(fd, standard)
        os.close(fd)
        self._begun_ms = round(self._clock() * 1000)
        self._tell(str(self._file))
        self._files.prune()
        self._rotated.set()

    def _go_on(self) -> None:
        """In a file of that name, which is there or not."""
        self._output.give_up_rest()
        begin_file(str(self._file))
        self._begun_ms = self._begin_of_file()
        self._tell(str(self._file))

    def _begin_of_file(self) -> int:
        assert self._file is not None
        return begun_ms(self._file) or round(self._clock() * 1000)

    def _compress(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        said = ""
        while True:
            try:
                is_done, fault = self._files.compress(), ""
                self._files.prune()
            except OSError as failed:
                is_done, fault = False, str(failed)
            if fault and fault != said:
                log.warning("rotated files of the log are not compressed yet: %s", fault)
            said = fault
            if not is_done:
                self._tell(str(self._file))
            self._rotated.wait(None if is_done else COMPRESS_AGAIN_S)
            self._rotated.clear()

    def _on_hangup(self, *_: object) -> None:
        threading.Thread(target=self._hung_up, name="hms-hangup", daemon=True).start()

    def _hung_up(self) -> None:
        """What was moved away is left alone."""
        try:
            with self._lock:
                if self._file is not None:
                    self._go_on()
        except OSError as fault:
            log.warning("the log is not opened anew: %s", fault)
            return
        log.info("the log begins anew")
        if (level := self._reload()) is not None:
            logging.getLogger().setLevel(level)
