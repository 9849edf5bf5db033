"""hms security reload, diff and export, and hms permission matrix: the file beside the node."""

import json
import random
from itertools import product

import msgspec
import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.security_file import change_security, load_security, save_security
from hms.engine.security import read_permission
from hms.engine.security.permissions import hold_together
from hms.server.logins import document_changes as changes
from hms.server.logins.security_document import AuthenticatorEntry, UserEntry
from tests.acceptance.security.test_revocation import without
from tests.support.secured import PASSWORD, cheap_hash, document, secured_node
from tests.support.waiting import wait_until

REPLACE = msgspec.structs.replace
PLUG_IN = {"kind": "plug-in", "plug_in": "x"}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    may = ["produce queue:orders", "consume queue:orders"]
    with secured_node(tmp_path_factory.mktemp("p"), document(u=may, v=[])) as node:
        node.held = load_security(node.security)
        yield node


@pytest.fixture
def node(running, monkeypatch):
    """With the policy that it began with, in a version of its own."""
    monkeypatch.setenv("HMS_CONFIG", str(running.config_file))
    version = 1 + max(json.loads(run("security", "reload", "--json"))["version"], 1)
    save_security(running.security, REPLACE(running.held, version=version))
    run("security", "reload")
    return running


def run(*words, code=0):
    done = CliRunner().invoke(main, [*words], prog_name="hms")
    assert done.exit_code == code, done.output
    return done.output


def alerts():
    active = json.loads(run("alert", "list", "--json"))["active"]
    return {row["alert"]: row["text"] for row in active}


def test_a_reload_says_what_holds_from_now_on_and_what_it_closed(node):
    """And it holds when the command returns: nobody has to wait for the next look."""
    with hms.connect(node.address, user="u", password=PASSWORD) as connection:
        consumer = connection.session().consumer(hms.Queue("orders"))
        before = load_security(node.security).version
        change_security(node.security, lambda d: without(d, "u", "consume queue:orders"))
        said = json.loads(run("security", "reload", "--json"))
        told = change_security(node.security, lambda d: d).version
        assert said["version"] == told > before
        with pytest.raises(hms.NotAuthorized):
            consumer.receive(timeout_s=60)
    said = run("security", "reload")
    assert said.strip() == f"version {told} holds: nothing is other"
    assert "security.reload" in run("audit", "list", "--json")


def test_a_file_written_by_hand_holds_at_once_when_somebody_says_that_it_is_whole(node):
    """By itself it is looked at twice, as half of it may be there."""
    text = node.security.read_text().split("\n", 2)[2].removesuffix("# end\n")
    node.security.write_text(text + '\n[role.by_hand]\npermissions = ["view queue:*"]\n')
    said = json.loads(run("security", "reload", "--json"))
    assert said["changed"] in (["role.by_hand"], [])  # or it was the second look's
    told = json.loads(run("security", "diff", "--json"))
    assert (told["differences"], told["file"]) == ([], told["running"])


@pytest.mark.parametrize("way", ["fault", "older", "cut", "mode"])
def test_a_reload_of_a_faulty_file_keeps_what_holds_and_raises_an_alert(node, way):
    """Each fault with its line; the command fails, and names the running policy by its version."""
    whole, known = node.security.read_text(), load_security(node.security)
    mode = 0o600
    if way == "fault":
        spoiled, named = whole.replace("produce queue", "prodcue queue"), "did you mean 'produce'?"
    elif way == "older":
        spoiled = whole.replace(f"version = {known.version}", "version = 1")
        named = f"version 1 is older than {known.version}"
    elif way == "cut":
        spoiled, named = whole[:-100], "cut off"
    else:
        spoiled, named, mode = whole, "chmod 600", 0o644
    node.security.write_text(spoiled)
    node.security.chmod(mode)
    try:
        said = run("security", "reload", code=1)
        assert named in said
        assert str(node.security) in said
        wait_until(lambda: named in alerts().get("policy_rejected", ""))
        with hms.connect(node.address, user="u", password=PASSWORD) as connection:
            told = connection.administer
            with pytest.raises(hms.NotAuthorized):
                told("security.reload", {})
    finally:
        node.security.write_text(whole)
        node.security.chmod(0o600)
    held = json.loads(run("security", "diff", "--json"))
    assert (held["running"], held["differences"]) == (known.version, [])
    assert run("security", "reload")
    wait_until(lambda: "policy_rejected" not in alerts())


