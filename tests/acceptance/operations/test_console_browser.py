"""The console in Debian's Chromium: every page and every order, by the keyboard alone.

HMS_PICTURES=FOLDER keeps its pictures, otherwise they are in the folder of the test.
"""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import hms
from tests.support.browser import chromium, opened
from tests.support.secured import PASSWORD, document, secured_node
from tests.support.waiting import wait_until

CONFIG = {"hms": {"queue": {"orders": {"redelivery_limit": 1}, "late": {}}, "topic": {"news": {}}}}
WAIT_S = 60
ORIGIN = "http://127.0.0.1:{}"
MARKUP = "<script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>\"'>"
NARROW, WIDE = 360, 1440
LOOKS = [(NARROW, "light", True), (NARROW, "dark", False)]
LOOKS += [(WIDE, "light", False), (WIDE, "dark", True)]
"""Each width whole once, light and dark by what may differ."""
LOOKS_OF_ALIKE = [(NARROW, "dark", True), (WIDE, "light", False)]
"""Of a page that is made as another one is: whole once, too."""
MAY = [
    *(f"view {what}:*" for what in ("node", "queue", "topic", "client", "subscription")),
    *(f"view {what}:*" for what in ("service", "transaction")),
    *(f"{action} queue:*" for action in ("browse", "produce", "purge", "manage", "configure")),
    *(f"{action} queue:HMS.*" for action in ("view", "browse", "purge", "manage")),
    *(f"{action} queue:HMS.REPLAY" for action in ("produce", "consume")),
    "operate client:*",
]
LOOKS_AFTER = ["view node:*", "operate node:*", "audit node:*", "secure user:*", "secure role:*"]
REFUSED = r"error: Failed to load resource: the server responded with a status of 40[01] \(.*\)"
"""What the browser writes of a page that asks for a login, and of one that says what is missing."""
EXPECTED = rf"{REFUSED}|failed: http://127\.0\.0\.1:\d+/export"
"""And of a download: the page stays, so no page came."""
SAID = "p[role=status]"


class Operator:
    """Goes through the console; looks at each kind of page, once, in all its looks."""

    def __init__(self, watched, address, pictures):
        self.watched, self.page, self.address = watched, watched.page, address
        self.pictures = pictures
        self.found = []

    def look(self, name, looks=LOOKS):
        """The page at both widths, light and dark."""
        assert self.page.locator("script, style, [style], img").count() == 0
        for width, scheme, is_whole in looks:
            self.page.set_viewport_size({"width": width, "height": 800})
            self.page.emulate_media(color_scheme=scheme)
            wide = self.page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                self.found.append(f"{name} is {wide} pixels wide at {width}")
            found = self.watched.violations(is_brief=not is_whole)
            self.found += [f"{name} {width} {scheme} {one}" for one in found]
            self.watched.picture(self.pictures, f"{name}-{width}-{scheme}")

    def go(self, path):
        self.page.goto(self.address + path)

    def order(self, button, name=""):
        """Press it, say yes, and return what was said."""
        self.watched.press(button)
        if name:
            self.look(name, LOOKS_OF_ALIKE)
        self.watched.press("main form button")
        return self.page.locator(SAID).inner_text()


@pytest.mark.timeout(900)
def test_the_keyboard_alone_does_all_of_it_at_every_width_light_and_dark(tmp_path, serving):
    """At three in the morning on a telephone, and by who sees no screen; what strangers have sent
    stays text, and nothing of it reaches another host."""
    pictures = Path(os.environ.get("HMS_PICTURES") or tmp_path / "pictures")
    held = document(clerk=MAY)
    with (
        secured_node(tmp_path, held, CONFIG) as node,
        hms.connect(node.address, client_id=MARKUP, client_name=MARKUP) as stranger,
        chromium() as browser,
    ):
        session = stranger.session(ack=hms.AckMode.CLIENT)
        producer = session.producer("orders")
        for _ in range(5):
            producer.send(MARKUP.encode(), {"Who": MARKUP}, type=MARKUP)
        rules = SimpleNamespace(name="night", rules=tmp_path / "night.rules", queue="")
        rules.rules.write_text(f"* {MARKUP}\nACTION(FWD) FWDQ('late')\n")
        server = serving(node.address, is_secured=True, store=node.store, rules=[rules])
        with opened(browser) as watched:
            operator = Operator(watched, ORIGIN.format(server.port), pictures)
            walk(operator, session, node)
            assert operator.found == []
            assert [one for one in watched.said() if not re.fullmatch(EXPECTED, one)] == []
        with opened(browser) as watched:
            planted(watched)


