"""hms.conf: every fault is reported at once, with its line and what would be right."""

import re

import pytest

from hms.boot.config import load
from hms.errors.catalogue import ConfigError

NODE = "[node.N1]\n"


@pytest.fixture
def faults(write):
    """The faults of a text, without the file's name."""

    def run(text):
        path = write(text)
        with pytest.raises(ConfigError) as caught:
            load(path)
        return [line.removeprefix(f"{path}:") for line in caught.value.report.splitlines()]

    return run


def test_a_misspelt_key_is_reported_with_its_line_and_the_nearest_word(faults):
    """The example of the style page."""
    said = faults(f"{NODE}\n[hms.queue.ORDERS]\n\nmax_mesages = 10\n")

    assert said == [
        "5: [hms.queue.ORDERS] unknown key 'max_mesages' (did you mean 'max_messages'?)"
    ]


def test_every_fault_is_reported_at_once(faults):
    """Correcting one fault at a time costs a restart each."""
    text = """
[node.N1]
listen = ["tcp://0.0.0.0:7700"]
heartbeat_s = "often"
BOOT = "LUKEWARM"
MAXSESSION = 70000
[hms.queue.A]
GQTHR = 0
[hms.topic.A]
[svrgroup.g]
NODENAME = "N2"
[nodes.N3]
"""
    lines = [int(line.split(":")[0]) for line in faults(text)]

    assert lines == [3, 4, 5, 6, 8, 9, 11, 12]


@pytest.mark.parametrize(
    "text",
    [
        "[node.N1\nMAXSESSION = 0\n",
        "[node.N1]\nstore = 'a' b\nMAXSESSION = 0\n",
        '[node.N1]\nstore = "a\nMAXSESSION = 0\n',
        "[node.N1]\nlisten = [\n'tcp://127.0.0.1:1',\nMAXSESSION = 0\n",
        "[node.N1]\nstore = 'a'\nstore = 'b'\nMAXSESSION = 0\n",
        "[node.N1]\n[node.N1]\nMAXSESSION = 0\n",
        "[node.N1]\nstore\nMAXSESSION = 0\n",
        "[node.N1]\nlisten = ['''\n''', 1,, 2]\nMAXSESSION = 0\n",
    ],
)
def test_a_syntax_error_does_not_hide_the_faults_behind_it(faults, text):
    """The reader of TOML stops at the first error; the report must not."""
    said = faults(text)

    line = text.split("\n").index("MAXSESSION = 0") + 1
    assert any(re.match(rf"{line}: \[node.N1\] MAXSESSION: 0 is out of range", s) for s in said), (
        said
    )
    assert any(re.match(r"\d+: (syntax error|.*given twice)", s) for s in said), said
    assert len(said) == 2, said


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("tcp://0.0.0.0:7700", "what is said there is not encrypted"),
        ("tcp://*:7700", "what is said there is not encrypted"),
        ("tcp://192.168.1.5:7700", "what is said there is not encrypted"),
        ("tcp://example.org:7700", "what is said there is not encrypted"),
        ("tcp://[::]:7700", "what is said there is not encrypted"),
        ("tcp://127.0.0.1:0", "port 0"),
        ("tcp://127.0.0.1:65536", "port 65536"),
        ("tcp://127.0.0.1", "no address"),
        ("inproc://a", "no address"),
        ("ipc://relative", "absolute"),
        ("ipc:///" + "a" * 200, "longer than"),
        (5, "no address"),
    ],
)
def test_a_listener_that_others_could_reach_is_refused(faults, address, reason):
    """Nothing is encrypted yet, so nothing may leave the machine."""
    (said,) = faults(f"{NODE}listen = [{address!r}]\n")

    assert said.startswith("2: [node.N1] listen: ")
    assert reason in said


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("ipc_group = 'no group'", "must be the name of a group"),
        ("ipc_group = 5", "must be the name of a group"),
        ("allow_debugger = 'yes'", "must be true or false"),
        ("audit_anchor = 'mail'", 'must be "syslog", or a list'),
        ("audit_anchor = []", 'must be "syslog", or a list'),
        ("audit_anchor = ['keep']", "must be absolute"),
        ("audit_anchor = ['/bin/keep', 5]", 'must be "syslog", or a list'),
        ("audit_anchor = 'syslog'", "an open node has no audit"),
    ],
)
def test_a_key_of_security_that_is_wrong_is_refused_by_name(faults, key, reason):
    """A slip of the pen must open nothing, and must not be taken for nothing."""
    (said,) = faults(f"{NODE}{key}\n")

    assert f"[node.N1] {key.split()[0]}: " in said
    assert reason in said


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("'KEY'", "must be a list"),
        ("[]", "must be a list"),
        ("['KEYS']", "none of KEY, PASSWORD, TOKEN (did you mean 'KEY'?)"),
        ("[5]", "none of KEY"),
        ("['KEY', 'KEY']", "twice"),
        ("['PEER']", "none of KEY"),
    ],
)
def test_a_way_to_log_in_that_is_none_is_refused(faults, value, reason):
    """Nobody is let in by what was meant otherwise."""
    (said,) = faults(
        f"{NODE}[listener.l]\naddress = 'tcp://0.0.0.0:7700'\nserver_key_file = 'k'\n"
        f"mechanisms = {value}\n"
    )

    assert "[listener.l] mechanisms: " in said
    assert reason in said


