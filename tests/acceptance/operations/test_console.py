"""The console of a real node: every page, every order, and what another site cannot do."""

import re
from http.client import HTTPConnection
from urllib.parse import urlencode

import hms
from hms.boot.web.console_sessions import SESSIONS_MAX, Sessions
from hms.wire.xa_constants import XA_OK
from hms.wire.xid import Xid
from tests.support.secured import PASSWORD, document, secured_node

CONFIG = {"hms": {"queue": {"orders": {"redelivery_limit": 1}, "late": {}}, "topic": {"news": {}}}}
WAIT_S = 60
MARKUP = "<script>alert(1)</script>\"'>"


class Browser:
    """Follows forms as a browser does, without scripts: the console has none."""

    def __init__(self, server):
        self.port = server.port
        self.cookie = ""

    def ask(self, method, path, form=(), **headers):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            body = urlencode(form, doseq=True) if method == "POST" else None
            if body is not None:
                headers.setdefault("Origin", f"http://127.0.0.1:{self.port}")
                headers["Content-Type"] = "application/x-www-form-urlencoded"
            if self.cookie:
                headers["Cookie"] = self.cookie
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            cookie = answer.getheader("Set-Cookie")
            if cookie:
                self.cookie = cookie.partition(";")[0]
            return answer.status, answer.read().decode(), dict(answer.getheaders())
        finally:
            connection.close()

    def get(self, path):
        status, text, _ = self.ask("GET", path)
        assert status == 200, text
        return text

    def token(self):
        return re.search(r'name="token" value="([^"]+)"', self.get("/queue?name=orders"))[1]

    def order(self, action, **given):
        """Both steps; what was asked before, and what was said after."""
        form = {"action": action, "token": self.token(), **given}
        status, asked, _ = self.ask("POST", "/order", form)
        assert status == 200, asked
        status, _, headers = self.ask("POST", "/order", {**form, "sure": "yes"})
        assert status == 303, asked
        said = re.search(r'class="said" role="status">([^<]*)<', self.get(headers["Location"]))
        return asked, said[1] if said else ""


PAGES = (
    "/",
    "/destinations",
    "/queue?name=orders",
    "/messages?place=queue:orders",
    "/letters",
    "/clients",
    "/topics",
    "/services",
    "/transactions",
    "/schedules",
    "/cluster",
)


def test_every_page_shows_what_there_is_and_stored_markup_is_text(node, serve):
    """Who sends a message must not run a script in the operator's browser."""
    browser = Browser(serve())
    options = {"client_id": MARKUP, "client_name": MARKUP}
    with hms.connect(node.address, **options) as connection:
        session = connection.session()
        session.producer("orders").send(MARKUP.encode(), {"Who": MARKUP}, type=MARKUP)
        (row,) = connection.admin.messages("queue:orders").everything().list()
        (mine,) = [
            one for one in connection.administer("client.list", {}) if one["client_id"] == MARKUP
        ]
        pages = [browser.get(path) for path in PAGES]
        pages.append(browser.get(f"/message?place=queue:orders&id={row['id']}"))
        pages.append(browser.get(f"/client?id={mine['id']}"))
    for text in pages:
        assert "<script" not in text
        assert "style=" not in text
        assert not re.search(r'(?:src|href|action)="(?:\w+:)?//', text)
        assert text.count("<h1>") == 1
    assert "&lt;script&gt;" in pages[-2]
    assert "&lt;script&gt;" in pages[-1]
    assert "/queue?name=orders" in pages[1]
    assert row["id"] in pages[3]