@pytest.mark.timeout(900)
def test_pages_about_the_node_are_used_by_the_keyboard_alone_in_every_look(tmp_path, serving):
    """Who may do what, who did what, what was saved: what strangers have put there stays text."""
    pictures = Path(os.environ.get("HMS_PICTURES") or tmp_path / "pictures")
    held = document(clerk=LOOKS_AFTER, bob=["produce queue:orders"])
    spoilt = tmp_path / "kept" / MARKUP.replace("/", "")
    spoilt.mkdir(parents=True)
    (spoilt / "manifest.json").write_text(MARKUP)
    with (
        secured_node(tmp_path, held, CONFIG, {"backups": str(spoilt.parent)}) as node,
        hms.connect(node.address) as stranger,
        chromium() as browser,
        opened(browser) as watched,
    ):
        with pytest.raises(hms.HmsError):
            stranger.administer("queue.purge", {"name": MARKUP})
        server = serving(node.address, is_secured=True, config_file=node.config_file)
        operator = Operator(watched, ORIGIN.format(server.port), pictures)
        operator.go("/")
        watched.type("input[name=user]", "clerk")
        watched.type("input[name=password]", PASSWORD)
        watched.press("form button")
        of_the_node(operator)
        assert operator.found == []
        assert [one for one in watched.said() if not re.fullmatch(REFUSED, one)] == []


def walk(operator, session, node):
    """Every page and every order."""
    watched, page = operator.watched, operator.page
    operator.go("/")
    operator.look("login")
    watched.type("input[name=user]", "clerk")
    watched.type("input[name=password]", "guessed")
    watched.press("form button")
    assert page.locator("[role=alert]").count() == 1
    watched.type("input[name=user]", "clerk")
    watched.type("input[name=password]", PASSWORD)
    watched.press("form button")
    operator.look("overview")
    watched.reach(".skip")
    page.keyboard.press("Enter")
    wait_until(lambda: page.evaluate("location.hash") == "#main")
    watched.press("nav a[href='/destinations']")
    operator.look("destinations")
    watched.type("input[name=name]", "orders")
    watched.press("main form button")
    watched.press("a[href='/queue?name=orders']")
    operator.look("queue")
    assert operator.order("button[value=pause]", "question") == "orders is paused."
    assert operator.order("button[value=resume]") == "orders goes on."
    of_messages(operator, session)
    of_letters(operator, session)
    of_rules(operator)
    of_the_past(operator)
    of_files(operator)
    of_clients(operator, node)
    of_lists(operator)
    operator.go("/queue?name=orders")
    assert operator.order("button[value=purge]").startswith("Deleted 4 messages")
    watched.press("header form button")
    assert page.locator("input[type=password]").count() == 1


def of_messages(operator, session):
    """Find, look at one, move and delete; an order without a choice does nothing."""
    watched, page = operator.watched, operator.page
    watched.press("a[href='/messages?place=queue%3Aorders']")
    operator.look("messages")
    watched.type("input[name=selector]", "Who LIKE '<script%'")
    watched.press("main form button")
    assert page.locator("tbody tr").count() == 5
    watched.press("tbody a")
    assert MARKUP in page.locator("pre").inner_text()
    operator.look("message")
    watched.press("main a")
    watched.press("button[value=delete]")
    assert "No message is chosen" in page.locator("[role=alert]").inner_text()
    operator.look("fault", LOOKS_OF_ALIKE)
    operator.go("/messages?place=queue:orders")
    watched.reach("tbody input")
    page.keyboard.press("Space")
    watched.type("input[name=priority]", "7")
    assert operator.order("button[value=alter]").startswith("Altered 1 message:")
    watched.reach("tbody input")
    page.keyboard.press("Space")
    watched.type("input[name=to]", "late")
    assert operator.order("button[value=move]").startswith("Moved to late: 1 message:")
    watched.reach("tbody input")
    page.keyboard.press("Space")
    assert operator.order("button[value=delete]").startswith("Deleted 1 message:")


