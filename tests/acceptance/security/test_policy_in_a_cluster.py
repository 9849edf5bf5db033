"""The security document in a cluster: a change at one node holds at all, over encrypted links."""

import itertools
import json
import re
import shutil

import msgspec
import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.security_file import load_security, save_security
from hms.engine.cluster.cluster_messages import Policy, decode_message, encode_message
from hms.engine.cluster.policy_exchange import PolicyExchange
from hms.server.links.keys import make_key_file, read_key_file
from hms.testing.ports import free_port
from hms.testing.toml_text import to_toml
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.waiting import wait_until

REPLACE = msgspec.structs.replace
NAMES = ["n1", "n2"]
VERIFY = ["audit", "verify", "--cluster", "--timeout", "200"]
FIRST_ORDER = 2
"""Its number in the audit: the boot is the first record."""


def config_of(folder, **domain):
    """Two secured nodes with keys, each with a file of its own."""
    nodes, groups = {}, {}
    for index, name in enumerate(NAMES, 1):
        (folder / name).mkdir()
        key, path = folder / f"{name}.key", folder / name / "security.toml"
        save_security(path, document(u=["produce queue:orders"]))
        nodes[name] = {"listen": [f"ipc://{folder}/{name}/s"], "security": str(path)}
        groups[f"g{index}"] = {
            "NODENAME": name,
            "HMSINDEX": index,
            "HMSPORT": free_port(),
            "HMSHEARTBEAT": 5.0,
            "HMSGQINT": 0.2,
            "link_key_file": str(key),
            "link_public_key": make_key_file(key),
        }
    made = {"hms": {"queue": {"orders": {}, "payments": {}}}, "node": nodes, "svrgroup": groups}
    return {**made, "domain": domain} if domain else made


def run(node, *words, code=0):
    done = CliRunner().invoke(main, [*words, "--node", node], prog_name="hms")
    assert done.exit_code == code, done.output
    return done.output


def test_a_change_at_one_node_holds_at_the_other_also_after_it_was_down(tmp_path, monkeypatch):
    """A user who is disabled at one must not get in at the other."""
    files = [tmp_path / name / "security.toml" for name in NAMES]
    with hms.testing.node(config=config_of(tmp_path), nodes=2) as first:
        monkeypatch.setenv("HMS_CONFIG", str(first.config_file))
        second = first.nodes[1]
        run("n1", "role", "create", "billing")
        run("n1", "permission", "grant", "billing", "connect listener:*")
        run("n1", "user", "alter", "u", "--role", "u", "--role", "billing")
        wait_until(lambda: load_security(files[1]) == load_security(files[0]))
        with hms.connect(second.address, user="u", password=PASSWORD) as connection:
            assert connection.is_connected

        second.kill()
        run("n1", "user", "disable", "u")
        second.boot()
        wait_until(lambda: not load_security(files[1]).user["u"].enabled)
        version = load_security(files[1]).version
        wait_until(lambda: f"policy version {version} holds" in second.log)
        with pytest.raises(hms.LoginRefused):
            hms.connect(second.address, user="u", password=PASSWORD)
        run("n2", "user", "enable", "u")
        wait_until(lambda: load_security(files[0]).user["u"].enabled)


def test_an_older_copy_of_a_store_is_told_by_a_node_that_knows_a_later_audit(tmp_path, monkeypatch):
    """Must show 7: the chain of the copy is whole, so the node alone cannot know."""
    with hms.testing.node(config=config_of(tmp_path), nodes=2) as first:
        monkeypatch.setenv("HMS_CONFIG", str(first.config_file))
        second = first.nodes[1]

        def known():
            """The last record of n2 that n1 remembers."""
            (row,) = json.loads(run("n1", "cluster", "status", "--json"))["members"]
            return row["audit_number"]

        run("n2", "queue", "create", "one")
        number_before = int(run("n2", "audit", "anchor").partition(":")[0])
        second.stop()
        shutil.copytree(second.store, tmp_path / "older")
        second.boot()
        for name in ("two", "three", "more", "still more"):
            run("n2", "queue", "create", name)
        number = int(run("n2", "audit", "anchor").partition(":")[0])
        wait_until(lambda: known() == number)
        second.kill()
        second.boot()
        run("n2", "queue", "create", "four")
        wait_until(lambda: known() == number + 3)  # with the kill and the boot
        assert "audit_broken" not in run("n2", "alert", "list")

        second.stop()
        shutil.rmtree(second.store)
        shutil.move(tmp_path / "older", second.store)
        second.boot()
        wait_until(lambda: "an old frame or store" in run("n1", "cluster", "status", "--json"))
        for _ in range(2):  # by now it counts as many boots as the store that it replaces
            second.kill()
            second.boot()

        wait_until(lambda: "audit_broken" in run("n2", "alert", "list"))
        said = run("n2", "alert", "list", "--json")
        found = re.search(r"node n1 knows (another )?record (\d+) of this audit", said)
        assert number_before < int(found[2]) <= known()
        wait_until(lambda: "node n2 told record" in run("n1", "alert", "list", "--json"))
        assert "whole" in run("n2", "audit", "verify")


