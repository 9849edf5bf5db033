"""File transfer: files on their way between clients and the folder beside the log (F-F6).

Commands come in the order of their connection and are only put in line; what touches the disk is
done by storage workers, one at a time for each file, and answered when it is done. What is in line
for a file is bounded: a client that sends ahead of the answers is refused.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from hms.engine.effects import Effects, Refusal, Reply
from hms.engine.engine import Engine
from hms.errors.catalogue import (
    FileGap,
    InvalidArgument,
    NotSupported,
    SpoolFailed,
    SpoolFull,
    StoreFull,
    TooManyRequests,
)
from hms.errors.tree import HmsError
from hms.server.file_transfer_jobs import Submit, TransferJobs
from hms.server.rare_lines import RareLines
from hms.store.files import FileStore, Part
from hms.wire import structures as wire

log = logging.getLogger("hms.spool")

WAITING_MAX = 64
"""So many commands may wait for one file."""
WAITING_BYTES_MAX = 8 << 20
ALL_WAITING_BYTES_MAX = 64 << 20
"""What waits to be written of all files together."""
COMING_MAX = 256
"""So many files may be coming at once."""
COMING_OF_ONE_MAX = 64
"""So many of them from one client."""
IDLE_MS = 10_000
"""One of them that has not come on for so long makes way to a further one."""
READ_BYTES_MAX = 256 << 10
OFFSET_MAX = 1 << 62
READS_MAX = 32
"""So many reads of one connection may wait."""
SWEEP_MS = 60_000

Change = Callable[[Callable[[Effects, int], None]], None]
Work = Callable[[], dict[str, Any] | None]
_Done = TypeVar("_Done")


class _Line:
    """What waits for one file."""

    def __init__(self) -> None:
        self.part: Part | None = None
        self.waiting: deque[tuple[int, int, int, Work]] = deque()
        self.size_bytes = 0
        self.is_worked_on = False
        self.used_ms = 0


NO_FOLDER = "The node has no folder for it that other machines see; send it as a body."


class FileTransfer:
    """See the module. Everything but the jobs is called under the engine's lock."""

    def __init__(
        self,
        files: FileStore | None,
        engine: Engine,
        change: Change,
        submit: Submit,
        refused: Callable[[], str | None],
    ) -> None:
        self._store, self._engine = files, engine
        self._change, self._refused = change, refused
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()
        self._jobs = TransferJobs(submit)
        self._told = RareLines(log.warning)
        self._reads: Counter[int] = Counter()
        self._swept_ms = 0
        self._waiting_bytes = 0
        self.handlers: dict[type, Callable[..., None]] = {
            wire.OpenFile: self._open,
            wire.CloseFile: self._close,
            wire.ReadFile: self._read,
        }

    @property
    def _files(self) -> FileStore:
        if self._store is None:
            raise NotSupported(feature="a file message", instead=NO_FOLDER)
        return self._store

    # commands

    def _open(
        self, connection: int, correlation: int, request: wire.OpenFile, now_ms: int, _fx: Effects
    ) -> None:
        """A file begins to come, or goes on."""
        self._check_space()
        name = self._name(connection, request.handle)
        with self._lock:
            line = self._lines.get(name) or self._begin_line(name, now_ms)
        work = partial(self._opened, line, name, request.size_bytes)
        self._put(line, (connection, correlation, 0, work), now_ms)

    def block(
        self, connection: int, correlation: int, head: wire.FileBlock, data: bytes, now_ms: int
    ) -> None:
        """Bytes of a file that is coming."""
        self._check_space()
        line = self._line(connection, head.handle)
        work = partial(self._wrote, line, head.offset, data)
        self._put(line, (connection, correlation, len(data), work), now_ms)

    def _close(
        self, connection: int, correlation: int, request: wire.CloseFile, now_ms: int, fx: Effects
    ) -> None:
        """All of a file has come. Of one that is not open only a repetition is answered."""
        files = self._files
        name = self._name(connection, request.handle)
        with self._lock:
            line = self._lines.get(name)
        if line is None:
            full = files.found(name, request.sha256)
            if full is None or full not in self._engine.state.files.since_ms:
                raise FileGap(file=name, offset=0, wanted=0)
            fx.out.append(Reply(connection, correlation, {"file": full, "url": files.url(full)}))
            return
        work = partial(self._finished, line, name, request.sha256)
        self._put(line, (connection, correlation, 0, work), now_ms)

    def _read(
        self, connection: int, correlation: int, request: wire.ReadFile, _now: int, _fx: Effects
    ) -> None:
        """Bytes of a file that is there."""
        if not 0 < request.size_bytes <= READ_BYTES_MAX or request.offset > OFFSET_MAX:
            detail = f"{request.size_bytes} at {request.offset}: at most {READ_BYTES_MAX} are read"
            raise InvalidArgument(what="size_bytes", detail=detail)
        _ = self._files
        with self._lock:
            count = self._reads[connection]
            if count >= READS_MAX:
                raise TooManyRequests(what="reads of files", count=count, limit=READS_MAX)
            self._reads[connection] += 1
        work = partial(self._data, request.file, request.offset, request.size_bytes)
        self._jobs.put(partial(self._give, connection, correlation, work))

    def drop(self, file: str) -> None:
        """No message names it any more, and the log knows."""
        if self._store is not None:
            self._jobs.put(partial(self._store.remove, file))

    def tick(self, now_ms: int) -> None:
        """Files that stopped to come are given up, now and then."""
        self._jobs.go_on()
        if self._lines:
            self._leave_room(now_ms)
        if self._store is not None and now_ms - self._swept_ms >= SWEEP_MS:
            self._swept_ms = now_ms
            self._jobs.put(partial(self._sweep, self._store, now_ms))

    def _check_space(self) -> None:
        """P10: what is left of the disk is for acknowledgements."""
        _ = self._files
        refused = self._refused()
        if refused is not None:
            raise StoreFull(path="the store", detail=refused)

    # in line

    def _name(self, connection: int, handle: int) -> str:
        uid = self._engine.state.connection(connection).uid
        return f"{uid:016x}-{handle:08x}"

    def _begin_line(self, name: str, now_ms: int) -> _Line:
        """A further file. What the same client left, or one that is gone, makes way. Under the
        lock."""
        uid = name.partition("-")[0]
        own = [known for known in self._lines if known.startswith(uid)]
        if len(own) >= COMING_OF_ONE_MAX:
            idle = [known for known in own if self._is_idle(known, now_ms)]
            self._make_way(idle, "files that come from this client", COMING_OF_ONE_MAX)
        elif len(self._lines) >= COMING_MAX:
            idle = [known for known in self._lines if self._is_idle(known, now_ms)]
            self._make_way(self._of_the_gone() or idle, "files that come", COMING_MAX)
        line = self._lines[name] = _Line()
        return line

    def _of_the_gone(self) -> list[str]:
        """The files whose senders are not connected."""
        here = {f"{one.uid:016x}" for one in self._engine.state.connections.values()}
        return [known for known in self._lines if known.partition("-")[0] not in here]

    def _leave_room(self, now_ms: int) -> None:
        """Keep no room for what killed clients have announced: what has come of it is enough."""
        with self._lock:
            for name in self._of_the_gone():
                if self._is_idle(name, now_ms):
                    self._put_aside(name)

    def _is_idle(self, name: str, now_ms: int) -> bool:
        line = self._lines[name]
        return not line.is_worked_on and line.used_ms + IDLE_MS < now_ms

    def _make_way(self, names: list[str], what: str, limit: int) -> None:
        """Put one of these aside."""
        idle = [(self._lines[n].used_ms, n) for n in names if not self._lines[n].is_worked_on]
        if not idle:
            raise TooManyRequests(what=what, count=limit, limit=limit)
        self._put_aside(min(idle)[1])

    def _put_aside(self, name: str) -> None:
        """When its sender comes back it goes on from what the disk has."""
        part = self._lines.pop(name).part
        if part is not None:
            self._files.put_aside(part)

    def _line(self, connection: int, handle: int) -> _Line:
        name = self._name(connection, handle)
        found = self._lines.get(name)
        if found is None:
            raise FileGap(file=name, offset=0, wanted=0)
        return found

    def _put(self, line: _Line, item: tuple[int, int, int, Work], now_ms: int) -> None:
        with self._lock:
            count, size = len(line.waiting), line.size_bytes + item[2]
            if count >= WAITING_MAX or size > WAITING_BYTES_MAX:
                raise TooManyRequests(what="blocks of a file", count=count, limit=WAITING_MAX)
            if item[2] and self._waiting_bytes + item[2] > ALL_WAITING_BYTES_MAX:
                what, limit = "bytes of blocks of files", ALL_WAITING_BYTES_MAX
                raise TooManyRequests(what=what, count=self._waiting_bytes, limit=limit)
            self._waiting_bytes += item[2]
            line.waiting.append(item)
            line.size_bytes, line.used_ms = size, now_ms
            is_idle, line.is_worked_on = not line.is_worked_on, True
        if is_idle:
            self._jobs.put(partial(self._work, line))

    # storage workers

    def _give(self, connection: int, correlation: int, work: Work) -> None:
        with self._lock:
            self._reads[connection] -= 1
            if not self._reads[connection]:
                del self._reads[connection]
        self._answer(connection, correlation, work)

    def _work(self, line: _Line) -> None:
        while True:
            with self._lock:
                if not line.waiting:
                    line.is_worked_on = False
                    return
                connection, correlation, size, work = line.waiting.popleft()
                line.size_bytes -= size
                self._waiting_bytes -= size
            self._answer(connection, correlation, work)

    def _answer(self, connection: int, correlation: int, work: Work) -> None:
        answer: Reply | Refusal
        try:
            answer = Reply(connection, correlation, work())
        except (SpoolFull, SpoolFailed) as error:
            self._told.say("%s", error)
            answer = Refusal(connection, correlation, error.with_traceback(None))
        except HmsError as error:
            answer = Refusal(connection, correlation, error.with_traceback(None))
        self._change(lambda fx, _now_ms: fx.out.append(answer))

    def _opened(self, line: _Line, name: str, size_bytes: int) -> dict[str, Any]:
        part = line.part
        if part is None or part.size_bytes != size_bytes or part.is_given_up:
            if part is not None:
                part.close()
            line.part = None
            try:
                begin = partial(self._files.begin, name, size_bytes)
                part = line.part = self._with_room(line, begin)
            except HmsError:
                self._forget(line, name)
                raise
        return {"offset": part.written_bytes}

    def _forget(self, line: _Line, name: str) -> None:
        """Nothing of a file is coming any more."""
        line.part = None
        with self._lock:
            if self._lines.get(name) is line:
                del self._lines[name]

    def _wrote(self, line: _Line, offset: int, data: bytes) -> None:
        if line.part is None:
            raise FileGap(file="that is not open", offset=offset, wanted=0)
        self._with_room(line, partial(self._files.write, line.part, offset, data))

    def _with_room(self, line: _Line, work: Callable[[], _Done]) -> _Done:
        """What needs room; when there is none, what is kept for files that do not come on makes
        way, though their senders are there."""
        try:
            return work()
        except SpoolFull:
            with self._lock:
                idle = [name for name in self._lines if self._is_idle(name, line.used_ms)]
                for name in idle:
                    self._put_aside(name)
            if not idle:
                raise
        return work()

    def _finished(self, line: _Line, name: str, sha256: str) -> dict[str, Any]:
        full = self._files.found(name, sha256)
        if full is None:
            if line.part is None:
                raise FileGap(file=name, offset=0, wanted=0)
            try:
                full = self._files.finish(line.part, sha256)
            except (SpoolFailed, SpoolFull):
                self._forget(line, name)
                raise
        elif line.part is not None:
            line.part.close()
        self._forget(line, name)
        self._change(lambda _fx, now_ms: self._engine.file_stored(full, now_ms))
        return {"file": full, "url": self._files.url(full)}

    def _data(self, file: str, offset: int, size: int) -> dict[str, Any]:
        return {"data": self._files.read(file, offset, size)}

    def _sweep(self, files: FileStore, now_ms: int) -> None:
        life_ms = self._engine.state.settings.file_life_ms
        with self._lock:
            idle = [
                name
                for name, line in self._lines.items()
                if not line.is_worked_on and line.used_ms + life_ms < now_ms
            ]
            lines = [self._lines.pop(name) for name in idle]
            coming = {f"{name}.part" for name in self._lines}
        for line in lines:
            if line.part is not None:
                line.part.close()
        for file in files.abandoned(life_ms / 1000):
            if file not in coming:
                log.warning("the file %s stopped to come and is given up", file)
                files.remove(file)