def test_every_order_is_asked_first_and_says_what_it_did(node, serve):
    """A move, a deletion, a pause, a purge, a letter that goes back, a client that is closed."""
    browser = Browser(serve())
    with hms.connect(node.address) as connection:
        session = connection.session(ack=hms.AckMode.CLIENT)
        producer = session.producer("orders")
        ids = [producer.send(b"coffee").message_id for _ in range(4)]
        place = {"place": "queue:orders"}
        asked, said = browser.order("move", **place, id=ids[:2], to="late")
        assert "Moves to late 2 messages" in asked
        assert f"Moved to late: 2 messages: {ids[0]} {ids[1]}" in said
        asked, said = browser.order("delete", **place, id=[ids[2]])
        assert (asked.count(ids[2]) >= 1, said.startswith("Deleted 1 message:")) == (True, True)
        _, said = browser.order("pause", name="orders")
        assert said == "orders is paused."
        assert connection.administer("queue.show", {"name": "orders"})["paused"]
        _, said = browser.order("resume", name="orders")
        assert said == "orders goes on."
        consumer = session.consumer("orders")
        message = consumer.receive(WAIT_S)
        session.recover()
        consumer.close()
        (letter,) = connection.admin.messages("queue:HMS.DLQ").everything().list()
        assert letter["id"] == message.message_id
        assert "REDELIVERY_LIMIT" in browser.get("/letters")
        letters = {"place": "queue:HMS.DLQ", "back": "/letters"}
        _, said = browser.order("return", **letters, id=[letter["id"]])
        assert said.startswith("Sent back 1 message:")
        asked, said = browser.order("purge", name="orders")
        assert "Deletes 1 message, all that wait in orders." in asked
        assert said == "Deleted 1 message of orders."
        with hms.connect(node.address, client_name="flood", reconnect=False):
            (flood,) = [
                one
                for one in connection.administer("client.list", {})
                if one["client_name"] == "flood"
            ]
            asked, said = browser.order("close", number=str(flood["id"]), reason="enough")
            assert "flood" in asked
            assert said == f"Client {flood['id']} is closed."


def waiting(connection, name):
    return connection.administer("queue.show", {"name": name})["waiting"]


def test_queues_are_made_filled_copied_expired_and_deleted(node, serve):
    """What an operator tries out before the next day."""
    browser = Browser(serve())
    with hms.connect(node.address) as connection:
        asked, said = browser.order("create", name="tried")
        assert "Creates the queue tried" in asked
        assert said == "tried is created."
        asked, said = browser.order("send", name="tried", body=MARKUP, type="T")
        assert "Sends a text of" in asked
        (row,) = connection.admin.messages("queue:tried").everything().list()
        assert (said.split()[-1], row["type"]) == (row["id"], "T")
        assert "&lt;script&gt;" in browser.get(f"/message?place=queue:tried&id={row['id']}")
        place = {"place": "queue:tried", "id": [row["id"]]}
        _, said = browser.order("copy", **place, to="late")
        assert said.startswith("Copied to late: 1 message:")
        asked, said = browser.order("expire", **place)
        assert row["id"] in asked
        assert said.startswith("Expired 1 message:")
        assert (waiting(connection, "tried"), waiting(connection, "late")) == (0, 1)
        browser.order("send", name="tried", body="again")
        asked, said = browser.order("remove", name="tried")
        assert "1 message become dead letters" in asked
        assert said == "tried is deleted."
        assert waiting(connection, "HMS.DLQ") == 1
        assert "DESTINATION_DELETED" in browser.get("/letters")


def test_topics_subscriptions_and_schedules_are_seen_and_ended(node, serve):
    """Retained messages, a durable subscription that nobody uses, and a schedule."""
    browser = Browser(serve())
    with hms.connect(node.address) as connection:
        session = connection.session()
        session.subscriber("news", durable="kept").close()
        session.producer(hms.Topic("news")).send(b"news", retain=True)
        page = browser.get("/topics?pattern=news")
        assert 'value="kept"' in page
        asked, said = browser.order("clear", pattern="news")
        assert "1 topic" in asked
        assert said == "Cleared 1 message."
        _, said = browser.order("unsubscribe", id=["kept"])
        assert said == "Deleted kept."
        assert connection.administer("subscription.list") == []
        session.producer("late").schedule("hourly", b"tick", every_s=3600)
        assert 'value="hourly"' in browser.get("/schedules")
        _, said = browser.order("cancel", id=["hourly"])
        assert said == "Cancelled hourly."
        assert connection.administer("schedule.list", {}) == []


