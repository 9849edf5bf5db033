"""The policy as plain tables that everybody may see, and what is other between two of them.

A secret, a password's hash or a token's digest, is replaced by a digest of it, which says no more
than whether it is another one: what it is made of has 128 random bits at least. Options of a
plug-in may be anything, so they are taken for secrets, too, unless they name one.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hms.server.logins.secret_references import fault_of_reference
from hms.server.logins.security_document import SECTIONS, SecurityDocument, read_document

__all__ = ["differences_of", "is_secret", "plain_policy", "without_secrets"]

_HIDDEN = "secret "
_DIGEST_CHARACTERS = 16
Row = dict[str, Any]


def plain_policy(document: SecurityDocument) -> dict[str, Any]:
    """Section by section, as in the file."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    if "domain_password" in found:
        found["domain_password"] = _hidden(found["domain_password"])
    for user in found.get("user", {}).values():
        if "password" in user:
            user["password"] = _hidden(user["password"])
    for token in found.get("token", {}).values():
        token["sha256"] = _hidden(token["sha256"])
    for one in found.get("authenticator", {}).values():
        if "options" in one:
            one["options"] = {
                word: _hidden(value) if _may_be_secret(value) else value
                for word, value in one["options"].items()
            }
    return {"version": document.version, **found}


def without_secrets(policy: Mapping[str, Any]) -> tuple[SecurityDocument, list[str]]:
    """Of plain_policy() what can stand in a file again, and a note for each secret that is left
    out: how there is one again."""
    left = {word: value for word, value in policy.items() if word != "token"}
    notes = []
    if left.pop("domain_password", ""):
        notes.append("domain_password is left out")
    left["user"] = {}
    for name, user in policy.get("user", {}).items():
        left["user"][name] = {word: value for word, value in user.items() if word != "password"}
        if "password" in user:
            notes.append(f"the password of {name} is left out: hms user password {name}")
        if left["user"][name].pop("two_factors", False):  # its second proof is one of the secrets
            left["user"][name]["enabled"] = False
            notes.append(f"{name}, of two factors, is disabled: give it both, then enable it")
    for name, token in policy.get("token", {}).items():
        about = f"{name} of {token['user']}, until {token['expires_at']},"
        notes.append(f"the token {about} is left out: hms user token {token['user']} --id {name}")
    left["authenticator"] = {}
    for name, one in policy.get("authenticator", {}).items():
        options = one.get("options", {})
        shown = {word: value for word, value in options.items() if not is_secret(value)}
        left["authenticator"][name] = {**one, "options": shown} if options else one
        notes += [
            f"option {o} of authenticator {name} is left out" for o in options if o not in shown
        ]
    document, faults = read_document(left)
    assert not faults, faults
    return document, notes


def is_secret(value: object) -> bool:
    """Whether a value of such a table stands for a secret."""
    return isinstance(value, str) and value.startswith(_HIDDEN)


def _may_be_secret(value: object) -> bool:
    return isinstance(value, str) and bool(fault_of_reference(value))


def _hidden(value: str) -> str:
    digest = hashlib.sha256(value.encode()).hexdigest()
    return _HIDDEN + digest[:_DIGEST_CHARACTERS]


def differences_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Row]:
    """One row for each key that is other: where, what, and how it was and is. Of a list, what came
    to it and what left it."""
    rows: list[Row] = []
    for word in _keys(before, after):
        old, new = before.get(word), after.get(word)
        if word == "security":
            rows += _rows(word, old or {}, new or {})
        elif word in SECTIONS:
            for name in _keys(old or {}, new or {}):
                rows += _section(f"{word}.{name}", (old or {}).get(name), (new or {}).get(name))
        elif word not in ("version", "changed_by"):
            rows += _rows("", {word: old}, {word: new})
    return rows


def _section(where: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[Row]:
    what = {} if old is not None and new is not None else {"is": "new" if old is None else "gone"}
    rows: list[Row] = [{"section": where, **what}] if what else []
    return rows + _rows(where, old or {}, new or {})


def _rows(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Row]:
    return [
        {"section": where, "key": word, **_change(old.get(word), new.get(word))}
        for word in _keys(old, new)
        if old.get(word) != new.get(word)
    ]


def _change(old: Any, new: Any) -> Row:
    lists = [one for one in (old, new) if isinstance(one, list)]
    if lists and all(one is None or isinstance(one, list) for one in (old, new)):
        was, now = old or [], new or []
        return {
            "added": [one for one in now if one not in was],
            "removed": [one for one in was if one not in now],
        }
    return {"running": old, "file": new}


def _keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from dict.fromkeys([*old, *new])
