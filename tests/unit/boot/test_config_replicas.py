"""What hms.conf says of a node with replicas: every impossible combination, with its line."""

import pytest

from hms.boot.config import effective, load
from hms.boot.replicating import group_of
from hms.errors.catalogue import ConfigError

GOOD = """
[node.N]
replica = "a"
{node}
[svrgroup.hms]
{group}
[arbiter]
kind = "etcd"
endpoints = ["http://127.0.0.1:2379"]
{arbiter}
[replica.a]
address = "tcp://127.0.0.1:7710"
{a}
[replica.b]
address = "tcp://127.0.0.1:7711"
{b}
"""
FIRST = "tcp://127.0.0.1:7700"
WRITES = "target_session_attrs=read-write"
KEY = 'public_key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"'
ABSENT = {"node": "", "group": "", "arbiter": "", "a": "", "b": ""}


def text(**parts):
    return GOOD.format(**{**ABSENT, **parts})


def report(tmp_path, said):
    path = tmp_path / "hms.conf"
    path.write_text(said)
    with pytest.raises(ConfigError) as caught:
        load(path)
    return str(caught.value)


def test_the_window_of_copies_is_what_the_file_says(tmp_path):
    """Of the log on its way to each."""
    path = tmp_path / "hms.conf"
    for key, told in (("", 64 << 20), ('replica_window_bytes = "8 MiB"', 8 << 20)):
        path.write_text(text(node=key))
        config = load(path)
        assert group_of(config, config.node()).window_bytes == told


def test_two_replicas_and_an_arbiter_are_a_node(tmp_path):
    """And what holds is told with the defaults."""
    path = tmp_path / "hms.conf"
    path.write_text(text())

    config = load(path)

    assert [one.name for one in config.replicas_of(config.node())] == ["a", "b"]
    assert effective(config)["arbiter"]["lease_s"] == 5


