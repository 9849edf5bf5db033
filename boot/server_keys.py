"""Key files of encrypted listeners, looked at every second while the node runs.

The next key lies beside the one that is shown, in FILE.next: connected clients are notified of it.
When it has taken the place of FILE, the listener shows it, its connections are cut, and their
clients come back by what they were told, with their resume tokens.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from hms.boot.entries import Config, Node
from hms.boot.securing import Securing
from hms.boot.watched_files import next_key, stamp_of
from hms.errors.catalogue import KeyFileError, LinkKeyError
from hms.server.links.keys import KeyPair, make_key_file, read_key_file

__all__ = ["ServerKeys", "make_server_keys", "prepare_key", "read_server_key", "switch"]

log = logging.getLogger("hms.security")

Show = Callable[[str, tuple[bytes, bytes]], None]


class ServerKeys:
    """files: the key file of each listener by its name; link_key: the public key of the node's
    links, which no listener shows. show: has a listener show another key."""

    def __init__(
        self, files: dict[str, Path], link_key: str | None, securing: Securing | None, show: Show
    ) -> None:
        self._files = files if securing is not None else {}
        self._link_key = link_key
        self._securing = securing
        self._show = show
        self._seen = {name: stamp_of(file) for name, file in self._files.items()}
        self._shown = {name: read_key_file(file).public for name, file in self._files.items()}
        self._seen_next = dict.fromkeys(self._files, (0, 0, 0))
        self._next = dict.fromkeys(self._files, "")

    def look(self) -> None:
        """Tell of keys that come next, and show those that have come; a file that cannot be used
        leaves the key that is shown."""
        for name, file in self._files.items():
            self._look_at_next(name, next_key(file))
            if (stamp := stamp_of(file)) != self._seen[name]:
                self._seen[name] = stamp
                self._look_at(name, file)

    def _look_at(self, name: str, file: Path) -> None:
        pair = self._read(name, file)
        if pair is None or pair.public == self._shown[name] or self._securing is None:
            return
        self._shown[name] = pair.public
        self._show(name, (pair.public, pair.secret))
        self._securing.key_changed(f"listener:{name}", "server key", pair.public.decode())
        log.warning("listener %s shows the key %s from now on", name, pair.public.decode())

    def _look_at_next(self, name: str, file: Path) -> None:
        if (stamp := stamp_of(file)) != self._seen_next[name]:
            self._seen_next[name] = stamp
            pair = self._read(name, file) if stamp[0] else None
            self._next[name] = "" if pair is None else pair.public.decode()
        if self._next[name] and self._securing is not None:
            self._securing.announce(name, self._next[name])

    def _read(self, name: str, file: Path) -> KeyPair | None:
        try:
            return read_server_key(file, self._link_key)
        except KeyFileError as error:
            log.error("the key of listener %s stays: %s", name, error)  # noqa: TRY400 - it says all
            return None


def make_server_keys(
    config: Config, node: Node, securing: Securing | None, show: Show
) -> ServerKeys:
    """Those of a node's listeners."""
    found = {name: one for name, one in config.listeners.items() if name in node.listen}
    files = {name: one.server_key_file for name, one in found.items()}
    return ServerKeys(files, node.group.link_public_key, securing, show)


def read_server_key(file: Path, link_key: str | None = None) -> KeyPair:
    """The pair of a listener; KeyFileError when it cannot be used, or is that of the links."""
    try:
        pair = read_key_file(file)
    except LinkKeyError as fault:
        raise KeyFileError(path=str(file), detail=str(fault.fields["detail"])) from fault
    if pair.public.decode() == link_key:
        raise KeyFileError(path=str(file), detail="it is that of the node's links; make another")
    return pair


def prepare_key(file: Path) -> str:
    """Make the next key, unless it is there; its public half."""
    coming = next_key(file)
    if coming.exists():
        return read_server_key(coming).public.decode()
    try:
        return make_key_file(coming)
    except LinkKeyError as fault:
        raise KeyFileError(path=str(coming), detail=str(fault.fields["detail"])) from fault


def switch(file: Path) -> str:
    """The next key takes the place of the one before; its public half."""
    coming = next_key(file)
    public = read_server_key(coming).public.decode()
    coming.replace(file)
    return public
