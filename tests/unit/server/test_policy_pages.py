"""Users and roles a page at a time: each once, in order, and nothing of them that is secret."""

import json
from datetime import UTC, datetime

import pytest

from hms.engine.security import Policy
from hms.errors.catalogue import InvalidArgument
from hms.server.logins.policy_pages import NAMES_SHOWN, PERMISSIONS_SHOWN, PolicyPages
from hms.server.logins.security_document import (
    AuthenticatorEntry,
    RoleEntry,
    SecurityDocument,
    TokenEntry,
    UserEntry,
    role_of,
)
from hms.wire.operations import ListNames

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HASH = "$argon2id$v=19$m=8192,t=1,p=1$c2FsdHNhbHQ$aGFzaA"
USERS = 10_000


def pages(document):
    roles = {name: role_of(entry) for name, entry in document.role.items()}
    return PolicyPages(document, Policy(roles))


@pytest.fixture(scope="module")
def crowd():
    """Ten thousand users of two roles; every tenth is disabled."""
    role = {
        "desk": RoleEntry(permissions=("produce queue:orders.*",)),
        "till": RoleEntry(permissions=("produce queue:*", "consume queue:till"), roles=("desk",)),
    }
    user = {
        f"u{n:05}": UserEntry(
            password=HASH, roles=("till" if n % 2 else "desk",), enabled=n % 10 != 0
        )
        for n in range(USERS)
    }
    return pages(SecurityDocument(role=role, user=user))


def test_all_users_come_once_a_page_at_a_time(crowd):
    """Ten thousand of them are in no answer together."""
    found, behind = [], ""
    while True:
        said = crowd.users(ListNames(behind=behind))
        assert (len(said["users"]), said["count"]) == (100, USERS)
        found += [one["name"] for one in said["users"]]
        behind = found[-1]
        if not said["more"]:
            break
    assert found == [f"u{n:05}" for n in range(USERS)]


def test_users_are_found_by_a_part_of_their_name(crowd):
    """And a page behind a name that is gone begins where it would be."""
    said = crowd.users(ListNames(names="999", limit=5))
    assert [one["name"] for one in said["users"]][:2] == ["u00999", "u01999"]
    assert (said["count"], said["more"]) == (19, True)
    behind = crowd.users(ListNames(behind="u09998x"))["users"]
    assert [one["name"] for one in behind] == ["u09999"]
    assert crowd.users(ListNames(names="nobody")) == {"users": [], "more": False, "count": 0}


def test_who_may_is_told_by_names_up_to_a_number(crowd):
    """Nobody who cannot log in is among them."""
    (row,) = [one for one in crowd.matrix("queue:orders.eu", "", NOW) if one["action"] == "produce"]
    assert (row["all_count"], row["some_count"]) == (9000, 0)
    assert row["all"] == [f"u{n:05}" for n in range(60) if n % 10][:NAMES_SHOWN]
    rows = {one["action"]: one for one in crowd.matrix("queue:*", "u00001", NOW)}
    assert (rows["produce"]["all"], rows["consume"]["some"]) == (["u00001"], ["u00001"])
    assert rows["browse"]["all_count"] == rows["browse"]["some_count"] == 0
    assert all(not one["all"] for one in crowd.matrix("queue:*", "u00010", NOW))  # disabled


def test_a_user_and_a_role_are_told_with_what_they_may(crowd):
    """By which role, too."""
    user = crowd.user("u00001")
    assert user["permissions"] == [
        "produce queue:* (role till)",
        "consume queue:till (role till)",
        "produce queue:orders.* (role till > desk)",
    ]
    role = crowd.role("till")
    assert role["permissions"] == ["produce queue:*", "consume queue:till"]
    assert role["included"] == ["produce queue:orders.* (role till > desk)"]
    assert (len(role["users"]), role["user_count"]) == (NAMES_SHOWN, USERS // 2)
    names = [one["name"] for one in crowd.roles(ListNames())["roles"]]
    assert names == sorted(names)
    assert {"desk", "till", "admin"} <= {*names}
    assert crowd.role("admin")["built_in"]


def test_of_very_many_permissions_the_first_are_told_and_how_many_there_are():
    """A role may have thousands."""
    every = tuple(f"produce queue:q{n}" for n in range(PERMISSIONS_SHOWN + 7))
    document = SecurityDocument(
        role={"r": RoleEntry(permissions=every)}, user={"u": UserEntry(roles=("r",))}
    )
    for said in (pages(document).user("u"), pages(document).role("r")):
        assert len(said["permissions"]) == PERMISSIONS_SHOWN
        assert said["permission_count"] == PERMISSIONS_SHOWN + 7


def test_nothing_secret_is_in_any_answer():
    """Neither a password's hash nor a token's digest."""
    digest = "ab" * 32
    document = SecurityDocument(
        user={"u": UserEntry(password=HASH, roles=("admin",), not_after=NOW)},
        token={"u.1": TokenEntry(user="u", sha256=digest, expires_at=NOW)},
        authenticator={
            "corp": AuthenticatorEntry(kind="plug-in", plug_in="x", role_map={"*": "monitor"})
        },
    )
    made = pages(document)
    every = [made.users(ListNames()), made.user("u"), made.roles(ListNames()), made.role("admin")]
    every += [{"rows": made.matrix("queue:*", "", NOW)}]
    text = json.dumps(every)
    assert (HASH in text, digest in text) == (False, False)
    assert every[1]["tokens"] == ["u.1"]
    assert every[1]["logs in by"] == ["password", "token"]
    view = next(one for one in every[-1]["rows"] if one["action"] == "view")
    assert view["some"] + view["all"] == ["corp:monitor"]  # the time of u is over


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda p: p.user("u0001"), "there is no user 'u0001'"),
        (lambda p: p.role("tilll"), "did you mean 'till'?"),
        (lambda p: p.matrix("quue:x", "", NOW), "did you mean 'queue'?"),
        (lambda p: p.matrix("queue:*", "nobody", NOW), "there is no user 'nobody'"),
    ],
)
def test_what_there_is_not_is_named(crowd, ask, said):
    """With what may have been meant."""
    with pytest.raises(InvalidArgument) as caught:
        ask(crowd)
    assert said in str(caught.value)