@pytest.mark.parametrize(
    ("second", "what"),
    [
        ("listen = ['tcp://localhost:7700']", "listen"),
        ("listen = ['tcp://127.0.0.1:1']\nstore = 'var/../s'\n", None),
        ("listen = ['tcp://127.0.0.1:1']\nstore = 's'\n", "store"),
    ],
)
def test_two_nodes_share_neither_port_nor_store(faults, second, what):
    """F-I3: two nodes never write one store."""
    text = f"[node.N1]\nstore = 's'\n[node.N2]\n{second}\n[svrgroup.g]\nNODENAME='N2'\nHMSINDEX=2"
    said = faults(text) if what else []

    assert [line for line in said if "already" in line] == said
    assert all(f"[node.N2] {what}" in line for line in said)
    assert bool(said) == (what is not None)


@pytest.mark.parametrize("again", ["tcp://127.0.0.1:1", "tcp://localhost:1"])
def test_an_address_stands_once_in_listen(faults, again):
    """The boot failed, and told to look for another process that listens there."""
    said = faults(f"[node.N1]\nlisten = ['tcp://127.0.0.1:1', {again!r}]\n")

    assert said == ["2: [node.N1] listen 'tcp://127.0.0.1:1' is there twice"]


def test_two_nodes_have_different_numbers(faults):
    """HMSINDEX begins every message id: with one number, ids would repeat."""
    said = faults("[node.N1]\n[node.N2]\nlisten = ['tcp://127.0.0.1:1']\n")

    assert said == ["2: [node.N2] HMSINDEX 1 is that of node N1 already; give each node its own"]


@pytest.mark.parametrize(
    "keys",
    [
        'max_message_bytes = "64 MiB"\nmax_pending_bytes = "128 MiB"',
        'max_transaction_bytes = "33 MiB"',
        'segment_bytes = "32 MiB"',
        'max_memory_bytes = "1 MiB"',
        'max_pending_bytes = "31 MiB"',
    ],
)
def test_limits_that_contradict_each_other_are_refused(faults, keys):
    """A message that is accepted must fit into a transaction, and that into a segment."""
    (said,) = faults(f"{NODE}{keys}\n")

    assert said.startswith("2: [node.N1] ")
    assert "is above" in said


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("MAXSESSION", (1, 1024), (0, -1, 65536)),
        ("heartbeat_s", (0.1, 3600), (0, -1, 3601, "nan", "inf")),
        ("prefetch_max", (1, 65535), (0, 65536)),
        ("redelivery_limit", (-1, 0), (-2,)),
        ("segment_bytes", (67108864, 2147483648), (0, 1048575, 67108860, 2147483649)),
        ("max_pending_bytes", (33554432, 1 << 40), (0, 1048575, (1 << 40) + 1)),
        ("max_requests", (1, 4096), (0, 4097)),
    ],
)
def test_limits_hold_exactly_at_their_ends(write, faults, key, good, bad):
    """S03: at the limit is allowed, one beyond is refused by name."""
    for value in good:
        assert load(write(f"{NODE}{key} = {value}\n"))
    for value in bad:
        assert any(
            line.startswith(f"2: [node.N1] {key}: ") for line in faults(f"{NODE}{key} = {value}")
        )


@pytest.mark.parametrize("value", ["true", "'a'", "[]", "{}", "1979-05-27", "{ a = 1 }"])
def test_a_value_of_another_type_is_refused(faults, value):
    """A bool is no number, whatever Python says."""
    (said,) = faults(f"{NODE}MAXSESSION = {value}\n")

    assert said.startswith("2: [node.N1] MAXSESSION: must be a whole number, not ")


