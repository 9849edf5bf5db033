"""hms-client.toml: which file is read, what it may say, and what holds before what."""

import os
import re

import pytest

import hms
from hms.client.profiles.client_file import read_file
from hms.client.profiles.profile_keys import KEYS
from hms.client.profiles.profiled import profile_asked, settings_for
from hms.client.profiles.settings import origins
from hms.constants import AckMode

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory and a home that nothing else writes to."""
    for name in ("HMS_CLIENT_CONFIG", "HMS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    (tmp_path / "home" / ".config" / "hms").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def write(path, text, mode=0o644):
    """A file as its user wrote it."""
    path.write_text(text)
    path.chmod(mode)
    return path


def home(place, text):
    """The user's own file."""
    return write(place / "home" / ".config" / "hms" / "client.toml", text)


def here(place, text):
    """The file of the working directory."""
    return write(place / "work" / "hms-client.toml", text)


def refusal(call):
    """What is said of a file that is refused."""
    with pytest.raises(hms.ClientConfigError) as refused:
        call()
    return refused.value.fields["report"]


# ---- which file


def test_without_a_file_a_call_has_what_it_gives(place):
    """Nothing is looked up, and no module that reads files is needed."""
    assert settings_for(None, {"user": "ann"}) == {"user": "ann"}


def test_the_named_file_holds_before_the_working_directory_and_that_before_the_home(
    place, monkeypatch
):
    """One file is read, and never two of them mixed."""
    home(place, "[defaults]\nrequest_timeout_s = 3\nreconnect = false\n")
    assert settings_for(None, {})["request_timeout_s"] == 3
    here(place, "[defaults]\nrequest_timeout_s = 2\n")
    assert settings_for(None, {})["request_timeout_s"] == 2
    assert "reconnect" not in settings_for(None, {})
    named = write(place / "named.toml", "[defaults]\nrequest_timeout_s = 1\n")
    monkeypatch.setenv("HMS_CLIENT_CONFIG", str(named))
    assert settings_for(None, {})["request_timeout_s"] == 1
    monkeypatch.setenv("HMS_CLIENT_CONFIG", os.devnull)
    assert settings_for(None, {}) == {}
    monkeypatch.setenv("HMS_CLIENT_CONFIG", str(place / "missing.toml"))
    assert "cannot be read" in refusal(lambda: settings_for(None, {}))


def test_an_empty_profile_reads_no_file(place):
    """Commands and tools do not depend on where they are started."""
    here(place, "not TOML at all")
    assert settings_for("", {"user": "ann"}) == {"user": "ann"}


def test_the_environment_names_a_profile_only_where_the_call_names_nothing(place, monkeypatch):
    """A program that says where it goes is not sent elsewhere by a variable."""
    monkeypatch.setenv("HMS_PROFILE", "billing")
    assert profile_asked(None, None) == "billing"
    assert profile_asked("tcp://a:1", None) is None
    assert profile_asked(None, "other") == "other"
    assert profile_asked(None, "") == ""
    monkeypatch.setenv("HMS_PROFILE", "")
    assert profile_asked(None, None) is None


# ---- what holds before what


def test_an_argument_holds_before_the_profile_and_that_before_the_defaults(place):
    """Also an argument that has the built-in value."""
    here(
        place,
        "[defaults]\nrequest_timeout_s = 30\nreconnect = false\nprefetch = 7\npriority = 1\n"
        '[profile.p]\naddresses = "tcp://a:1"\nrequest_timeout_s = 20\npriority = 9\n'
        'ack = "CLIENT"\n',
    )
    held = settings_for("p", {"reconnect": True})
    assert held["addresses"] == ("tcp://a:1",)
    assert held["request_timeout_s"] == 20
    assert held["reconnect"] is True
    assert held["member_defaults"] == {
        "session": {"ack": AckMode.CLIENT},
        "producer": {"priority": 9},
        "consumer": {"prefetch": 7},
    }
    assert settings_for("p", {"request_timeout_s": 200})["request_timeout_s"] == 200


def test_a_given_token_takes_the_place_of_the_profile_s_password(place, monkeypatch):
    """Both together are refused, and the one that was given holds before the other."""
    monkeypatch.setenv("HMS_P", "secret")
    here(place, '[profile.p]\naddresses = "tcp://a:1"\nuser = "u"\npassword = "env:HMS_P"\n')
    assert settings_for("p", {})["password"] == "secret"
    assert "password" not in settings_for("p", {"token": "t"})


