"""The pages of the console about the node itself: users and roles, audit, backups, configuration.

Each is asked with a login of its own: what the node does not permit, the console does not show.
"""

import json
import os
import re
import shutil
import signal
import sys
import time
from html import unescape
from urllib.parse import quote

import msgspec
import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.boot.security_file import change_security, load_security
from hms.history.backups.backup_chain import backups_in
from hms.history.backups.backup_manifest import Manifest, write_manifest
from hms.server.logins.security_document import UserEntry
from tests.acceptance.operations.test_console import Browser
from tests.support.secured import PASSWORD, cheap_hash, document, secured_node
from tests.support.waiting import wait_until

MARKUP = "<script>alert(1)</script>\"'>"
KEEPER = [
    *("view node:*", "view client:*", "secure user:*", "secure role:*", "audit node:*"),
    *("operate node:*", "view queue:*", "view topic:*", "purge queue:*"),
]
NEW_PAGES = ("/users", "/user?name=bob", "/roles", "/role?name=bob", "/may", "/policy", "/audit")
NEW_PAGES += ("/record?number=1", "/backups", "/configuration")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Its backups lie beside it; a server process has a secret among its variables."""
    folder = tmp_path_factory.mktemp("n")
    held = document(keeper=KEEPER, viewer=["view node:*"], bob=["produce queue:orders"])
    with secured_node(folder, held, own={"backups": str(folder / "kept")}) as node:
        node.held = held
        yield node


@pytest.fixture
def node(running):
    """With the policy that it began with."""
    change_security(running.security, lambda d: msgspec.structs.replace(d, user=running.held.user))
    words = ["security", "reload", "--config", str(running.config_file)]
    wait_until(lambda: CliRunner().invoke(main, words).exit_code == 0)
    return running


@pytest.fixture
def browser(node, serving):
    """The console, as somebody."""
    server = serving(node.address, is_secured=True, config_file=node.config_file)

    def login(user):
        made = Browser(server)
        assert made.ask("POST", "/login", {"user": user, "password": PASSWORD})[0] == 303
        made.token = lambda: token_of(made.get("/"))
        return made

    return login


def token_of(text):
    return re.search(r'name="token" value="([^"]+)"', text)[1]


def run(node, *words, code=0):
    line = [*words, "--config", str(node.config_file)]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == code, done.output
    return done.output


def audit(node, **wanted):
    rows = json.loads(run(node, "audit", "list", "--json", "--limit", "1000"))
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_a_user_is_disabled_logged_out_and_enabled_by_who_may(node, browser):
    """What it has open is closed, the file says who did it, and so does the audit."""
    keeper = browser("keeper")
    page = keeper.get("/users?name=bo")
    assert "1 of 1 user" in page
    assert "/user?name=bob" in page
    assert "produce queue:orders (role bob)" in keeper.get("/user?name=bob")
    with hms.connect(node.address, user="bob", password=PASSWORD, reconnect=False) as bob:
        asked, said = keeper.order("disable", name="bob")
        assert "what it has open is closed: 1 connection" in asked
        assert re.fullmatch(
            r"bob is disabled; policy version \d+, record \d+ of the audit; "
            r"1 connection, consumer or service closed\.",
            said,
        )
        with pytest.raises(hms.HmsError):
            bob.session()
    with pytest.raises(hms.LoginRefused):
        hms.connect(node.address, user="bob", password=PASSWORD, reconnect=False)
    document_now = load_security(node.security)
    assert (document_now.user["bob"].enabled, document_now.changed_by) == (False, "user:keeper")
    number = int(re.search(r"record (\d+)", said)[1])
    (row,) = audit(node, number=number)
    assert (row["user"], row["command"], row["resource"]) == ("keeper", "user.disable", "user:bob")
    assert audit(node, command="policy", user="keeper")[-1]["from"] == "security file"
    assert "no: disabled" in keeper.get("/users?name=bob")
    _, said = keeper.order("enable", name="bob")
    assert said.startswith("bob is enabled")
    with hms.connect(node.address, user="bob", password=PASSWORD, reconnect=False):
        _, said = keeper.order("log_out", name="bob")
        assert "1 connection, consumer or service closed" in said
    with hms.connect(node.address, user="bob", password=PASSWORD):
        assert load_security(node.security).user["bob"].enabled


def test_permissions_are_granted_and_revoked_and_hold_at_once(node, browser):
    """Of a role of the file; a built-in one has no form for it."""
    keeper = browser("keeper")
    with hms.connect(node.address, user="bob", password=PASSWORD) as bob:
        session = bob.session()
        with pytest.raises(hms.NotAuthorized):
            session.producer("payments")
        doubted, _ = keeper.order("grant", name="bob", permission="view topic:*")
        assert "did you mean view topic:#?" in doubted
        keeper.order("revoke", name="bob", id="view topic:*")
        asked, said = keeper.order("grant", name="bob", permission="produce queue:payments")
        assert "did you mean" not in asked
        assert "Adds the permission produce queue:payments to role bob, of 1 user." in asked
        assert said.startswith("Role bob may produce queue:payments; policy version ")
        session.producer("payments").send(b"x")
        page = keeper.get("/role?name=bob")
        assert 'value="produce queue:payments"' in page
        rows = keeper.get("/may?resource=queue:payments")
        assert "/user?name=bob" in rows
        _, said = keeper.order("revoke", name="bob", id=["produce queue:payments"])
        assert said.startswith("Role bob may no longer produce queue:payments")
        with pytest.raises(hms.NotAuthorized):
            session.producer("payments").send(b"x")
    built_in = keeper.get("/role?name=operator")
    assert "cannot be changed" in built_in
    assert 'value="grant"' not in built_in


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"action": "disable", "name": "nobody"}, "there is no user"),
        ({"action": "disable"}, "The user is missing"),
        ({"action": "grant", "name": "bob", "permission": "prodcue queue:x"}, "did you mean"),
        ({"action": "grant", "name": "admin", "permission": "secure user:*"}, "built in"),
        ({"action": "grant", "name": "bob"}, "one permission"),
        ({"action": "revoke", "name": "bob", "id": ["a", "b"]}, "one permission"),
        ({"action": "revoke", "name": "bob", "id": ["call service:x"]}, "has no permission"),
        ({"action": "verify_backup", "id": ["../../etc"]}, "no such backup"),
        ({"action": "verify_backup"}, "Choose one backup"),
    ],
)
def test_an_order_that_cannot_be_done_changes_nothing(node, browser, form, said):
    """It says what is wrong; the file is as before."""
    keeper, before = browser("keeper"), node.security.read_bytes()
    status, text, _ = keeper.ask("POST", "/order", {**form, "sure": "yes", "token": keeper.token()})
    assert (status, said in unescape(text)) == (400, True), text
    assert node.security.read_bytes() == before


def test_the_last_administrator_stays(node, browser):
    """Whoever is the only one that may secure is not disabled, by anyone."""
    keeper = browser("keeper")
    change_security(
        node.security,
        lambda d: msgspec.structs.replace(
            d, user={name: one for name, one in d.user.items() if name != "root"}
        ),
    )
    wait_until(lambda: "/user?name=root" not in keeper.get("/users"))
    form = {"action": "disable", "name": "keeper", "sure": "yes", "token": keeper.token()}
    status, text, _ = keeper.ask("POST", "/order", form)
    assert (status, "nobody would be left" in text) == (400, True)


def test_who_may_not_sees_none_of_it_and_can_order_nothing(node, browser):
    """The node refuses each page and order, as it refuses the command."""
    viewer, before = browser("viewer"), node.security.read_bytes()
    for path in NEW_PAGES:
        status, text, _ = viewer.ask("GET", path)
        expected = 200 if path in ("/backups", "/configuration") else 400
        assert status == expected, path
        assert status == 200 or "HMS-1030" in text, path
    token = viewer.token()
    for form in (
        {"action": "disable", "name": "bob"},
        {"action": "log_out", "name": "bob"},
        {"action": "grant", "name": "bob", "permission": "produce queue:*"},
        {"action": "reload_policy"},
        {"action": "verify_audit"},
    ):
        for sure in ({}, {"sure": "yes"}):
            status, text, _ = viewer.ask("POST", "/order", {**form, **sure, "token": token})
            assert (status, "HMS-1030" in text) == (400, True), form
    assert node.security.read_bytes() == before


def test_another_site_orders_nothing_of_it(node, browser):
    """Neither without the token, nor with another origin."""
    keeper, before = browser("keeper"), node.security.read_bytes()
    form = {"action": "disable", "name": "bob", "sure": "yes", "token": keeper.token()}
    assert keeper.ask("POST", "/order", form, Origin="http://evil.example")[0] == 400
    assert keeper.ask("POST", "/order", {**form, "token": "x"})[0] == 400
    assert keeper.ask("GET", "/order?action=disable&name=bob&sure=yes")[0] == 405
    assert node.security.read_bytes() == before


def test_ten_thousand_users_are_shown_a_hundred_at_a_time(node, browser):
    """No page and no answer has all of them."""
    keeper, hashed = browser("keeper"), cheap_hash()
    crowd = {f"u{n:05}": UserEntry(roles=("bob",)) for n in range(10_000)}
    change_security(node.security, lambda d: msgspec.structs.replace(d, user={**crowd, **d.user}))
    run(node, "security", "reload")
    page = keeper.get("/users?name=u0")
    assert len(page) < 100_000
    assert page.count("/user?name=") == 100
    further = unescape(re.search(r'href="(/users\?[^"]*behind=[^"]*)"', page)[1])
    assert "u00100" in keeper.get(further)
    assert len(keeper.get("/may?resource=queue:orders")) < 20_000
    assert "the first 50 of 10001" in keeper.get("/role?name=bob")
    assert hashed not in page
    _, said = keeper.order("disable", name="u00042")
    assert said.startswith("u00042 is disabled")
    assert not load_security(node.security).user["u00042"].enabled


def test_the_audit_is_searched_paged_and_each_record_shown(node, browser):
    """What a client sends as a name stays text."""
    keeper = browser("keeper")
    with hms.connect(node.address) as root:
        for n in range(120):
            root.administer("queue.create", {"name": f"made.{n}", "life": "CREATED"})
        with pytest.raises(hms.HmsError):
            root.administer("queue.purge", {"name": MARKUP})
    every = audit(node, command="queue.create")
    assert len(every) >= 120
    page = keeper.get("/audit?command=queue.create")
    rows = re.findall(r'/record\?number=(\d+)"', page)
    assert rows == [str(one["number"]) for one in every[::-1][:100]]
    older = unescape(re.search(r'href="(/audit\?[^"]*before=\d+)"', page)[1])
    rest = re.findall(r'/record\?number=(\d+)"', keeper.get(older))
    assert rows + rest == [str(one["number"]) for one in every[::-1]]
    shown = keeper.get(f"/record?number={rows[0]}")
    assert '{"name":"made.119"' in unescape(shown).replace('": "', '":"')
    assert "<script" not in keeper.get("/audit?command=queue.purge")
    assert "&lt;script&gt;" in keeper.get("/audit?command=queue.purge")
    assert "There is no such record" in keeper.get("/record?number=999999999")
    assert "/record?number=" not in keeper.get("/audit?result=ok&user=nobody")


def test_the_audit_is_verified_in_a_process_of_its_own(node, browser):
    """The page says that it goes on, and then what was found."""
    keeper = browser("keeper")
    assert "was not verified since" in keeper.get("/audit")
    asked, said = keeper.order("verify_audit")
    assert "Reads all records up to number" in asked
    assert said.startswith("The audit is verified")
    wait_until(lambda: "records are whole" in keeper.get("/audit"), 60)


def _manifest(folder, number, node, **more):
    name = f"2026010{number}T000000000-{number}"
    (folder / name).mkdir(parents=True)
    numbers = 1, "", 1, 1, 1, 1, 1, 1, int(time.time() * 1000) - 3_600_000
    base = more.pop("base", "")
    write_manifest(folder / name, Manifest(name, node, *numbers, base, {}, [], **more))
    return name


@pytest.fixture
def folder(node):
    """Where its backups are; there are none."""
    kept = node.security.parent / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    return kept


def test_backups_are_listed_with_their_age_and_verified(node, browser, folder):
    """Made by the command, read by the page; one that was altered is named."""
    keeper = browser("keeper")
    assert "There is no backup in" in keeper.get("/backups")
    run(node, "backup", "create")
    run(node, "backup", "create", "--since", "latest")
    full, later = (path.name for path in backups_in(folder))
    page = keeper.get("/backups")
    assert "The last one of NODE1 is 0.0 h old" in page
    assert page.index(later) < page.index("none: it is full")
    assert page.count("when it was made") == 2
    asked, said = keeper.order("verify_backup", id=[later])
    assert "Reads 2 backups" in asked
    assert said == f"{later} is verified; look again in a while."
    wait_until(lambda: "good, up to" in keeper.get("/backups"), 60)
    assert audit(node, command="backup.verify")[-1]["user"] == "keeper"
    segment = next((folder / full).glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    keeper.order("verify_backup", id=[full])
    wait_until(lambda: "could not be verified" in keeper.get("/backups"), 60)
    assert segment.name in unescape(keeper.get("/backups"))
    (folder / later / "manifest.json").write_text("{}")
    assert "it is no manifest of a backup" in unescape(keeper.get("/backups"))


def begin(keeper, **given):
    """Post the form, and say what the page says then."""
    form = {"token": keeper.token(), **given}
    status, text, headers = keeper.ask("POST", "/backup", form)
    return keeper.get(headers["Location"]) if status == 303 else unescape(text)


def send_much(node, mebibytes=8):
    """Into the queue, where it waits."""
    with hms.connect(node.address) as root, root.session() as session:
        producer = session.producer("orders")
        for _ in range(8 * mebibytes):
            producer.send(os.urandom(1 << 17))


def test_a_backup_is_made_by_the_login_of_who_asks_for_it(node, browser, folder):
    """The node seals its log for the user of the console, and the audit has that name; the next one
    follows it."""
    keeper = browser("keeper")
    before = len(audit(node, command="backup.create", result="ok"))
    asked = unescape(keeper.get("/backup"))
    assert f"copies it to {folder} and recovers" in asked
    assert "Only what came after" not in asked
    assert "A backup is being made" in begin(keeper)
    wait_until(lambda: ": made " in keeper.get("/backups"), 60)
    (full,) = backups_in(folder)
    assert f": made {full.name} in" in keeper.get("/backups")
    assert "when it was made" in keeper.get("/backups")
    done = audit(node, command="backup.create", result="ok")[before:]
    assert {row["user"] for row in done} == {"keeper"}  # several where it had to begin anew
    assert f"Only what came after {full.name}" in unescape(keeper.get("/backup"))
    begin(keeper, follows="yes", rate="100")
    wait_until(lambda: len(backups_in(folder)) == 2, 60)
    later = backups_in(folder)[-1]
    assert f'"base": "{full.name}"' in (later / "manifest.json").read_text()
    run(node, "backup", "verify", str(later))
    assert not list(folder.glob(".part*"))


def test_one_backup_is_made_at_a_time_and_one_that_is_killed_leaves_nothing(node, browser, folder):
    """The page says how far it is; a second one, and a verification, is refused meanwhile, without
    a word in the audit."""
    send_much(node)
    keeper = browser("keeper")
    begin(keeper, rate="1")
    (part,) = wait_until(lambda: list(folder.glob(".part-*.lock")), 60)
    process = int(part.name.split("-")[1])
    os.kill(process, signal.SIGSTOP)  # else it may be done before all has been looked at
    assert re.search(r"A backup is being made since [-0-9: ]+:", keeper.get("/backups"))
    before = len(audit(node, command="backup.create"))
    assert "Something is made or verified already" in begin(keeper)
    assert len(audit(node, command="backup.create")) == before
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: "no backup was made: it was ended" in keeper.get("/backups"), 60)
    assert not list(folder.iterdir())
    begin(keeper)
    wait_until(lambda: ": made " in keeper.get("/backups"), 60)


def test_who_may_not_operate_the_node_makes_no_backup(node, browser, folder):
    """Nor does another site, nor a form without the session's token, nor a wrong rate."""
    viewer, keeper = browser("viewer"), browser("keeper")
    before = len(audit(node, command="backup.create", result="ok"))
    assert "HMS-1030" in begin(viewer)
    assert "the session is over" in begin(keeper, token="x").lower()
    form = {"token": keeper.token()}
    assert keeper.ask("POST", "/backup", form, Origin="http://evil.example")[0] == 400
    for rate in ("fast", "-1", "9" * 40):
        assert "A rate is a number" in begin(keeper, rate=rate)
    assert audit(node, user="viewer", result=1030)
    assert len(audit(node, command="backup.create", result="ok")) == before
    assert not folder.exists() or not list(folder.iterdir())


