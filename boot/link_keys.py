"""The key of a node's links, changed while it runs.

    FILE          the key pair that the node shows
    FILE.next     the one that comes next: the other nodes are notified of it, over the links
    FILE.known    by the name of a node, its public keys in turn, the first as hms.conf has it

A node that learns another one's next key notes it, so that a boot knows it too, until hms.conf
says it.
"""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hms.boot.watched_files import next_key, stamp_of
from hms.errors.catalogue import LinkKeyError
from hms.server.links.keys import KeyPair, read_key_file

__all__ = ["LinkKeys", "keys_since", "note_key"]

log = logging.getLogger("hms.links")

_NONE = (0, 0, 0)


class LinkKeys:
    """file: of the node's pair, None without one. announce, rekey: see Links; on_shown: told of the
    key that is shown from then on."""

    def __init__(
        self,
        file: Path | None,
        announce: Callable[[str], None],
        rekey: Callable[[KeyPair], None],
        on_shown: Callable[[str], None] = lambda _key: None,
    ) -> None:
        self._file, self._announce, self._rekey = file, announce, rekey
        self._on_shown = on_shown
        self._seen = _NONE if file is None else stamp_of(file)
        self._shown = b"" if file is None else read_key_file(file).public
        self._seen_next = _NONE

    def look(self) -> None:
        """Tell of a key that comes next, and show one that has come; a file that cannot be used
        leaves what is shown."""
        if self._file is None:
            return
        if (stamp := stamp_of(next_key(self._file))) != self._seen_next:
            self._seen_next = stamp
            pair = _read(next_key(self._file)) if stamp[0] else None
            self._announce("" if pair is None else pair.public.decode())
        if (stamp := stamp_of(self._file)) != self._seen:
            self._seen = stamp
            pair = _read(self._file)
            if pair is not None and pair.public != self._shown:
                self._shown = pair.public
                self._rekey(pair)
                self._on_shown(pair.public.decode())
                log.warning("the links show the key %s from now on", pair.public.decode())


def _read(file: Path) -> KeyPair | None:
    try:
        return read_key_file(file)
    except LinkKeyError as error:
        log.error("the key of the links stays: %s", error)  # noqa: TRY400 - it says all
        return None


def _known_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.known")


def keys_since(file: Path | None, name: str, configured: str) -> list[str]:
    """The public keys of a node from the one of hms.conf on: that one, and those that came since.
    LinkKeyError for a file of them that cannot be read."""
    found = [] if file is None else _known(file).get(name, [])
    return found[found.index(configured) :] if configured in found else [configured]


def _known(file: Path) -> dict[str, list[str]]:
    path = _known_file(file)
    try:
        told: Any = json.loads(path.read_text())
        return {str(name): [str(key) for key in keys] for name, keys in told.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as fault:
        detail = f"{path} cannot be read ({fault}); hms.conf has to name the keys, then remove it"
        raise LinkKeyError(detail=detail) from fault


def note_key(file: Path, name: str, configured: str, key: str) -> None:
    """A node has, or is going to have, another public key than hms.conf says. OSError."""
    keys = keys_since(file, name, configured)
    if key in keys:
        return
    known = _known(file) | {name: [*keys, key]}
    path = _known_file(file)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(known, indent=1))
    draft.replace(path)