def test_each_value_is_shown_with_its_origin(place):
    """The line where it stands, and what is built in."""
    path = here(place, '[defaults]\nprefetch = 7\n\n[profile."a b"]\nuser = "u"\nprefetch = 8\n')
    told = {one.name: one for one in origins(read_file(path), "a b")}
    assert told["prefetch"].where == f"[profile.a b], {path}:6"
    assert told["priority"].where == "built in"
    alone = {one.name: one for one in origins(read_file(path), None)}
    assert alone["prefetch"].where == f"[defaults], {path}:2"
    assert alone["user"].value == ""
    assert list(told) == [key.name for key in KEYS]


def test_built_in_values_are_those_of_the_calls():
    """A table of defaults that is written beside the signatures would go stale."""
    import inspect

    calls = {
        "connection": hms.connect,
        "session": hms.Connection.session,
        "producer": hms.Session.producer,
        "consumer": hms.Session.consumer,
    }
    for key in KEYS:
        if key.name == "addresses":
            continue
        parameters = inspect.signature(calls[key.part]).parameters
        assert parameters[key.name].default == key.built_in, key.name


# ---- profiles that are not there


def test_a_profile_that_the_file_does_not_have_is_refused_with_those_it_has(place):
    """It is not taken for one of the node, which is not asked."""
    with pytest.raises(hms.ProfileNotFound, match="neither hms-client"):
        settings_for("x", {})
    path = here(place, "[profile.a]\n[profile.b]\n")
    with pytest.raises(hms.ProfileNotFound, match=re.escape(f"{path} has a, b")) as refused:
        settings_for("x", {})
    assert "are not fetched in this version" in refused.value.describe()


def test_a_connection_needs_an_address(place):
    """It is told what would give one."""
    with pytest.raises(hms.InvalidArgument, match="give an address, or profile="):
        hms.connect()
    here(place, '[profile.a]\nuser = "u"\n')
    with pytest.raises(hms.InvalidArgument, match="give an address, or profile="):
        hms.connect(profile="a")
    with pytest.raises(hms.InvalidArgument, match="profile"):
        hms.connect(profile=7)


# ---- faults


def test_every_fault_is_told_at_once_with_its_line(place):
    """One run of a check, and not one for each fault."""
    path = here(
        place,
        "[defaults]\n"
        "prefech = 7\n"
        'addresses = ["tcp://a:1"]\n'
        "[profile.one]\n"
        'password = "hunter2"\n'
        "pooled = true\n"
        "priority = 11\n"
        "server_keys = [\n"
        f'  "{KEY}",\n'
        '  "short",\n'
        "]\n"
        "[profile.two]\n"
        'key_file = "k"\n'
        'ack = "auto"\n'
        "[profile.three.four]\n"
        "x = 1\n"
        "[other]\n",
    )
    said = refusal(lambda: read_file(path))
    for expected in (
        "2: [defaults] unknown key 'prefech' (did you mean 'prefetch'?)",
        "3: [defaults] addresses: it says where a connection goes",
        "5: [profile.one] password: a secret does not stand here",
        "6: [profile.one] pooled: is not available; there are no pools of connections",
        "7: [profile.one] priority: 11 is not a whole number from 0 to 9",
        "8: [profile.one] server_keys: each has 40 characters",
        "13: [profile.two] key_file: needs server_keys",
        "14: [profile.two] ack: 'auto' is not one of",
        "15: [profile.three] has a section 'four' inside; a name with a dot is quoted",
        "17: 'other' is neither [defaults] nor [profile.NAME]",
    ):
        assert f"{path}:{expected}" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "text",
    [
        "[defaults",
        '[profile."a\\u001b"]',
        "a = " + "[" * 99_999,
        "defaults = 1",
        "profile = 2",
        "[profile]\nx = 1",
        '[profile.""]',
        "a = [" * 999,
    ],
)
def test_a_file_that_is_no_such_file_is_refused(place, text):
    """Never an error of Python's own."""
    refusal(lambda: read_file(here(place, text)))


def test_a_file_of_bytes_or_too_large_or_no_file_is_refused(place):
    """A pipe would be waited for, and a device would not end."""
    path = place / "work" / "hms-client.toml"
    path.write_bytes(b"[defaults]\n\xff")
    assert ":2: is not UTF-8" in refusal(lambda: read_file(path))
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    assert "larger" in refusal(lambda: read_file(path))
    path.unlink()
    path.mkdir()
    assert "is no file" in refusal(lambda: read_file(path))
    path.rmdir()
    os.mkfifo(path)
    assert "is no file" in refusal(lambda: read_file(path))