def of_lists(operator):
    """What the node lists beside: each by its entry, and a queue that is made and deleted."""
    watched, page = operator.watched, operator.page
    for name in ("topics", "services", "transactions", "schedules", "cluster"):
        watched.press(f"nav a[href='/{name}']")
        operator.look(name, LOOKS_OF_ALIKE)
        assert page.locator("[role=alert]").count() == 0
    operator.go("/destinations")
    watched.type("input[name=name] >> nth=1", "tried")
    assert operator.order("button[value=create]") == "tried is created."
    watched.type("input[name=body]", MARKUP)
    assert operator.order("button[value=send]").startswith("Sent 1 message to tried:")
    assert operator.order("button[value=remove]") == "tried is deleted."


def of_the_node(operator):
    """Users and roles, the audit, backups and the configuration, with what can be ordered there."""
    watched, page = operator.watched, operator.page
    watched.press("nav a[href='/users']")
    operator.look("users")
    watched.type("input[name=name]", "bob")
    watched.press("main form button")
    watched.press("a[href='/user?name=bob']")
    operator.look("user")
    assert operator.order("button[value=disable]", "disable").startswith("bob is disabled;")
    assert operator.order("button[value=enable]").startswith("bob is enabled;")
    assert operator.order("button[value=log_out]").startswith("bob is logged out;")
    watched.press("a[href='/role?name=bob']")
    operator.look("role")
    watched.type("input[name=permission]", "browse queue:late")
    assert operator.order("button[value=grant]").startswith("Role bob may browse queue:late;")
    watched.reach("input[value='browse queue:late']")
    page.keyboard.press("Space")
    assert operator.order("button[value=revoke]").startswith("Role bob may no longer browse")
    operator.go("/roles")
    operator.look("roles", LOOKS_OF_ALIKE)
    watched.press("main a[href='/may']")
    operator.look("may")
    watched.press("main a[href='/policy']")
    operator.look("policy", LOOKS_OF_ALIKE)
    assert operator.order("button[value=reload_policy]").startswith("Version ")
    watched.press("nav a[href='/audit']")
    operator.look("audit")
    assert operator.order("button[value=verify_audit]").startswith("The audit is verified;")
    watched.type("input[name=command]", "queue.purge")
    watched.press("main form:nth-of-type(2) button")
    assert MARKUP in page.locator("table").inner_text()
    watched.press("main tbody a")
    operator.look("record", LOOKS_OF_ALIKE)
    assert MARKUP in page.locator("main").inner_text()
    watched.press("nav a[href='/backups']")
    operator.look("backups")
    assert MARKUP.replace("/", "") in page.locator("main").inner_text()
    make_a_backup(operator)
    watched.reach("tbody input")
    page.keyboard.press("Space")
    watched.press("button[value=verify_backup]")
    assert "it cannot be read" in page.locator("[role=alert]").inner_text()
    watched.press("nav a[href='/configuration']")
    operator.look("configuration")
    watched.press("main tbody a")
    operator.look("section", LOOKS_OF_ALIKE)


def make_a_backup(operator):
    """From the list, and back to it, where it says how far it is."""
    watched = operator.watched
    watched.press("main a[href='/backup']")
    operator.look("backup")
    watched.type("input[name=rate]", "900")
    watched.press("main form button")
    said = operator.page.locator(SAID).inner_text()
    assert said.startswith("A backup is being made;")
    operator.look("backups-made", LOOKS_OF_ALIKE)


def of_letters(operator, session):
    """Two dead letters: one goes back, one is deleted."""
    watched, page = operator.watched, operator.page
    consumer = session.consumer("orders", prefetch=1)
    for _ in range(2):
        assert consumer.receive(WAIT_S) is not None
        session.recover()
    consumer.close()
    watched.press("nav a[href='/letters']")
    operator.look("letters")
    for button, said in (("return", "Sent back 1 message:"), ("delete", "Deleted 1 message:")):
        watched.reach("tbody input")
        page.keyboard.press("Space")
        assert operator.order(f"button[value={button}]").startswith(said)


