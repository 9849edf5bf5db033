"""The disk of a shared store: what is gone is another's, and is never made again."""

import errno
import os
from pathlib import Path

from hms.errors.catalogue import StoreFenced
from hms.store.journal.disk import Identity, RealDisk
from hms.store.shared.generations import generation_of, present_folder

__all__ = ["SHARED_DISK", "SharedDisk", "fenced"]


class SharedDisk(RealDisk):
    """The journal looks at the identity of its lock before each write and after each sync: there it
    learns that its generation is gone."""

    def make_dir(self, path: Path) -> None:
        """Never a generation: an owner that was overtaken would begin an empty store."""
        if generation_of(path) and not path.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        super().make_dir(path)

    def stat(self, what: Path | str | int, /) -> Identity:
        """StoreFenced for a name in a generation that is gone."""
        try:
            return super().stat(what)
        except FileNotFoundError:
            folder = Path(what).parent if isinstance(what, str | Path) else Path()
            if generation_of(folder) and not folder.is_dir():
                raise fenced(folder) from None
            raise


def fenced(folder: Path) -> StoreFenced:
    """The generation is another's by now."""
    theirs = generation_of(present_folder(folder.parent))
    return StoreFenced(path=str(folder.parent), theirs=theirs, ours=generation_of(folder))


SHARED_DISK = SharedDisk()