def test_a_diff_names_each_key_that_is_other_and_tells_no_secret(node, tmp_path):
    """Before a file is put in the place of the one that holds."""
    assert "the node obeys" in run("security", "diff")
    held, other = load_security(node.security), cheap_hash("another pass phrase")
    held = changes.grant(changes.create_role(held, "desk"), "desk", "browse queue:*")
    held = without(held, "u", "consume queue:orders")
    held = changes.delete_user(changes.alter_user(held, "u", password=other), "v")
    held, token = changes.add_token(held, "ci", "u", _later())
    settings = REPLACE(held.security, resume_s=60, login_queue_max=256)
    options = {"pin": "4711", "at": "file:pin", "port": 7}
    plug_in = AuthenticatorEntry(**PLUG_IN, options=options)
    held = REPLACE(held, security=settings, authenticator={"own": plug_in}, changed_by="x")
    save_security(tmp_path / "next.toml", held)

    said = run("security", "diff", str(tmp_path / "next.toml"), code=1)
    rows = json.loads(run("security", "diff", str(tmp_path / "next.toml"), "--json", code=1))

    running = load_security(node.security)
    assert said.splitlines()[0] == (
        f"the file has version {held.version}, the node obeys version {running.version}"
    )
    assert {*said.splitlines()[1:]} > {
        "~ security.resume_s: default -> 60",
        "- role.u.permissions: consume queue:orders",
        "+ role.desk",
        "+ role.desk.permissions: browse queue:*",
        "- user.v",
        "~ user.u.password: another one",
        "~ user.u.generation: default -> 2",
        "+ token.ci",
        "+ token.ci.sha256: set",
        "+ authenticator.own",
    }
    told = said + json.dumps(rows)
    for secret in (other, held.token["ci"].sha256, token, "4711", running.user["u"].password):
        assert secret not in told
    assert load_security(node.security) == running


def test_an_export_is_a_policy_without_secrets_that_can_be_used(node, tmp_path, monkeypatch):
    """Of the file, and of what the node obeys: the same rights, and a note for each secret."""
    plug_in = AuthenticatorEntry(**PLUG_IN, options={"pin": "4711", "at": "file:pin"})

    def planted(held):
        held, made = changes.add_token(held, "ci", "u", _later())
        tokens.append(made)
        held = REPLACE(held, domain_password=cheap_hash("domain"), authenticator={"own": plug_in})
        return changes.set_limits(held, "u", {"bytes_per_s": "1 MiB"})

    tokens = []
    change_security(node.security, planted)
    run("security", "reload")
    held, text = load_security(node.security), run("security", "export")
    assert run("security", "export", "--running") == text
    left_out = [line for line in text.splitlines() if "left out" in line]
    assert [line.partition(" is left")[0].partition(", until")[0] for line in left_out] == [
        "# domain_password",
        "# the password of u",
        "# the password of v",
        "# the token ci of u",
        "# option pin of authenticator own",
    ]
    secrets = [tokens[0], held.token["ci"].sha256, held.domain_password, "4711"]
    for secret in (*secrets, *(one.password for one in held.user.values() if one.password)):
        assert secret not in text
        assert secret not in run("security", "export", "--json")

    path = tmp_path / "security.toml"
    path.write_text(text)
    path.chmod(0o600)
    again = load_security(path)
    assert (again.role, again.version, again.security) == (held.role, held.version, held.security)
    assert again.user == {n: REPLACE(u, password="") for n, u in held.user.items()}
    rows = json.loads(run("security", "diff", str(path), "--json", code=1))["differences"]
    assert {(row["section"], row.get("key")) for row in rows} >= {("user.u", "password")}
    assert all(row.get("file") is None or row["section"] == "authenticator.own" for row in rows)


def test_a_matrix_says_who_may_do_what_to_all_and_to_some_of_it(node):
    """Users, and whoever a directory gives a role to; who is disabled may do nothing."""

    def peopled(held):
        for name, permission in (
            ("desk", "produce queue:orders.*"),
            ("desk", "publish topic:news/eu"),
            ("clerk", "produce queue:orders.eu"),
            ("clerk", "subscribe topic:news/+/oil"),
            ("clerk", "consume queue:?"),
            ("clerk", "consume queue:??*"),
        ):
            if name not in held.role:
                held = changes.create_role(held, name)
            held = changes.grant(held, name, permission)
        for name, roles in (("ann", ("desk", "clerk")), ("bob", ("clerk",)), ("eve", ("desk",))):
            held = changes.add_user(held, name, UserEntry(roles=roles))
        held = changes.alter_user(held, "eve", enabled=False)
        corp = AuthenticatorEntry(**PLUG_IN, role_map={"cn=x": "clerk"})
        return REPLACE(held, authenticator={"corp": corp})

    change_security(node.security, peopled)
    run("security", "reload")

    def rows(*words):
        done = CliRunner().invoke(main, ["permission", "matrix", "--json", *words])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        return {(row["action"], row["resource"]): (row["all"], row["some"]) for row in found}

    every = rows()
    assert every["produce", "queue:orders.*"] == (["ann", "root"], ["bob", "corp:clerk"])
    assert every["produce", "queue:orders.eu"] == (["ann", "bob", "root", "corp:clerk"], [])
    assert every["publish", "topic:news/eu"] == (["ann", "root"], [])
    assert every["secure", "user:*"] == (["root"], [])
    assert every["produce", "queue:HMS.*"] == (["root"], [])
    assert every["consume", "queue:?"] == (["ann", "bob", "root", "corp:clerk"], [])
    (row,) = rows("--action", "consume", "--resource", "queue:*").values()
    assert row == (["ann", "bob", "root", "corp:clerk"], ["u", "v"][:1])  # each by two together
    asked = rows("--resource", "topic:news/eu/oil", "--resource", "queue:orders.us")
    assert asked["subscribe", "topic:news/eu/oil"] == (["ann", "bob", "root", "corp:clerk"], [])
    assert asked["publish", "topic:news/eu/oil"] == (["ann", "root"], [])
    assert asked["produce", "queue:orders.us"] == (["ann", "root"], [])
    assert len(asked) > 10
    own = rows("--user", "bob", "--action", "produce", "--resource", "queue:*")
    assert own == {("produce", "queue:*"): ([], ["bob"])}
    said = CliRunner().invoke(main, ["permission", "matrix", "--user", "eve", "--user", "ann"])
    assert "eve is disabled, and may do nothing" in said.stderr
    assert "eve" not in said.stdout
    for words, named in (
        (["--user", "anm"], "did you mean 'ann'?"),
        (["--action", "prodcue"], "did you mean 'produce'?"),
        (["--resource", "quue:x"], "did you mean 'queue'?"),
        (["--resource", "node:a*"], "the whole name"),
    ):
        assert named in run("permission", "matrix", *words, code=1)