def of_rules(operator):
    """The node's own table, and one with a fault that is typed and mended."""
    watched, page = operator.watched, operator.page
    operator.go("/letters")
    watched.press("a[href='/rules']")
    watched.press("a[href='/rules?name=night']")
    assert MARKUP in page.locator("textarea").input_value()
    operator.look("rules")
    watched.type("textarea", "ACTON(FWD) ")
    watched.press("main form button")
    assert page.locator("[role=alert]").inner_text().startswith("The table has")
    operator.look("rules-faulty", LOOKS_OF_ALIKE)
    watched.reach("textarea")
    page.keyboard.press("Control+A")
    page.keyboard.type("ACTION(DISCARD)")
    watched.press("main form button")
    assert "Nothing is done to the letters." in page.locator("main").inner_text()
    operator.look("rules-tried")


def of_the_past(operator):
    """A message by its link, a place by its name, and the commands of a replay."""
    watched, page = operator.watched, operator.page
    operator.go("/messages?place=queue:orders")
    watched.press("tbody a")
    watched.press("a[href^='/history?id=']")
    assert page.locator("tbody tr", has_text="sent").count() >= 1
    operator.look("history")
    watched.press("nav a[href='/history']")
    watched.type("input[name=destination]", "queue:orders")
    watched.press("main form button")
    assert page.locator("tbody tr").count() > 5
    watched.press("a[href='/replay']")
    watched.type("input[name=destination]", "queue:orders")
    watched.type("input[name=into]", MARKUP)
    watched.press("main form button")
    assert MARKUP in page.locator("pre").first.inner_text().replace("'\"'\"'", "'")
    operator.look("replay")
    operator.go("/history?id=nothing")
    operator.look("history-fault", LOOKS_OF_ALIKE)


def of_files(operator):
    """What was downloaded is looked at, sent again, and imported; a faulty file is told."""
    watched, page = operator.watched, operator.page
    operator.go("/messages?place=queue:orders")
    watched.reach("form[action='/export'] button")
    with page.expect_download() as found:
        page.keyboard.press("Enter")
    assert found.value.suggested_filename == "queue-orders.jsonl"
    data = Path(found.value.path()).read_bytes()
    count = data.count(b"\n") - 2
    watched.press("a[href^='/import']")
    operator.look("import")
    give(operator, "orders.jsonl", data)
    assert f"{count} messages" in page.locator("main").inner_text()
    operator.look("import-question", LOOKS_OF_ALIKE)
    watched.press("main form button")
    said = page.locator(SAID).inner_text()
    assert said.startswith(f"Imported {count} of {count} messages into orders")
    watched.type("input[name=into]", "orders")
    give(operator, MARKUP, data[:-50])
    assert "truncated" in page.locator("[role=alert]").inner_text()
    operator.look("import-fault", LOOKS_OF_ALIKE)


def give(operator, name, data):
    """The dialog for files is the browser's own, and no page."""
    operator.watched.reach("input[type=file]")
    file = {"name": name, "mimeType": "application/jsonl", "buffer": data}
    operator.page.locator("input[type=file]").set_input_files(file)
    operator.watched.press("main form button")


def of_clients(operator, node):
    """One is shown and closed."""
    watched, page = operator.watched, operator.page
    with hms.connect(node.address, client_name="flood", reconnect=False) as flood:
        watched.press("nav a[href='/clients']")
        operator.look("clients")
        number = page.locator("tr", has_text="flood").locator("a").inner_text()
        watched.press(f"a[href='/client?id={number}']")
        operator.look("client")
        watched.type("input[name=reason]", "enough")
        assert operator.order("button[value=close]") == f"Client {number} is closed."
        assert flood


def planted(watched):
    """That the browser would have said so: a page with a foreign picture, a script and no names,
    and one with a text that is hardly seen, where only what looks may change is looked at."""
    watched.page.set_content(
        "<main><img src=http://evil.example/x><script>console.log('ran')</script><input></main>"
    )
    said = " ".join(watched.said())
    assert ("log: ran" in said, "elsewhere: http://evil.example/x" in said) == (True, True)
    found = " ".join(watched.violations())
    assert all(rule in found for rule in ("image-alt", "label", "html-has-lang"))
    watched.page.set_content("<p style='color: #eee; background: #fff'>hardly seen</p>")
    assert any(one.startswith("color-contrast") for one in watched.violations(is_brief=True))
