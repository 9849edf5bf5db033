"""security.toml: read strictly, written whole, and every fault told with its line."""

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hms.boot.security_file import (
    change_security,
    load_security,
    save_security,
    security_text,
)
from hms.errors.catalogue import SecurityFileError
from hms.server.logins.passwords import hash_password, verify
from hms.server.logins.plain_policy import plain_policy, without_secrets
from hms.server.logins.security_document import (
    KeyEntry,
    RoleEntry,
    SecurityDocument,
    TokenEntry,
    UserEntry,
    may_secure,
    read_document,
)
from tests.support.secured import PASSWORD, cheap_hash, document

HASH = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQxMjM0$" + "a" * 43
KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
GOOD = f"""version = 17
domain_password = "{HASH}"

[security]
fail_delay_ms = 100

[user.billing]
password = "{HASH}"
keys = ["{KEY}"]
os_users = ["billing"]
roles = ["billing"]
not_after = 2027-01-31T00:00:00Z
addresses = ["10.20.0.0/16"]
generation = 3

[role.billing]
permissions = ["connect listener:*", "produce queue:orders.*"]

[key.office]
public = "{KEY[::-1]}"

[token.ci]
user = "billing"
sha256 = "{"0" * 64}"
expires_at = 2027-01-31T00:00:00Z
"""


def write(folder, text, mode=0o600):
    path = folder / "security.toml"
    path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
    path.chmod(mode)
    return path


def faults(path):
    with pytest.raises(SecurityFileError) as caught:
        load_security(path)
    return caught.value.fields["report"].splitlines()


def test_a_good_file_is_read_and_written_as_it_was(tmp_path):
    """What is written is what is read again, values of all kinds included."""
    first = load_security(write(tmp_path, GOOD))
    save_security(tmp_path / "again.toml", first)

    assert load_security(tmp_path / "again.toml") == first
    assert first.user["billing"].not_after == datetime(2027, 1, 31, tzinfo=UTC)
    assert (tmp_path / "again.toml").stat().st_mode & 0o777 == 0o600


DAMAGED = [
    ("version = 17", "", 1, "version is missing"),
    ("version = 17", "version = 0", 1, "counts from 1"),
    ("version = 17", 'version = "x"', 1, "expected `int`"),
    ("version = 17", "version = 17\nversion = 18", 2, "given twice"),
    ("version = 17", "versoin = 17", 1, "did you mean 'version'?"),
    ("[security]", "[securty]", 4, "did you mean 'security'?"),
    ("fail_delay_ms = 100", "fail_delay_ms = 10001", 5, "between 0 and 10000"),
    ("fail_delay_ms = 100", "fail_delay_ms = -1", 5, "between 0 and 10000"),
    ("fail_delay_ms = 100", "fail_delay = 100", 5, "did you mean 'fail_delay_ms'?"),
    ("[user.billing]", "[user.billing", 7, "syntax error"),
    ("[user.billing]", '[user."a b"]', 7, "is no name"),
    ("[user.billing]", '[user."a\\u0000b"]', 7, "is no name"),
    ("[user.billing]", f'[user."{"x" * 64}"]', 7, "is no name"),
    (f'password = "{HASH}"\nkeys', 'password = "secret"\nkeys', 8, "no argon2id hash"),
    (f'"{HASH}"\nkeys', '"$1$abc$defghijklmnopqrstuvw"\nkeys', 8, "no argon2id hash"),
    (f'"{HASH}"\nkeys', f'"{HASH.replace("m=65536", "m=4194304")}"\nkeys', 8, "m=4194304"),
    (f'"{HASH}"\nkeys', f'"{HASH.replace("m=65536", "m=4096")}"\nkeys', 8, "m=4096"),
    (f'"{HASH}"\nkeys', f'"{HASH.replace("t=3", "t=99")}"\nkeys', 8, "t=99"),
    (f'"{HASH}"\nkeys', f'"{HASH.replace("p=4", "p=17")}"\nkeys', 8, "p=17"),
    (f'"{HASH}"\nkeys', f'"{HASH[:60]}"\nkeys', 8, "no argon2id hash"),
    (f'keys = ["{KEY}"]', 'keys = ["short"]', 9, "no public key"),
    (f'keys = ["{KEY}"]', f'keys = ["{KEY[::-1]}"]', 20, "that of user billing already"),
    ('os_users = ["billing"]', 'os_users = "billing"', 10, "expected `array`"),
    ('roles = ["billing"]', 'roles = ["biling"]', 11, "did you mean 'billing'?"),
    ("not_after = 2027-01-31T00:00:00Z", "not_after = 5", 12, "not_after: expected"),
    ('["10.20.0.0/16"]', '["10.20.0.1/16"]', 13, "has host bits set"),
    ("generation = 3", "generation = 0", 14, "counts from 1"),
    ("generation = 3", "limits = { conections = 20 }", 14, "did you mean"),
    ("generation = 3", "two_factors = 2", 14, "expected `bool`"),
    ('"produce queue', '"prodce queue', 17, "did you mean 'produce'?"),
    ('"produce queue:orders.*"', '"produce topic:x"', 17, "it is about queue"),
    ("[role.billing]", "[role.admin]", 16, "is built in"),
    ('"produce queue:orders.*"]', '"produce queue:o"]\nroles = ["billing"]', 16, "in a circle"),
    ('user = "billing"', 'user = "biling"', 23, "did you mean 'billing'?"),
    ("0" * 64, "0" * 63, 24, "64 characters"),
    ('user = "billing"\n', "", 22, "needs user"),
    ("[key.office]", "[authenticator.corp]\n[key.office]", 19, "needs kind"),
    (
        f'keys = ["{KEY}"]\nos_users = ["billing"]',
        "two_factors = true",
        9,
        "and a password or a token",
    ),
    ("generation = 3", 'scram = "x"', 14, "not available in this version"),
]