def test_a_place_that_takes_no_backup_is_told_before_the_node_seals(node, browser, folder):
    """Where its folder should be lies a file."""
    keeper = browser("keeper")
    before = len(audit(node, command="backup.create"))
    folder.parent.joinpath("kept").write_text("a file")
    try:
        assert "may not write to" in unescape(keeper.ask("GET", "/backup")[1])
        assert "may not write to" in begin(keeper)
    finally:
        folder.unlink()
    assert len(audit(node, command="backup.create")) == before


def test_a_backup_that_begins_anew_asks_for_another_seal(node, browser, folder, tmp_path):
    """The log may have moved on: the process asks again, and the node seals for the same user."""
    asks = tmp_path / "asks"
    lines = [
        "#!/bin/sh",
        *['echo \'{"ask": "seal"}\'; read answer; echo "$answer" >> ' + str(asks)] * 2,
        'echo \'{"done": 1, "total": 2}\'; echo "why it failed" >&2; exit 1',
    ]
    script = tmp_path / "script"
    script.write_text("\n".join(lines))
    script.chmod(0o700)
    keeper = browser("keeper")
    before = len(audit(node, command="backup.create", result="ok"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(script))
        begin(keeper)
        wait_until(lambda: "no backup was made: why it failed" in keeper.get("/backups"), 60)
    first, second = (json.loads(line)["offset"] for line in asks.read_text().splitlines())
    assert first < second
    done = audit(node, command="backup.create", result="ok")[before:]
    assert [row["user"] for row in done] == ["keeper", "keeper"]


def test_very_many_backups_are_shown_some_at_a_time(browser, folder):
    """Shipping makes one each minute."""
    keeper = browser("keeper")
    names = [_manifest(folder, f"{n:02}", "NODE1", is_shipped=True) for n in range(30)]
    page = keeper.get("/backups")
    assert page.count("no: shipped") == 25
    assert names[-1] in page
    older = unescape(re.search(r'href="(/backups\?before=[^"]*)"', page)[1])
    assert keeper.get(older).count("no: shipped") == 5
    assert "is 1.0 h old" in page


def test_an_alert_about_backups_is_on_their_page(tmp_path, serving):
    """Nobody has begun one for too long."""
    config = {"alerts": {"backup_overdue_s": 0.1}, "hms": {"queue": {"orders": {}}}}
    with hms.testing.node(config=config) as node:
        browser = Browser(serving(node.address, config_file=node.config_file))
        wait_until(lambda: "backup_overdue" in browser.get("/backups"))
        assert "set backups in [node." in browser.get("/backups")
        assert "say which folder, or set backups" in run(node, "backup", "list", code=2)
        for path in ("/users", "/audit", "/policy"):
            assert "This node is open" in browser.get(path)


def test_the_configuration_says_where_each_value_is_from_and_no_secret(node, browser):
    """What holds, from which line of hms.conf, or by default."""
    viewer = browser("viewer")
    page = viewer.get("/configuration")
    assert "[node.NODE1]" in page
    section = viewer.get(f"/configuration?section={quote('[node.NODE1]')}")
    lines = node.config_file.read_text().splitlines()
    number = 1 + next(n for n, line in enumerate(lines) if line.startswith("backups"))
    assert re.search(rf">backups</td>.*?kept</td><td [^>]*>line {number}<", section)
    assert re.search(r">BOOT</td>.*?WARM</td><td [^>]*>default<", section)
    queue = viewer.get(f"/configuration?section={quote('[hms.queue.orders]')}")
    assert ">redelivery_limit</td>" in queue
    assert "changed after" not in page
    whole = node.config_file.read_text()
    secret = 'environment = ["TOKEN=hunter2"]\nmodule = "services.x"\nMIN = 0\n'
    try:
        node.config_file.write_text(f"{whole}\n[server.with_secret]\n{secret}")
        assert "changed after the node had read it" in viewer.get("/configuration")
        shown = viewer.get(f"/configuration?section={quote('[server.with_secret]')}")
        assert ("hunter2" in shown, "TOKEN=***" in shown) == (False, True)
        node.config_file.write_text(f"{whole}\n[node.NODE1x]\nlisten = 7\n")
        page = viewer.get("/configuration")
        assert f"{node.config_file}:" in page
        assert "The node does not boot with this file" in page
    finally:
        node.config_file.write_text(whole)
    assert "There is no such section" in viewer.get("/configuration?section=[x]")


def test_what_is_other_in_the_security_file_is_shown_and_taken_over(node, browser):
    """Of a secret only that it is another one; a faulty file is told with each line."""
    keeper, whole = browser("keeper"), node.security.read_text()
    assert "Nothing is other" in keeper.get("/policy")
    try:
        node.security.write_text(whole.replace("produce queue", "prodcue queue"))
        page = unescape(keeper.get("/policy"))
        assert "did you mean 'produce'?" in page
        assert "What held before holds" in page
        status, text, _ = keeper.ask(
            "POST", "/order", {"action": "reload_policy", "sure": "yes", "token": keeper.token()}
        )
        assert (status, "did you mean" in text) == (400, True)
    finally:
        node.security.write_text(whole)
        os.utime(node.security)
    asked, said = keeper.order("reload_policy")
    assert "The node takes version" in asked
    assert re.fullmatch(r"Version \d+ holds: .*", said)
    assert audit(node, command="security.reload")[-1]["user"] == "keeper"


def test_the_same_orders_are_given_over_a_connection_by_the_command_line(node):
    """Hms user and permission, where the file is on another machine; a lock is not waited for."""
    where = ["--connect", node.address, "--json"]

    def said(*words, code=0):
        done = CliRunner().invoke(main, [*words, *where])
        assert done.exit_code == code, done.output
        return f"{done.output} {done.exception}" if code else json.loads(done.stdout)

    before = load_security(node.security).version
    assert said("user", "disable", "bob")["version"] == before + 1
    assert not load_security(node.security).user["bob"].enabled
    assert said("user", "enable", "bob")["version"] == before + 2
    assert said("user", "logout", "bob")["version"] == before + 3
    assert said("permission", "grant", "bob", "produce queue:late")["version"] == before + 4
    assert said("permission", "revoke", "bob", "produce queue:late")["version"] == before + 5
    assert "no user 'nobody'" in said("user", "disable", "nobody", code=1)
    entered = []
    change_security(
        node.security,
        lambda d: entered.append(said("user", "disable", "bob", code=1)) or d,
    )
    assert "another command changes it" in entered[0]
    assert load_security(node.security).user["bob"].enabled