# ---- trust


def test_a_file_that_others_may_write_is_refused(place):
    """They could have a client send its password elsewhere."""
    path = here(place, "")
    path.chmod(0o666)
    assert "chmod go-w" in refusal(lambda: settings_for(None, {}))
    path.chmod(0o664)
    assert "chmod go-w" in refusal(lambda: settings_for(None, {}))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("of_link", [False, True])
def test_a_file_of_another_user_is_refused(place, of_link):
    """In a folder where everybody writes, such as /tmp; a link to one's own file is one, too."""
    path = here(place, "")
    if of_link:
        path = path.rename(place / "own.toml")
        link = place / "work" / "hms-client.toml"
        link.symlink_to(path)
        os.lchown(link, 12345, 12345)
    else:
        os.chown(path, 12345, 12345)
    assert "belongs to another user (uid 12345)" in refusal(lambda: settings_for(None, {}))


@pytest.mark.parametrize(
    "line",
    [
        'password = "file:../home/secret"',
        'password = "file:/etc/shadow"',
        'password = "file:link"',
        'token = "env:GITHUB_TOKEN"',
        f'server_keys = ["{KEY}"]\nkey_file = "~/.config/hms/other.key"',
    ],
)
def test_a_file_that_nobody_named_reaches_no_secret_elsewhere(place, monkeypatch, line):
    """What was unpacked into the working directory could have a program that asks for the profile
    "production" send its user's secret to a server of its own. Named, the file is trusted."""
    write(place / "secret", "s", 0o600)
    (place / "work" / "link").symlink_to(place / "secret")
    user = 'user = "u"\n' if line.startswith("password") else ""
    path = here(place, f'[profile.p]\naddresses = "tcp://evil:1"\n{user}{line}\n')
    assert "not named by HMS_CLIENT_CONFIG" in refusal(lambda: settings_for("p", {}))
    assert "not named by HMS_CLIENT_CONFIG" in refusal(lambda: settings_for(None, {}))
    read_file(path)


def test_a_profile_of_two_files_is_refused(place, monkeypatch):
    """The file of the working directory does not take the place of one's own profile unseen."""
    path = here(place, '[profile.p]\naddresses = "tcp://evil:1"\n')
    home(place, '[profile.p]\naddresses = "tcp://good:1"\n[profile.q]\n')
    assert "name the file that is meant" in refusal(lambda: settings_for("p", {}))
    monkeypatch.setenv("HMS_CLIENT_CONFIG", str(path))
    assert settings_for("p", {})["addresses"] == ("tcp://evil:1",)


# ---- secrets


def test_secrets_come_from_where_they_are(place, monkeypatch):
    """From the environment, a file of the user alone, or a credential of systemd."""
    path = here(
        place,
        '[profile.e]\nuser = "u"\npassword = "env:HMS_PW"\n'
        '[profile.f]\nuser = "u"\npassword = "file:pw"\n'
        '[profile.c]\nuser = "u"\npassword = "cred:pw"\n[profile.t]\ntoken = "file:pw"\n',
    )
    assert f"{path}:3: [profile.e] password: the variable HMS_PW is not set" in refusal(
        lambda: settings_for("e", {})
    )
    monkeypatch.setenv("HMS_PW", "one")
    assert settings_for("e", {})["password"] == "one"
    assert "cannot be read" in refusal(lambda: settings_for("f", {}))
    secret = write(place / "work" / "pw", "two\n", 0o640)
    assert "chmod 600" in refusal(lambda: settings_for("f", {}))
    secret.chmod(0o600)
    assert settings_for("f", {})["password"] == "two"
    assert "CREDENTIALS_DIRECTORY" in refusal(lambda: settings_for("c", {}))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(place / "work"))
    assert settings_for("c", {})["password"] == "two"
    token = settings_for("t", {})["token"]
    assert token() == "two"
    write(secret, "three", 0o600)
    assert token() == "three"
    write(secret, "", 0o600)
    assert "is empty" in refusal(token)


def test_a_secret_is_in_no_repr_of_the_file(place):
    """Nor in what is shown of its values."""
    path = here(place, '[profile.e]\nuser = "u"\npassword = "env:HMS_PW"\n')
    assert "env:HMS_PW" in str(origins(read_file(path), "e"))
    assert "[profile.e]" not in repr(read_file(path))