@pytest.mark.parametrize(("was", "now", "line", "said"), DAMAGED)
def test_a_damaged_file_is_refused_with_the_line_of_its_fault(tmp_path, was, now, line, said):
    """What cannot be right opens nothing."""
    path = write(tmp_path, GOOD.replace(was, now, 1))

    told = faults(path)

    assert any(one.startswith(f"{path}:{line}: ") and said in one for one in told), told


def test_all_faults_are_told_at_once(tmp_path):
    """A file that is corrected fault by fault is read as often as it has faults."""
    text = GOOD
    for was, now, _, _ in (DAMAGED[6], DAMAGED[13], DAMAGED[20], DAMAGED[29]):
        text = text.replace(was, now, 1)

    assert len(faults(write(tmp_path, text))) >= 4


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604])
def test_a_file_that_others_may_read_is_refused(tmp_path, mode):
    """Hashes are secrets too."""
    assert "chmod 600" in faults(write(tmp_path, GOOD, mode))[0]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: None, "cannot be read"),
        (lambda path: path.mkdir(), "is no file"),
        (os.mkfifo, "is no file"),
        (lambda path: write(path.parent, ""), "version is missing"),
        (lambda path: write(path.parent, b"\xff\xfe"), "is not UTF-8"),
        (lambda path: write(path.parent, "#" * (4 << 20) + "#"), "is larger than 4 MiB"),
        (lambda path: write(path.parent, GOOD[: len(GOOD) // 2]), "security.toml:"),
        (lambda path: write(path.parent, "version = " + "[" * 100_000), "security.toml:"),
    ],
)
def test_what_is_no_security_file_is_refused(tmp_path, make, said):
    """Absent, empty, half-written or another thing altogether."""
    path = tmp_path / "security.toml"
    make(path)

    assert said in faults(path)[0]


def test_a_symbolic_link_is_not_followed(tmp_path):
    """Where it leads may be changed by somebody else."""
    (tmp_path / "link.toml").symlink_to(write(tmp_path, GOOD))

    assert faults(tmp_path / "link.toml") == [f"{tmp_path}/link.toml: is a symbolic link"]


def test_more_permissions_than_a_node_takes_are_refused(tmp_path):
    """Bounded, like everything that is read."""
    many = ", ".join(['"produce queue:x"'] * 20_001)

    assert (
        "more than 20000"
        in faults(write(tmp_path, f"version = 1\n[role.a]\npermissions = [{many}]"))[0]
    )


def test_a_change_raises_the_version_and_leaves_no_half(tmp_path):
    """Readers see the old file or the new one."""
    path = write(tmp_path, GOOD)

    changed = change_security(path, lambda d: msgspec.structs.replace(d, token={}))
    same = change_security(path, lambda d: d)

    assert (changed.version, same.version) == (18, 18)
    assert load_security(path) == changed
    assert not list(tmp_path.glob("*.new"))


def test_a_change_that_cannot_stand_changes_nothing(tmp_path):
    """It is checked before it is written."""
    path = write(tmp_path, GOOD)
    with pytest.raises(SecurityFileError):
        change_security(path, lambda d: msgspec.structs.replace(d, user={"a b": UserEntry()}))

    assert path.read_text() == GOOD


TEXTS = st.text(max_size=20)


@given(
    st.dictionaries(
        st.sampled_from(["version", "user", "role", "token", "key", "security", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | TEXTS,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
            max_leaves=10,
        ),
    )
)
def test_whatever_the_tables_hold_is_read_or_told_and_nothing_is_raised(data):
    """A file is input."""
    made, found = read_document(data)

    assert isinstance(made, SecurityDocument)
    assert all(isinstance(said, str) for _, said in found)


@given(
    name=st.from_regex(r"[A-Za-z0-9._@-]{1,63}", fullmatch=True),
    pattern=st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=60),
)
def test_names_and_patterns_of_all_kinds_come_back_from_the_text(tmp_path_factory, name, pattern):
    """Quotes, backslashes and other alphabets stand in TOML as they are."""
    made = SecurityDocument(
        role={name: RoleEntry(permissions=(f"produce queue:{pattern}",))}
        if name not in ("admin", "security", "operator", "monitor", "auditor")
        else {}
    )
    path = write(tmp_path_factory.getbasetemp(), security_text(made))

    assert load_security(Path(path)) == made


def test_who_may_change_users_is_found_through_all_roles():
    """The last of them must not be removed."""
    held = document(a=[])
    boss, desk = RoleEntry(roles=("security",)), RoleEntry(permissions=("secure user:nobody",))
    roles = {**held.role, "boss": boss, "desk": desk}
    users = {
        **held.user,
        "clerk": UserEntry(roles=("desk",)),
        "chief": UserEntry(roles=("boss",)),
        "gone": UserEntry(roles=("boss",), enabled=False),
    }

    assert may_secure(msgspec.structs.replace(held, role=roles, user=users)) == ["root", "chief"]


def test_a_file_that_would_not_be_read_again_is_not_written(tmp_path):
    """The running node would go on with it, and the next boot fail."""
    path = tmp_path / "security.toml"
    save_security(path, document(a=[]))
    before = path.read_text()
    entry = UserEntry(roles=("a",), addresses=("10.20.0.0/16",) * 1000)
    many = {f"user{number}": entry for number in range(300)}

    with pytest.raises(SecurityFileError, match="larger than 4 MiB"):
        save_security(path, msgspec.structs.replace(document(a=[]), user=many))

    assert path.read_text() == before


def test_a_password_is_kept_as_its_hash_and_compared_after_normalisation():
    """The same word typed on two keyboards is the same password."""
    stored = hash_password("caf\u00e9", time_cost=1, memory_kib=8 << 10)

    assert verify(stored, "cafe\u0301".encode())
    assert not verify(stored, b"cafe")
    for nothing in (b"", b"\0", b"x" * 1025, b"\xff"):
        assert not verify(stored, nothing)
    assert not verify("", PASSWORD.encode())
    assert verify(cheap_hash(), PASSWORD.encode())


def test_entries_have_no_surprise():
    """What a new user may do by default is nothing."""
    assert UserEntry().roles == ()
    assert KeyEntry(public=KEY).public == KEY
    assert TokenEntry(user="u", sha256="0" * 64, expires_at=datetime.now(UTC)).roles == ()


def test_an_export_disables_who_needs_the_secret_that_is_left_out():
    """With a key alone it would be let in; refused as a whole, there would be no export."""
    entry = UserEntry(password=HASH, keys=(KEY,), two_factors=True, roles=("a",))
    made, notes = without_secrets(
        plain_policy(msgspec.structs.replace(document(a=[]), user={"careful": entry}))
    )

    assert not made.user["careful"].enabled
    assert any("two factors" in note for note in notes)