@pytest.mark.parametrize(("third", "least"), [("", 1), ('mode = "SYNC"', 2), ('mode = "ASYNC"', 1)])
def test_an_asynchronous_replica_is_none_of_those_that_confirm(tmp_path, third, least):
    """copies_min is of those that count; one that counts is enough."""
    path = tmp_path / "hms.conf"
    more = f'[replica.c]\naddress = "tcp://127.0.0.1:7712"\n{third}' if third else ""
    path.write_text(text(b=more))
    config = load(path)
    assert config.copies_min_of(config.node()) == least
    path.write_text(text(b='mode = "ASYNC"'))

    config = load(path)

    assert config.copies_min_of(config.node()) == 1
    assert group_of(config, config.node()).asynchronous == {"b"}


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"node": 'database = "sqlite:x"'}, "database: with replicas not"),
        ({"node": 'shared = true\nruntime = "run"'}, "shared: with replicas not"),
        ({"node": 'BOOT = "COLD"'}, "BOOT: with replicas not"),
        ({"group": "HMSPORT = 7800"}, "HMSPORT: a node with replicas is in no cluster"),
        ({"arbiter": "lease_s = 2"}, "lease_s: 2 is out of range"),
        ({"arbiter": 'user = "x"'}, "user: not available"),
        ({"a": 'engine_roll = "FIRST"'}, "engine_roll: must be"),
        ({"a": 'engine_roll = "ACTIVE"', "b": 'engine_roll = "ACTIVE"'}, "ACTIVE already"),
        ({"node": 'failback = "AUTO"'}, 'add engine_roll = "ACTIVE" to one'),
        ({"b": 'mode = "LATE"'}, "mode: must be"),
        ({"b": 'mode = "ASYNC"\nengine_roll = "ACTIVE"'}, 'engine_roll = "ACTIVE" for a SYNC one'),
        ({"a": 'mode = "ASYNC"', "b": 'mode = "ASYNC"'}, "every replica of N is ASYNC"),
        (
            {"node": "copies_min = 2", "b": 'mode = "ASYNC"'},
            "copies_min is above the number of its replicas that are SYNC, 1",
        ),
        ({"b": 'NODENAME = "M"'}, "NODENAME: there is no node 'M'"),
        ({"a": 'public_key = "x"'}, "public_key: must be 40 characters"),
        (
            {
                "b": "".join(
                    f'[replica.x{n}]\naddress = "tcp://127.0.0.1:{n}"\n' for n in range(1, 8)
                )
            },
            "node N has 9 replicas: there can be two to 7",
        ),
        ({"node": "copies_min = 3"}, "copies_min is above the number of its replicas, 2"),
        (
            {"node": "replica_timeout_s = 61"},
            "replica_timeout_s: a replica is away after 61 s, and counts no more after 60",
        ),
        ({"node": "replica_lost_s = 1"}, "replica_lost_s is at least replica_timeout_s"),
        ({"node": "copies_min = 0"}, "copies_min: 0 is out of range"),
        ({"node": 'replica_window_bytes = "7 MiB"'}, "replica_window_bytes: "),
        ({"node": 'replica_window_bytes = "17 GiB"'}, "replica_window_bytes: "),
        ({"node": 'replica_keep_bytes = "4 GiB"'}, "nothing is kept for a replica that is away"),
        ({"node": 'confirm = "SOME"'}, "confirm: "),
        (
            {"node": 'take_over = "ACTIVE"'},
            "take_over: a shared store is taken",
        ),
        ({"node": "replica_alarm_s = 5"}, "replica_alarm_s: is replica_behind_s of [alerts]"),
        (
            {"node": 'listen = ["tcp://127.0.0.1:7710"]'},
            "find [replica.a] there",
        ),
        (
            {"node": f'listen = ["{FIRST}"]', "b": f'listen = ["{FIRST}"]'},
            f"[node.N] listen: clients find [replica.b] at {FIRST}: give this machine its own",
        ),
        (
            {"a": f'listen = ["{FIRST}"]', "b": f'listen = ["{FIRST}"]'},
            f"[replica.b] listen {FIRST} is that of [replica.a] already",
        ),
        ({"a": f'listen = ["{FIRST}", "{FIRST}"]'}, f"[replica.a] listen {FIRST} is there twice"),
        (
            {"a": 'listen = ["tcp://localhost:7711"]'},
            "[replica.a] listen tcp://localhost:7711 is the address of [replica.b]",
        ),
        (
            {"a": f"{KEY}\nkey_file = 'k'", "b": KEY},
            "public_key is that of [replica.a]",
        ),
        ({"a": KEY, "b": KEY.replace("yf7", "yf8")}, "[replica.a] needs key_file: its public_key"),
        ({"a": "key_file = 'k'"}, "[replica.a] needs public_key: hms config keys"),
        ({"arbiter": 'password = "env:X"'}, "password: etcd is asked without one: use cert_file"),
        ({"arbiter": 'cert_file = "x.pem"'}, "[arbiter] needs key_file beside cert_file"),
        ({"arbiter": 'key_file = "x.pem"'}, "[arbiter] needs cert_file beside key_file"),
        ({"arbiter": 'ca_file = "x.pem"'}, "ca_file: with http:// nothing is encrypted: use https"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(tmp_path, parts, told):
    """At the check, not when a machine is lost."""
    said = report(tmp_path, text(**parts))

    assert told in said
    assert "hms.conf:" in said


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('replica = "a"', "", "[node.N] needs replica: which of a, b this machine is"),
        ('replica = "a"', 'replica = "c"', "there is no 'c'"),
        ("127.0.0.1:7711", "127.0.0.1:7710", "tcp://127.0.0.1:7710 is that of [replica.a] already"),
        ("127.0.0.1:7711", "localhost:7710", "is that of [replica.a] already"),
        ("127.0.0.1:7711", "10.0.0.2:7711", "[replica.b] needs public_key"),
        ("tcp://127.0.0.1:7711", "ipc:///x", "must be such as tcp://"),
        ("http://127.0.0.1", "http://10.0.0.9", "beyond loopback and not encrypted: use https://"),
        ("http://127.0.0.1:2379", "postgresql://h/d", "kind 'etcd' wants http:// or https://"),
        ("http://127.0.0.1:2379", "http://u:geheim@h", "a password does not stand in hms.conf"),
        ("http://127.0.0.1:2379", "http://", "'http://' names no host"),
        ("http://127.0.0.1:2379", "http://127.0.0.1:2379/v3", "ends with the port"),
        ('9"]', '9", "http://localhost:2379"]', "'http://localhost:2379' is there twice"),
        ("[replica.b]\n", "[rm.x]\n", "node N has 1 replica: there can be two to 7"),
        ('[arbiter]\nkind = "etcd"\n', "[alerts]\n", "needs an [arbiter]"),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path, old, new, told):
    """One machine, two names, open lines, the wrong address: each says what it is."""
    said = report(tmp_path, text().replace(old, new))

    assert told in said
    assert "geheim" not in said


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("u@10.0.0.1/x?sslmode=prefer", "beyond loopback and not encrypted: add ?sslmode=verify"),
        ("u@10.0.0.1/x?application_name=sslmode=require", "not encrypted"),
        ("u@10.0.0.1/x?sslmode=require&sslmode=disable", "not encrypted"),
        ("/x?host=10.0.0.1", "not encrypted"),
        ("u@127.0.0.1/x?hostaddr=10.0.0.1", "not encrypted"),
        (f"u@127.0.0.1,10.0.0.1/x?{WRITES}", "not encrypted"),
        (f"u@127.0.0.1:5432,10.0.0.1:5432/x?{WRITES}", "not encrypted"),
        (f"u@[::1]:5432,[fd00::1]:5432/x?{WRITES}", "not encrypted"),
        ("u@127.0.0.1,localhost/x", f"several hosts: add {WRITES}"),
        ("u@127.0.0.1:5432,localhost:x/x", "is no address"),
        ("u@127.0.0.1/x?service=far", "service: name the host"),
        ('u@127.0.0.1/x"]\nca_file = "c.pem"\n#', "ca_file: is etcd's; of PostgreSQL sslrootcert"),
    ],
)
def test_a_postgresql_beyond_the_machine_is_encrypted_however_it_is_written(
    tmp_path, address, told
):
    """A library reads hosts from the query too, and the last sslmode holds."""
    of = text().replace('"etcd"', '"postgresql"')

    assert told in report(tmp_path, of.replace("http://127.0.0.1:2379", f"postgresql://{address}"))