def test_a_branch_in_doubt_is_decided_and_forgotten(node, serve):
    """The transaction manager may never come back."""
    browser = Browser(serve())
    with hms.connect(node.address) as connection, connection.session(xa=True) as session:
        resource, xid = session.resource, Xid(7, b"global", b"branch")
        assert resource.xa_start(xid) == XA_OK
        session.producer("late").send(b"in doubt")
        assert resource.xa_end(xid) == XA_OK
        assert resource.xa_prepare(xid) == XA_OK
        (one,) = connection.administer("transaction.list")
        assert one["xid"] in browser.get("/transactions")
        asked, said = browser.order("commit", id=[one["xid"]])
        assert "though others may have done otherwise" in asked
        assert said == f"Committed {one['xid']}."
        assert waiting(connection, "late") == 1
        _, said = browser.order("forget", id=[one["xid"]])
        assert said == f"Forgotten: {one['xid']}."
        assert connection.administer("transaction.list") == []


def test_a_client_is_banned_for_a_while(node, serve):
    """Closed, and refused when it comes back."""
    browser = Browser(serve())
    with hms.connect(node.address) as connection:
        with hms.connect(node.address, client_name="flood", reconnect=False):
            (flood,) = [
                one
                for one in connection.administer("client.list", {})
                if one["client_name"] == "flood"
            ]
            asked, said = browser.order("ban", number=str(flood["id"]), hours="2", reason="flood")
        assert "for 2 hours" in asked
        assert said.endswith("is banned for 2 hours.")
        (ban,) = connection.administer("client.bans")
        assert ban["reason"] == "flood"


def test_an_order_without_a_target_or_a_choice_does_nothing(node, serve):
    """A move without a target once deleted messages, elsewhere."""
    browser = Browser(serve())
    with hms.connect(node.address) as connection:
        connection.session().producer("orders").send(b"coffee")
        token = browser.token()
        for form in (
            {"action": "move", "place": "queue:orders", "id": "0" * 12, "sure": "yes"},
            {"action": "move", "place": "queue:orders", "to": "late", "sure": "yes"},
            {"action": "delete", "place": "queue:orders", "sure": "yes"},
            {"action": "delete", "id": "0" * 12, "sure": "yes"},
            {"action": "purge", "sure": "yes"},
            {"action": "close", "number": "x", "sure": "yes"},
            {"action": "format", "sure": "yes"},
            {"action": "copy", "place": "queue:orders", "id": "0" * 12, "sure": "yes"},
            {"action": "create", "sure": "yes"},
            {"action": "send", "body": "x", "sure": "yes"},
            {"action": "clear", "sure": "yes"},
            {"action": "unsubscribe", "sure": "yes"},
            {"action": "commit", "id": "zz", "sure": "yes"},
            {"action": "restart", "id": "nobody", "sure": "yes"},
            {"action": "scale", "id": "nobody", "count": "-1", "sure": "yes"},
            {"action": "cancel", "id": "nothing", "sure": "yes"},
            {"action": "drain", "sure": "yes"},
            {"action": "ban", "number": "1", "hours": "0", "sure": "yes"},
        ):
            status, text, _ = browser.ask("POST", "/order", {**form, "token": token})
            assert (status, 'role="alert"' in text) == (400, True), form
        assert connection.administer("queue.show", {"name": "orders"})["waiting"] == 1


def test_a_page_of_ticked_boxes_is_one_order_and_no_form_is_without_end(node, serve):
    """A hundred messages and what else the form says; a number in other digits is none."""
    browser = Browser(serve())
    with hms.connect(node.address) as connection, connection.session() as session:
        producer = session.producer("orders")
        ids = [producer.send(b"coffee").message_id for _ in range(100)]
        _, said = browser.order("move", place="queue:orders", id=ids, to="late")
        assert said.startswith("Moved to late: 100 messages:")
    form = {"action": "move", "token": browser.token(), "id": ["x"] * 1000}
    assert browser.ask("POST", "/order", form)[0] == 400
    for number in ("²", "9" * 5000):
        form = {"action": "close", "token": browser.token(), "number": number}
        status, text, _ = browser.ask("POST", "/order", form)
        assert (status, "A client is a number." in text) == (400, True)


