"""Settings of a connection: arguments, then the profile, then [defaults] of the file."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hms.client.core.arguments import check_text
from hms.client.profiles.client_file import ClientFile, read_file
from hms.client.profiles.file_places import (
    HOME_FILE,
    VARIABLE,
    WORKING_FILE,
    find_file,
    home_file,
)
from hms.client.profiles.profile_keys import KEYS, SECRETS, Part
from hms.client.profiles.secret_references import secret_of
from hms.errors.catalogue import ClientConfigError, ProfileNotFound

__all__ = ["Origin", "connection_settings", "origins", "settings_of"]


class Origin(NamedTuple):
    """What holds of a key, and where that is said."""

    name: str
    value: Any
    where: str


def connection_settings(profile: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a connection by what was given, its profile and the file: with `addresses`
    where the profile has some, and `member_defaults`. profile None: [defaults] alone. Secrets are
    read. ClientConfigError, ProfileNotFound."""
    found = find_file()
    file = None if found is None else read_file(found[0], is_found=found[1])
    if profile is not None:
        check_text("profile", profile, least=1)
        _check_single(profile, file, is_found=found is not None and found[1])
    return settings_of(file, profile, given)


def settings_of(
    file: ClientFile | None, profile: str | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """The same of one file."""
    own = _profile(file, profile)
    if "token" in given or "password" in given:  # one takes the other's place
        own = {name: value for name, value in own.items() if name not in SECRETS}
    held = {**(file.defaults if file else {}), **own}
    settings = {key.name: held[key.name] for key in _of(Part.CONNECTION) if key.name in held}
    members: dict[str, dict[str, Any]] = {
        part: {key.name: held[key.name] for key in _of(part) if key.name in held}
        for part in (Part.SESSION, Part.PRODUCER, Part.CONSUMER)
    }
    for name in SECRETS:
        if name in own and file is not None and profile is not None:
            settings[name] = _secret(file, profile, name, own[name])
    return {**settings, "member_defaults": members, **given}


def origins(file: ClientFile | None, profile: str | None) -> list[Origin]:
    """What holds of each key where no argument says another value; secrets as references."""
    own = _profile(file, profile)
    found = []
    for key in KEYS:
        if key.name in own and file is not None and profile is not None:
            where = file.where("profile", profile, key.name)
            found.append(Origin(key.name, own[key.name], f"[profile.{profile}], {where}"))
        elif file is not None and key.name in file.defaults:
            where = f"[defaults], {file.where('defaults', key.name)}"
            found.append(Origin(key.name, file.defaults[key.name], where))
        else:
            found.append(Origin(key.name, key.built_in, "built in"))
    return found


def _of(part: Part) -> list[Any]:
    return [key for key in KEYS if key.part is part]


def _profile(file: ClientFile | None, profile: str | None) -> Mapping[str, Any]:
    if profile is None:
        return {}
    if file is None:
        where = f"there is neither {WORKING_FILE} in the working directory nor {HOME_FILE}"
        raise ProfileNotFound(name=profile, where=where)
    if profile not in file.profiles:
        names = ", ".join(sorted(file.profiles)) or "none"
        raise ProfileNotFound(name=profile, where=f"{file.path} has {names}")
    return file.profiles[profile]


def _check_single(profile: str, file: ClientFile | None, *, is_found: bool) -> None:
    """A file that lies in the working directory takes no profile of the user's own file over."""
    home = home_file() if is_found else None
    if file is None or home is None or profile not in file.profiles:
        return
    other = read_file(home)
    if profile in other.profiles and not home.samefile(file.path):
        report = (
            f"{file.where('profile', profile)}: the profile {profile} stands in "
            f"{other.where('profile', profile)} too; name the file that is meant in {VARIABLE}"
        )
        raise ClientConfigError(report=report)


def _secret(file: ClientFile, profile: str, name: str, reference: str) -> Any:
    """A password as it is now; of a token a function that reads it at each login."""

    def refused(detail: str) -> ClientConfigError:
        where = file.where("profile", profile, name)
        return ClientConfigError(report=f"{where}: [profile.{profile}] {name}: {detail}")

    def read() -> str:
        return secret_of(reference, file.path.parent, refused)

    value = read()
    made: str | Callable[[], str] = read if name == "token" else value
    return made
