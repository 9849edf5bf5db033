"""hms-client.toml: which one is read, whether it is trusted, and every fault of it with its line.

One file is read: the one that HMS_CLIENT_CONFIG names, else hms-client.toml of the working
directory, else ~/.config/hms/client.toml. Its writer decides where a client goes and what it shows
there, so a file that another user could have written is refused. One of the working directory was
named by nobody: it may be part of what was unpacked there, so it names no secret elsewhere.
"""

import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hms.client.core.arguments import NAME_CHARACTERS_MAX, shown
from hms.client.profiles.checked_opening import open_regular
from hms.client.profiles.file_places import VARIABLE
from hms.client.profiles.profile_keys import ABSENT, KEYS, SECRETS, key_named
from hms.client.profiles.secret_references import file_of
from hms.errors.catalogue import ClientConfigError, InvalidArgument

__all__ = ["ClientFile", "read_file"]

FILE_BYTES_MAX = 1 << 20
OPEN_VARIABLES = "HMS_"
"""What the names of variables begin with that a file of the working directory may name."""

_Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A file without a fault. profiles, defaults: by key, values as the calls take them, secrets as
    references."""

    path: Path
    defaults: Mapping[str, Any] = field(default_factory=dict)
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    text: str = field(default="", repr=False)

    def where(self, *place: str) -> str:
        """FILE:LINE of a section or key."""
        return f"{self.path}:{_line_of(_lines_of(self.text), place)}"


def read_file(path: Path, *, is_found: bool = False) -> ClientFile:
    """The file, checked whole; is_found: in the working directory, and not named. ClientConfigError
    with every fault."""
    text = _text_of(path)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as fault:
        said = str(fault) if isinstance(fault, ValueError) else "it is nested too deeply"
        raise ClientConfigError(report=f"{path}: {said}") from fault
    checked = _Checked(path, is_found=is_found)
    checked.look_at(data)
    if checked.faults:
        lines = _lines_of(text)
        told = sorted((_line_of(lines, place), said) for place, said in checked.faults)
        report = "\n".join(f"{path}:{line}: {said}" for line, said in dict.fromkeys(told))
        raise ClientConfigError(report=report)
    return ClientFile(path, checked.defaults, checked.profiles, text)


def _text_of(path: Path) -> str:
    """Of a file that nobody else could have written."""

    def refused(detail: str) -> ClientConfigError:
        return ClientConfigError(report=f"{path}: {detail}")

    file, opened = open_regular(path, refused)
    with file:
        for about in (opened, _link_of(path, refused)):
            if about.st_uid not in (os.geteuid(), 0):
                raise refused(
                    f"belongs to another user (uid {about.st_uid}), who could have clients send a "
                    f"password elsewhere; take a copy of your own, or name another file in "
                    f"{VARIABLE}, {os.devnull} for none"
                )
            if not stat.S_ISLNK(about.st_mode) and about.st_mode & 0o022:
                raise refused("may be written by others: chmod go-w it")
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise refused("is larger than 1 MiB")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise ClientConfigError(report=f"{path}:{line}: is not UTF-8 text") from fault


def _link_of(path: Path, refused: Callable[[str], ClientConfigError]) -> os.stat_result:
    """The maker of a link has chosen the file."""
    try:
        return os.lstat(path)
    except OSError as fault:
        raise refused(f"cannot be read: {fault.strerror}") from fault


class _Checked:
    """The sections of a file as far as they are good, and the faults of the others."""

    def __init__(self, path: Path, *, is_found: bool) -> None:
        self._path, self._is_found = path, is_found
        self.faults: list[tuple[_Place, str]] = []
        self.defaults: dict[str, Any] = {}
        self.profiles: dict[str, dict[str, Any]] = {}

    def look_at(self, data: Mapping[str, Any]) -> None:
        """All of it."""
        for word, value in data.items():
            if word == "defaults" and isinstance(value, dict):
                self.defaults = self._section((word,), value)
            elif word == "profile" and isinstance(value, dict):
                for name, table in value.items():
                    self._look_at_profile(name, table)
            else:
                self._add((word,), f"{word!r} is neither [defaults] nor [profile.NAME]")

    def _look_at_profile(self, name: str, table: Any) -> None:
        place = ("profile", name)
        if not isinstance(table, dict):
            self._add(place, f"{name!r} stands in [profile]: a profile has a name, [profile.NAME]")
            return
        if not name.isprintable() or not 1 <= len(name) <= NAME_CHARACTERS_MAX:
            self._add(place, f"{shown(name)} is no name: 1 to {NAME_CHARACTERS_MAX} characters")
        held = self._section(place, table)
        self.profiles[name] = held
        if "password" in held and "user" not in held:
            self._add((*place, "password"), f"{_title(place)} password: user says whose it is")
        if "password" in held and "token" in held:
            self._add((*place, "token"), f"{_title(place)} token: there is a password; keep one")
        if "key_file" in held and "server_keys" not in held:
            text = "needs server_keys, those that the node may show"
            self._add((*place, "key_file"), f"{_title(place)} key_file: {text}")

    def _section(self, place: _Place, table: Mapping[str, Any]) -> dict[str, Any]:
        held = {}
        for name, value in table.items():
            key, title = key_named(name), _title(place)
            where = (*place, name)
            if key is None:
                self._add(where, f"{title} {_unknown(place, name, value)}")
            elif key.is_login and place == ("defaults",):
                text = "it says where a connection goes, or by what proof: it stands in a profile"
                self._add(where, f"{title} {name}: {text}")
            else:
                try:
                    held[name] = self._located(name, key.read(name, value))
                except InvalidArgument as fault:
                    self._add(where, f"{title} {name}: {fault.fields['detail']}")
        return held

    def _located(self, name: str, value: Any) -> Any:
        """Paths are absolute; what a file that nobody named may not name is refused."""
        folder = self._path.parent
        file = None
        if name == "key_file":
            file = folder / os.path.expanduser(value)  # noqa: PTH111 - no error without a home
            value = str(file)
        elif name in SECRETS:
            file = file_of(value, folder)
        if not self._is_found:
            return value
        trust = f"of a file in the working directory that is not named by {VARIABLE}"
        if file is not None and not file.resolve().is_relative_to(folder.resolve()):
            detail = f"{file} is in another folder; this is {trust}"
            raise InvalidArgument(what=name, detail=detail)
        if name in SECRETS and str(value).startswith("env:"):
            variable = str(value).removeprefix("env:")
            if not variable.startswith(OPEN_VARIABLES):
                detail = (
                    f"the name of the variable {variable} begins with no {OPEN_VARIABLES}; "
                    f"this is {trust}"
                )
                raise InvalidArgument(what=name, detail=detail)
        return value

    def _add(self, place: _Place, text: str) -> None:
        self.faults.append((place, text))


def _title(place: _Place) -> str:
    words = [word if word.isprintable() else shown(word) for word in place]
    return f"[{'.'.join(words)}]"


def _unknown(place: _Place, name: str, value: Any) -> str:
    if isinstance(value, dict):
        whole = f'[{place[0]}."{".".join((*place[1:], name))}"]'
        return f"has a section {name!r} inside; a name with a dot is quoted: {whole}"
    if name in ABSENT:
        return f"{name}: is not available; {ABSENT[name]}"
    from difflib import get_close_matches  # noqa: PLC0415 - only of a fault

    near = get_close_matches(name, [key.name for key in KEYS], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown key {shown(name)}{hint}"


def _line_of(lines: Mapping[_Place, int], place: _Place) -> int:
    """Its line, else that of what it stands in."""
    return next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), 1)


def _lines_of(text: str) -> dict[_Place, int]:
    """Where each section and key begins; tomllib does not tell."""
    found: dict[_Place, int] = {}
    section: _Place = ()
    for number, line in enumerate(text.split("\n"), start=1):
        written = line.strip()
        if written.startswith("[") and "=" not in written.partition("#")[0]:
            section = place = _words(written)
        else:
            name, equals, _ = written.partition("=")
            words = _words(f"{name} = 0") if equals and not written.startswith("#") else ()
            place = (*section, *words) if words else ()
        for length in range(1, len(place) + 1):
            found.setdefault(place[:length], number)
    return found


def _words(line: str) -> _Place:
    """The names of one line; none of a line that is not whole, as within a list."""
    try:
        level: Any = tomllib.loads(line)
    except (ValueError, RecursionError):
        return ()
    return tuple(_path_of(level))


def _path_of(level: Any) -> Iterator[str]:
    while isinstance(level, dict) and level:
        word, level = next(iter(level.items()))
        yield word