def test_another_site_can_order_nothing(node, serve):
    """Neither with the cookie alone, nor without, nor by a name that leads here."""
    browser = Browser(serve())
    form = {"action": "purge", "name": "orders", "sure": "yes", "token": browser.token()}
    with hms.connect(node.address) as connection:
        connection.session().producer("orders").send(b"coffee")
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": ""}):
            assert browser.ask("POST", "/order", form, **headers)[0] == 400
        assert browser.ask("POST", "/order", form, Host="evil.example")[0] == 421
        assert browser.ask("POST", "/order", {**form, "token": "x"})[0] == 400
        assert browser.ask("GET", f"/order?{urlencode(form)}")[0] == 405
        browser.cookie = ""
        assert browser.ask("POST", "/order", form)[0] == 400
        assert connection.administer("queue.show", {"name": "orders"})["waiting"] == 1


def test_sessions_are_bounded_and_their_cookies_are_for_this_site_alone(serve):
    """Ten thousand tabs are as many requests, not as many sessions."""
    server = serve()
    _, _, headers = Browser(server).ask("GET", "/destinations")
    assert headers["Set-Cookie"].endswith("; Path=/; HttpOnly; SameSite=Strict")
    now = [0.0]
    sessions = Sessions(lambda _user, _password: None, is_secured=False, clock=lambda: now[0])
    cookies = [sessions.begin()[1].partition(";")[0] for _ in range(SESSIONS_MAX + 3)]
    assert sessions.find(cookies[0]) is None
    assert sessions.find(f"a=b; {cookies[-1]}") is not None
    now[0] = 31 * 60.0
    assert sessions.find(cookies[-1]) is None


def test_a_console_of_a_secured_node_does_what_its_user_may(tmp_path, serving):
    """A console has no rights of its own: the node decides every page and order."""
    held = document(
        viewer=["view node:*", "view queue:*", "view topic:*"],
        mover=[
            "view node:*",
            "view queue:*",
            "view topic:*",
            "view client:*",
            "purge queue:*",
            "manage queue:*",
        ],
    )
    with secured_node(tmp_path, held) as node:
        server = serving(node.address, is_secured=True)
        viewer, mover = Browser(server), Browser(server)
        status, text, _ = viewer.ask("GET", "/destinations")
        assert (status, 'type="password"' in text) == (401, True)
        wrong = {"user": "viewer", "password": "guessed"}
        assert viewer.ask("POST", "/login", wrong)[0] == 401
        for given in ({}, {"user": "viewer"}, {"user": "root", "password": ""}, {"password": "x"}):
            asked = {"user": "", "password": "", **given}
            assert viewer.ask("POST", "/login", asked)[0] == 401
        assert viewer.cookie == ""
        for browser, user in ((viewer, "viewer"), (mover, "mover")):
            form = {"user": user, "password": PASSWORD}
            assert browser.ask("POST", "/login", form)[0] == 303
            assert f"Log out {user}" in browser.get("/destinations")
        assert "No consumer" in viewer.get("/queue?name=orders")
        status, text, _ = viewer.ask("GET", "/messages?place=queue:orders")
        assert (status, "HMS-" in text) == (400, True)
        token = re.search(r'name="token" value="([^"]+)"', viewer.get("/"))[1]
        purge = {"action": "purge", "name": "orders", "sure": "yes"}
        status, text, _ = viewer.ask("POST", "/order", {**purge, "token": token})
        assert (status, "viewer" in text) == (400, True)
        _, said = mover.order("purge", name="orders")
        assert said == "Deleted 0 messages of orders."
        assert viewer.ask("POST", "/logout", {"token": token})[0] == 303
        assert viewer.ask("GET", "/")[0] == 401


def test_a_node_that_was_secured_while_the_console_ran_is_not_open_through_it(tmp_path, serving):
    """The node lets the console's own process in, which is no right of whoever reaches its port."""
    with secured_node(tmp_path, document(u=[])) as node:
        browser = Browser(serving(node.address))  # as hms.conf said when it was started
        answers = [browser.ask("GET", "/destinations") for _ in range(3)]

    assert not any("orders" in text for _, text, _ in answers)
    status, text, _ = answers[-1]
    assert (status, 'type="password"' in text) == (401, True)