def test_a_matrix_has_no_cell_that_the_node_would_not_grant(node):
    """Every pattern beside every other, held against names that it matches."""
    words = ["a", "ab", "b", "ba", "aab", "HMS.a", "HMS.ab"]
    patterns = ["*", "?", "a*", "*a", "a?", "?*", "*?", "a*b", "HMS.*", "HMS.a", "H*", "ab", "??*"]
    read = [read_permission(f"produce queue:{one}") for one in patterns]
    for one in read:
        for other in read:
            both = [word for word in words if one.covers(word) and other.covers(word)]
            if hold_together([one], other):
                assert all(one.covers(word) for word in words if other.covers(word)), (one, other)
            assert not both or one.meets(other), (one, other)
    holds = {(a.pattern, b.pattern) for a in read for b in read if hold_together([a], b)}
    assert holds >= {("*", "a*b"), ("?*", "*?"), ("*?", "??*"), ("a*", "a?"), ("HMS.*", "HMS.a")}
    assert not holds & {("a?", "a*"), ("*", "HMS.a"), ("?", "*"), ("H*", "HMS.a"), ("??*", "?*")}
    assert ("?*", "*") in holds  # no name is empty


def words_of(letters, between=""):
    """Every name of at most five letters, or levels."""
    return [between.join(one) for n in range(1, 6) for one in product(letters, repeat=n)]


@pytest.mark.parametrize("seed", range(4))
def test_several_permissions_together_cover_what_their_names_say(seed):
    """Held against every short name, letters and levels that no pattern has among them."""
    chance = random.Random(seed)
    for kind, between, anything in (("queue", "", "*?"), ("topic", "/", "#+")):
        words = words_of("abx", between)
        for _ in range(150):
            wanted, *granted = (
                read_permission(f"view {kind}:" + between.join(pattern))
                for pattern in patterns(chance, "ab", anything, chance.randint(2, 5))
            )
            said = hold_together(granted, wanted)
            names = [word for word in words if wanted.covers(word)]
            assert said == all(any(one.covers(word) for one in granted) for word in names), (
                str(wanted),
                *map(str, granted),
            )


def test_names_are_never_empty_and_lengths_add_up():
    """What one permission leaves out another one may have."""

    def together(wanted, *granted):
        return hold_together(map(read_permission, granted), read_permission(wanted))

    one, more = "produce queue:?", "produce queue:??*"
    assert together("produce queue:*", one, more)
    assert together("produce queue:a*", "produce queue:a", "produce queue:a?*")
    assert not together("produce queue:*", one, "produce queue:???*")
    assert not together("produce queue:*", more)
    assert together("publish topic:#", "publish topic:+")
    assert not together("produce queue:HMS.*", one, more)


def patterns(chance, letters, anything, count):
    """Some that are valid; a # stands last in a topic."""
    for _ in range(count):
        some = [chance.choice(letters + anything) for _ in range(chance.randint(1, 3))]
        yield ["+" if one == "#" and n < len(some) - 1 else one for n, one in enumerate(some)]


def test_a_policy_is_shown_and_reloaded_by_who_may_change_it(node):
    """An administrator of queues does not see who may log in, and how."""
    with hms.connect(node.address, user="u", password=PASSWORD) as connection:
        for verb in ("security.show", "security.reload", "audit.verify"):
            with pytest.raises(hms.NotAuthorized):
                connection.administer(verb, {})


def test_an_open_node_has_no_policy():
    """It says how it gets one."""
    with hms.testing.node(config={}) as running, hms.connect(running.address) as connection:
        for verb in ("security.show", "security.reload", "audit.verify"):
            with pytest.raises(hms.NotSupported, match="hms config secure"):
                connection.administer(verb, {})


def _later():
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