def spoil(folder):
    """One bit of the first order in the audit, in its segment; which file."""
    for file in sorted(folder.glob("*.log")):
        data = file.read_bytes()
        at = data.find(b"queue.create")
        if at > 0:
            file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            return file
    raise AssertionError("no record was found")


def test_one_command_has_each_node_verify_its_audit_and_names_node_and_record(
    tmp_path, monkeypatch
):
    """Whole, altered, older than another node remembers, and not there."""
    with hms.testing.node(config=config_of(tmp_path), nodes=2) as first:
        monkeypatch.setenv("HMS_CONFIG", str(first.config_file))
        second = first.nodes[1]

        def verify(code=0):
            """Verdicts by node, as n1 tells them."""
            done = CliRunner().invoke(main, [*VERIFY, "--json"])
            rows = {row["node"]: row for row in json.loads(done.stdout)}
            codes = code if isinstance(code, tuple) else (code,)
            assert done.exit_code in codes, str(rows)
            assert [*rows] == NAMES
            return rows

        def known():
            (row,) = json.loads(run("n1", "cluster", "status", "--json"))["members"]
            return row["audit_number"]

        def linked():
            """n2 first: the one that was just booted is up there when n1 has heard of it."""
            told = [json.loads(run(name, "cluster", "status", "--json")) for name in ("n2", "n1")]
            return all(link["presence"] == "up" for one in told for link in one["links"])

        wait_until(linked)
        for name in NAMES:
            run(name, "queue", "create", f"of-{name}")
        rows = verify()
        assert [row["why"] for row in rows.values()] == ["", ""]
        for name in NAMES:
            said = run(name, "audit", "anchor").strip()
            assert said == f"{rows[name]['last']}:{rows[name]['hash']}"
        told = run("n1", *VERIFY).splitlines()
        assert told[1] == f"n2: {rows['n2']['records']} records are whole, from number 1" or (
            told[1] == "n2: 1 record is whole, from number 1"
        )

        second.stop()
        whole = tmp_path / "older"
        shutil.copytree(second.store, whole)
        second.boot()
        wait_until(linked)
        for name in range(8):  # more than the boots of the copy leave records
            run("n2", "queue", "create", f"later-{name}")
        last = int(run("n2", "audit", "anchor").partition(":")[0])
        wait_until(lambda: known() == last)
        second.stop()
        gone = verify(1)
        assert (gone["n1"]["why"], gone["n2"]["why"]) == ("", "it is not up")

        shutil.rmtree(second.store)
        shutil.copytree(whole, second.store)
        for _ in range(2):  # by now it counts as many boots as the store that it replaces
            second.boot()
            second.kill()
        second.boot()
        wait_until(linked)
        older = verify((3, 4))
        assert older["n1"]["why"] == ""
        number, why = older["n2"]["older"], older["n2"]["why"]
        is_older = (number, why) == (last, f"the store is older than record {last}")
        # n1 may also remember a record that the copy has written anew.
        assert is_older or re.fullmatch(r"record \d+ is another one", why)
        spoil(second.store)
        broken = verify(4)
        assert broken["n2"]["broken"] == FIRST_ORDER
        assert f"n2: record {FIRST_ORDER}" in run("n1", *VERIFY, code=4)


def test_a_node_that_is_alone_has_no_cluster_to_verify(tmp_path, monkeypatch):
    """And an anchor is of one node."""
    with secured_node(tmp_path, document(u=[])) as node:
        monkeypatch.setenv("HMS_CONFIG", str(node.config_file))
        assert "it is in no cluster" in run("NODE1", "audit", "verify", "--cluster", code=1)
        assert "of one node" in run(
            "NODE1", "audit", "verify", "--cluster", "--anchor", "1:x", code=2
        )


