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
        ("127.0.0.1:7711", "10.0.0.2:7711", "[replica.b] needs public_key"),
        ("tcp://127.0.0.1:7711", "ipc:///x", "must be such as tcp://"),
        ("http://127.0.0.1", "http://10.0.0.9", "beyond loopback and not encrypted: use https://"),
        ("http://127.0.0.1:2379", "postgresql://h/d", "kind 'etcd' wants http:// or https://"),
        ("http://127.0.0.1:2379", "http://u:geheim@h", "a password does not stand in hms.conf"),
        ("[replica.b]\n", "[rm.x]\n", "node N has 1 replica: there can be two to 7"),
        ('[arbiter]\nkind = "etcd"\n', "[alerts]\n", "needs an [arbiter]"),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path, old, new, told):
    """One machine, two names, open lines, the wrong address: each says what it is."""
    said = report(tmp_path, text().replace(old, new))

    assert told in said
    assert "geheim" not in said