@pytest.mark.parametrize(
    "text",
    [
        "[svrgroup.g]\nHMSNAME = 'hms01'",
        "[svrgroup.g]\nOPENINFO = ''",
        "[user.u]\npassword = 'secret'",
        "[hms.topic.T]\nmulticast = 1",
    ],
)
def test_what_is_not_available_is_refused_with_that_reason(faults, text):
    """A setting that is silently ignored is worse than none."""
    said = faults(f"{NODE}{text}\n")

    assert len(said) == 1
    assert "not available in this version" in said[0]
    assert "secret" not in said[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[hms.queue.orders.eu]", 'quoted: [hms.queue."orders.eu"]'),
        ("[hms.queue.A]\n[hms.topic.A]", "has the name of a queue"),
        ('[hms.topic."HMS.DLQ"]', "has the name of a queue"),
        ('[hms.queue."HMS.X"]', "the system's own"),
        ('[hms.queue.""]', "1 to 255"),
        (f"[hms.queue.{'a' * 256}]", "1 to 255"),
        ('[hms.queue."a\\nb"]', "printable"),
        ("[hms.queue.A]\ndead_letter = 'B'", "there is no queue 'B'"),
        ("[hms.queue.A]\ndead_letter = 'A'", "cannot be its own"),
        ("[hms.queue.A]\nexport_name = 'B'\n[hms.topic.B]", "is looked up as 'B' already"),
        ("[hms.queue.A]\nSVGNAME = 'g'", "there is no svrgroup 'g'"),
        ("[[hms.queue.A]]", "must be one table"),
        ("[server.s]", "needs module"),
        ("[server.s]\nmodule = '../x'", "must be a module"),
        ("[server.s]\nmodule = 'm'\nMIN = 2\nMAX = 1", "below MIN"),
        ("[svrgroup.a]\n[svrgroup.b]", "second HMS group"),
        ("[svrgroup.a]\nSVGTYPE = 'TMAX'\nHMSINDEX = 2", "only a group"),
        ("[node.'../x']", "no valid name"),
        ("[hms.queu.A]", "did you mean 'hms.queue'"),
        ("[queue.A]", "did you mean 'hms.queue'"),
        ("[domain]\nMAXSESSION = 10\n[node.N2]\nMAXSESSION = 11", "above MAXSESSION 10"),
    ],
)
def test_a_fault_says_what_is_wrong(faults, text, reason):
    """Each of these was once a puzzle for somebody."""
    assert any(reason in said for said in faults(f"{NODE}{text}\n"))


@pytest.mark.parametrize("text", ["", "listen = ['a']\n", "[node]\nlisten = ['a']\n", "[domain]"])
def test_a_file_without_a_node_is_refused(faults, text):
    """There is nothing to boot."""
    assert any("there is no node" in said for said in faults(text))


def test_a_secured_node_takes_no_logins_where_others_could_hear_them(tmp_path):
    """A password on a plain TCP port is everybody's."""
    path = tmp_path / "hms.conf"
    path.write_text('[node.A]\nlisten = ["tcp://127.0.0.1:7700"]\nsecurity = "security.toml"\n')

    with pytest.raises(ConfigError) as caught:
        load(path)

    assert "hms.conf:2: [node.A] listen: 'tcp://127.0.0.1:7700' is not encrypted" in str(
        caught.value
    )


def test_a_shared_store_has_a_runtime_of_its_own_on_each_machine(faults, write):
    """Two machines would overwrite one another's pid file and log."""
    shared = f"{NODE}shared = true\nstore = 'shared'\n"

    assert faults(shared) == [
        "2: [node.N1] shared needs runtime: a folder of this machine, for its pid file and log"
    ]
    own = f"{shared}runtime = 'run'\n"
    assert faults(f"{own}database = 'sqlite:s.db'\n") == [
        "2: [node.N1] shared: a file of SQLite is for one machine; use store"
    ]
    assert faults(f"{own}lease_s = 2\n") == ["5: [node.N1] lease_s: 2 is out of range: 3 to 120"]
    assert load(write(own)).node("N1").shared


@pytest.mark.parametrize(
    ("command", "reason"),
    [("'/bin/page'", "must be a list of words"), ("['page']", "must be absolute"), ("[]", "list")],
)
def test_a_command_for_alerts_is_a_program_by_its_path(faults, command, reason):
    """No shell looks for it."""
    (said,) = faults(f"{NODE}[alerts]\ncommand = {command}\n")
    assert "[alerts] command: " in said
    assert reason in said