def test_keys_of_links_are_changed_without_a_boot_and_known_after_one(tmp_path, monkeypatch):
    """hms.conf has the key before: a node that is killed and booted knows what it was told. Both
    have it in their audit."""
    with hms.testing.node(config=config_of(tmp_path), nodes=2) as first:
        monkeypatch.setenv("HMS_CONFIG", str(first.config_file))
        second, said = first.nodes[1], first.config_file.read_text()
        file = tmp_path / "n1.key"
        before = read_key_file(file).public.decode()

        def link(node, other):
            told = json.loads(run(node, "cluster", "status", "--json"))
            (found,) = [one for one in told["links"] if one["node"] == other]
            return found

        assert "--switch" not in run("n1", "keys", "rotate", "--links", "--switch", code=1)
        coming = run("n1", "keys", "rotate", "--links").strip()
        wait_until(lambda: link("n2", "n1")["next_key"] == coming)
        assert run("n1", "keys", "rotate", "--links", "--switch").strip() == coming
        wait_until(lambda: f"the links show the key {coming}" in first.log)
        wait_until(lambda: link("n2", "n1")["next_key"] == "")
        wait_until(lambda: link("n2", "n1")["presence"] == link("n1", "n2")["presence"] == "up")

        def audited(node, command):
            told = json.loads(run(node, "audit", "export").join(("[", "]")).replace("}\n{", "},{"))
            return [
                (one["resource"], json.loads(one["arguments"])["public"])
                for one in told
                if one["command"] == command
            ]

        wait_until(lambda: audited("n1", "link key") == [("node:n1", coming)])
        wait_until(lambda: audited("n2", "link key learned") == [("node:n1", coming)])
        assert before in first.config_file.read_text() == said
        for node in (second, first):
            node.kill()
            node.boot()
        wait_until(lambda: link("n2", "n1")["presence"] == link("n1", "n2")["presence"] == "up")
        run("n1", "role", "create", "billing")
        wait_until(lambda: "billing" in load_security(tmp_path / "n2" / "security.toml").role)


def test_only_the_master_changes_the_policy_where_one_is_declared(tmp_path, monkeypatch):
    """Its document comes to the others, and theirs would be lost."""
    (tmp_path / "hms.conf").write_text(to_toml(config_of(tmp_path, config_master="n1")))
    monkeypatch.setenv("HMS_CONFIG", str(tmp_path / "hms.conf"))
    assert "n1" in run("n2", "role", "create", "r", code=1)
    run("n1", "role", "create", "r")


def test_an_order_over_a_connection_is_given_to_the_master_and_outlives_a_crash(tmp_path):
    """Its answer says that the file has it; the others have it from there, with its author."""
    files = [tmp_path / name / "security.toml" for name in NAMES]
    with hms.testing.node(config=config_of(tmp_path, config_master="n1"), nodes=2) as first:
        second, order = first.nodes[1], ("user.disable", {"name": "u"})
        with hms.connect(second.address) as connection:
            before = files[1].read_bytes()
            with pytest.raises(hms.errors.NotConfigMaster):
                connection.administer(*order)
            assert files[1].read_bytes() == before
        with hms.connect(first.address) as connection:
            said = connection.administer(*order)
        first.kill()
        assert not load_security(files[0]).user["u"].enabled
        first.boot()
        with hms.connect(first.address) as connection:
            again = connection.administer(*order)
        assert (again["version"], again["changed"]) == (said["version"], [])
        wait_until(lambda: f"policy version {said['version']} holds" in second.log)
        assert load_security(files[1]) == load_security(files[0])
        assert load_security(files[1]).changed_by == "user:root"
        with pytest.raises(hms.LoginRefused):
            hms.connect(second.address, user="u", password=PASSWORD)


def test_the_newest_document_holds_whoever_hears_of_it_first():
    """Of one version that of the higher index; without a part in it nothing is taken."""
    words = [Policy(2, 1, "a"), Policy(3, 1, "b"), Policy(3, 2, "c"), Policy(1, 9, "d")]
    for order in itertools.permutations(words):
        node = PolicyExchange()
        node.own = Policy(2, 1, "a")
        for word in order:
            node.told(word.node, decode_message(encode_message(word))[0])
        assert node.heard.text == "c"
        assert [node.differs(n) for n in (1, 2, 3, 9)] == [
            node.of[1].text != "a",
            True,
            False,
            True,
        ]
    apart = PolicyExchange()
    apart.told(1, words[1])
    assert (apart.heard, apart.differs(1)) == (None, False)
    same = PolicyExchange()
    same.own = Policy(3, 1, "c")
    same.told(2, Policy(3, 2, "c"))
    assert (same.own.node, same.heard) == (2, None)