@pytest.mark.parametrize(
    "address",
    [
        "u@10.0.0.1/x?sslmode=verify-full",
        "/x?host=/var/run/postgresql",
        "u@localhost/x",
        f"u@127.0.0.1:5432,127.0.0.1:5433/x?{WRITES}",
        f"u@[::1]:5432,localhost/x?{WRITES}",
        f"u@h1:1,h2:2/x?sslmode=verify-full&{WRITES}",
        f"u@h1,h2/x?sslmode=verify-ca&{WRITES}",
    ],
)
def test_a_postgresql_that_is_reached_safely_is_an_arbiter(tmp_path, address):
    """On this machine, or encrypted."""
    of = text().replace('"etcd"', '"postgresql"')
    path = tmp_path / "hms.conf"
    path.write_text(of.replace("http://127.0.0.1:2379", f"postgresql://{address}"))

    assert load(path).arbiter.kind == "postgresql"


@pytest.mark.parametrize(
    "key",
    [
        *("copies_min = 2", "replica_timeout_s = 3", "replica_lost_s = 70", "failback_after_s = 5"),
        *('replica_window_bytes = "8 MiB"', 'confirm = "ALL"'),
    ],
)
def test_what_only_copies_have_is_refused_without_copies(tmp_path, key):
    """It would look as if something was confirmed by two."""
    said = report(tmp_path, f"[node.N]\n{key}\n")

    assert f"hms.conf:2: [node.N] {key.split()[0]}: the node has no replicas" in said


def test_an_arbiter_that_has_nothing_to_decide_is_refused(tmp_path):
    """An operator who wrote it wants a second copy, and there is none."""
    said = report(tmp_path, text().partition("[replica.a]")[0].replace('replica = "a"', ""))

    assert "[arbiter] decides nothing: no node of this file has replicas" in said
