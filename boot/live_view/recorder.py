"""What is seen, written for later: a look on a line."""

import json
from pathlib import Path
from typing import IO, Any

__all__ = ["Recorder"]


class Recorder:
    """path: where a recording goes that was asked for from the beginning, None for none."""

    def __init__(self, path: Path | None = None) -> None:
        self._file: IO[str] | None = None
        self.path: Path | None = None
        if path is not None:
            self.begin(path)

    @property
    def is_on(self) -> bool:
        """Whether looks are written."""
        return self._file is not None

    def begin(self, path: Path) -> None:
        """Write from the next look on; raises OSError."""
        self._file = path.open("w", encoding="utf-8")
        self.path = path

    def note(self, said: dict[str, Any]) -> None:
        """Write a look, so that a view that is killed has lost none; raises OSError, after which
        nothing more is written."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(said) + "\n")
            self._file.flush()
        except OSError:
            self._end_with_fault()
            raise

    def end(self) -> None:
        """Write no more."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _end_with_fault(self) -> None:
        try:
            self.end()
        except OSError:
            self._file = None  # the bytes that closing writes find no room either
