"""The console: what a node has, and a few orders, as pages that need no script.

Each order is asked twice: the first answer says what will happen, the second what has. A form has
the session's token, and its Origin must be this server: another site can send neither.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from hms.boot.body_text import body_text, needs_whole
from hms.boot.monitoring.health import Health
from hms.boot.web.console_orders import ORDERS, Order, Refused, number_of, time_of
from hms.boot.web.console_pages import PAGES, box
from hms.boot.web.console_sessions import ConsoleSession, Sessions
from hms.boot.web.http_server import Answer, Body, Request
from hms.boot.web.markup import Html, button, field, form, link, page, shown, table, time_text
from hms.boot.web.markup import text as text_of
from hms.boot.web.page_group import Ask, PageGroup, Shown, see_other
from hms.boot.web.style import STYLE
from hms.errors.catalogue import NotAuthorized
from hms.errors.tree import HmsError
from hms.wire.packed_messages import decode_head

__all__ = ["Console"]

HTML = "text/html; charset=utf-8"
ROWS = 100
BODY_BYTES = 4096
HOUR = len("2026-01-01 00")
STATES = "State: waiting, delayed, in_flight, prepared or incomplete"
LETTER = ("$DeadReason", "$DeadOrigin", "$DeadSubscription", "$DeadTime", "$DeadCount")
Page = Callable[[Request, ConsoleSession], Answer]
Listed = Callable[[Any, Request, str], Shown]
NOTHING: Mapping[str, Any] = {}


class Console:
    """handle() in any thread. groups: pages that have modules of their own; pages, orders: further
    ones of the console's own kinds."""

    def __init__(
        self,
        node: str,
        health: Callable[[], Health],
        sessions: Sessions,
        groups: Sequence[PageGroup] = (),
        pages: Mapping[str, Listed] = NOTHING,
        orders: Mapping[str, Order] = NOTHING,
    ) -> None:
        self._listed_pages = {**PAGES, **pages}
        self._orders = {**ORDERS, **orders}
        self._node = node
        self._health = health
        self._sessions = sessions
        self._pages: dict[str, Page] = {
            "/": self._overview,
            "/destinations": self._destinations,
            "/queue": self._queue,
            "/messages": self._messages,
            "/message": self._message,
            "/letters": self._letters,
            "/clients": self._clients,
            "/client": self._client,
        }
        self._posts: dict[str, Ask] = {}
        self.uploads: dict[str, Callable[[Request, Body], Answer]] = {}
        for group in groups:
            self._pages |= {path: partial(self._of_group, ask) for path, ask in group.pages.items()}
            self._posts |= group.posts
            self.uploads |= {
                path: partial(self._uploaded, take) for path, take in group.uploads.items()
            }

    def handle(self, request: Request) -> Answer | None:
        """The answer; None when it is no page of the console."""
        if request.path == "/console.css":
            return Answer(STYLE.encode(), "text/css; charset=utf-8")
        is_post = request.method == "POST" and request.path in self._posts
        if is_post or request.path in ("/login", "/logout", "/order"):
            return self._posted(request)
        if request.path not in self._pages and request.path not in self._listed_pages:
            return None
        if request.method != "GET":
            return Answer(b"only GET\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
        session, cookie = self._sessions.find(request.headers.get("cookie", "")), ""
        if session is None:
            if self._sessions.is_secured:
                return self._login_page("")
            session, cookie = self._sessions.begin()
        answer = self._asked(self._pages.get(request.path, self._listed), request, session)
        headers = {"Set-Cookie": cookie} if cookie else {}
        return Answer(answer.body, answer.content_type, answer.status, headers)

    # what is sent

    def _posted(self, request: Request) -> Answer:
        if request.method != "POST":
            return Answer(b"only POST\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
        if not _is_ours(request):
            return self._fault("Refused", "The form was not sent by this console.", None)
        given = {name: values[-1] for name, values in request.form.items()}
        if request.path == "/login":
            return self._login(given)
        session = self._sessions.find(request.headers.get("cookie", ""))
        if session is None or not session.is_token(given.get("token", "")):
            return self._fault("Refused", "The session is over: open the page anew.", None)
        if request.path == "/logout":
            self._sessions.end(session)
            return see_other("/")
        return self._ordered(request, given, session)

    def _uploaded(
        self,
        take: Callable[[Request, ConsoleSession, Body], Shown | Answer],
        request: Request,
        body: Body,
    ) -> Answer:
        """A form with a file; take: checks its token before it keeps the file."""
        if not _is_ours(request):
            return self._fault("Refused", "The form was not sent by this console.", None)
        session = self._sessions.find(request.headers.get("cookie", ""))
        if session is None:
            return self._fault("Refused", "The session is over: open the page anew.", None)
        ask = partial(self._of_group, lambda request, session: take(request, session, body))
        return self._asked(ask, request, session)

    def _login(self, given: dict[str, str]) -> Answer:
        if not self._sessions.is_secured:
            return see_other("/")
        try:
            _, cookie = self._sessions.begin(given.get("user", ""), given.get("password", ""))
        except HmsError:
            return self._login_page("The node did not take user and password.")
        answer = see_other("/")
        return Answer(
            answer.body, status=answer.status, headers={**answer.headers, "Set-Cookie": cookie}
        )

    def _ordered(self, request: Request, given: dict[str, str], session: ConsoleSession) -> Answer:
        if request.path in self._posts:
            ask = partial(self._of_group, self._posts[request.path])
            return self._asked(ask, request, session)
        order = self._orders.get(given.get("action", ""))
        if order is None:
            return self._fault("Refused", "There is no such order.", session)
        is_sure = given.get("sure") == "yes"
        try:
            with session.connection() as connection:
                if is_sure:
                    said = order.do(connection, request.form)
                    return see_other(order.back(request.form), said)
                meant = order.preview(connection, request.form)
        except Refused as why:
            return self._fault(why.title, str(why), session)
        except HmsError as error:
            return self._fault("The node refuses", str(error), session)
        kept = {name: values for name, values in request.form.items() if name != "sure"}
        asked = form("/order", [button(order.said)], {**kept, "sure": "yes"})
        back = link_back(order.back(request.form))
        return self._page(f"{order.said}?", [Html(f"<p>{shown(meant)}</p>"), asked, back], session)

    # pages

    def _overview(self, request: Request, session: ConsoleSession) -> Answer:
        health = self._health()
        with session.connection() as connection:
            said = connection.administer("status")
            alerts = connection.administer("alert.list")["active"]
        rows = [
            {
                "alert": one["alert"],
                "destination": one["destination"],
                "since": time_text(one["since_ms"]),
                "why": one["text"],
            }
            for one in alerts
        ]
        kept = (
            *("version", "uptime_s", "connections", "sessions", "queues", "topics", "waiting"),
            *("in_flight", "waiting_bytes", "max_memory_bytes", "disk_free_bytes", "security"),
        )
        facts = [{"what": name, "value": said[name]} for name in kept if name in said]
        state = Html(f'<p class="{"" if health.is_ready else "bad"}">{shown(health.text)}</p>')
        parts = [state, table(rows, "Alerts", "No alerts."), table(facts, "Node", "")]
        return self._page("Overview", parts, session, request)

    def _destinations(self, request: Request, session: ConsoleSession) -> Answer:
        with session.connection() as connection:
            shown_of_each = "waiting in_flight delayed consumers producers dead_lettered paused"
            queues = connection.administer("queue.list", {"fields": shown_of_each})
            topics = connection.administer("topic.list")
        wanted = request.argument("name")
        rows = [
            {
                "queue": link("/queue", one["name"], name=one["name"]),
                "waiting": one["waiting"],
                "in flight": one["in_flight"],
                "delayed": one["delayed"],
                "consumers": one["consumers"],
                "producers": one["producers"],
                "dead letters": one["dead_lettered"],
                "paused": one["paused"],
            }
            for one in queues
            if wanted in one["name"]
        ][:ROWS]
        more = [
            {
                "topic": one["name"],
                "subscriptions": one["subscriptions"],
                "producers": one["producers"],
                "sent": one["sent"],
                "paused": one["paused"],
            }
            for one in topics
            if wanted in one["name"]
        ][:ROWS]
        find = form("/destinations", [field("name", "Name has", wanted), button("Find")], {}, "get")
        new = [field("name", "New queue"), button("Create", "create")]
        create = form("/order", new, {"token": session.token})
        parts = [
            find,
            table(rows, "Queues", "No queue."),
            table(more, "Topics", "No topic."),
            create,
        ]
        return self._page("Destinations", parts, session, request)

    def _queue(self, request: Request, session: ConsoleSession) -> Answer:
        name = request.argument("name")
        with session.connection() as connection:
            said = connection.administer("queue.show", {"name": name})
            holders = _holders(connection, name)
        facts = [
            {"what": key, "value": value}
            for key, value in said.items()
            if not isinstance(value, list | dict)
        ]
        held = [
            {
                "client": link("/client", one["client"], id=one["client"]),
                "in flight": one["in_flight"],
                "oldest": one["oldest_in_flight"],
                "selector": one["selector"],
            }
            for one in holders
        ]
        orders = [
            form("/order", [button(said_, action)], {"name": name, "token": session.token})
            for action, said_ in (
                *(("pause", "Pause"), ("resume", "Resume"), ("purge", "Purge")),
                ("remove", "Delete the queue"),
            )
        ]
        text = [field("body", "Text"), field("type", "Type"), button("Send", "send")]
        orders.append(form("/order", text, {"name": name, "token": session.token}))
        waiting = link("/messages", "Messages", place=f"queue:{name}")
        parts = [
            Html(f"<p>{waiting}</p>"),
            *orders,
            table(held, "Consumers", "No consumer."),
            table(facts, "Queue", ""),
        ]
        return self._page(f"Queue {name}", parts, session, request)

    def _messages(self, request: Request, session: ConsoleSession) -> Answer:
        place, selector = request.argument("place"), request.argument("selector")
        given = {name: request.argument(name).strip() for name in ("state", "from", "until")}
        with session.connection() as connection:
            found = connection.admin.messages(place).where(
                selector,
                since=time_of(given["from"]) if given["from"] else None,
                until=time_of(given["until"]) if given["until"] else None,
                state=given["state"],
                limit=ROWS,
            )
            rows = found.list()
        listed = [
            {
                "choose": box(row["id"]),
                "id": link("/message", row["id"], place=place, id=row["id"]),
                "sent": time_text(row["time_ms"]),
                "type": row["type"],
                "priority": row["priority"],
                "bytes": row["bytes"],
                "state": row["state"],
            }
            for row in rows
        ]
        find = form(
            "/messages",
            [
                field("selector", "Selector", selector),
                field("from", "Sent from (UTC), such as 2026-05-01T08:00", given["from"]),
                field("until", "Sent before", given["until"]),
                field("state", STATES, given["state"]),
                button("Find"),
            ],
            {"place": place},
            "get",
        )
        orders = [
            table(listed, f"The first {len(rows)}", "No such message waits."),
            field("to", "Move to"),
            button("Move", "move"),
            button("Copy", "copy"),
            button("Expire", "expire"),
            button("Delete", "delete"),
            field("priority", "Priority, 0 to 9"),
            field("ttl", "Seconds to live, 0: forever"),
            field("due", "Not before (UTC), such as 2026-05-01T08:00"),
            button("Alter", "alter"),
            button("Export those chosen", "export", "/export"),
        ]
        chosen = form("/order", orders, {"place": place, "token": session.token})
        kept = {"place": place, "selector": selector, "token": session.token}
        all_of_them = "what the selector finds" if selector else "all of them"
        export = form("/export", [button(f"Export {all_of_them}")], kept)
        into = link("/import", "Import messages", into=place)
        return self._page(
            f"Messages of {place}", [find, chosen, export, text_of(into)], session, request
        )

    def _message(self, request: Request, session: ConsoleSession) -> Answer:
        place, message_id = request.argument("place"), request.argument("id")
        how = request.argument("as", "text")
        with session.connection() as connection:
            said = connection.admin.view(place, message_id, BODY_BYTES)
            is_whole = needs_whole(said["kind"], said["bytes"])
            if is_whole and said["body"] is not None and len(said["body"]) < said["bytes"]:
                said = connection.admin.view(place, message_id, said["bytes"])
        data, head = said.pop("body"), decode_head(said.pop("head"))
        known = {**said, **dict(head.node), **dict(head.properties)}
        facts = [{"what": name, "value": value} for name, value in known.items()]
        text = body_text(said["kind"], data, said["bytes"], "hex" if how == "hex" else "text")
        other = "text" if how == "hex" else "hex"
        more = {"place": place, "id": message_id, "as": other}
        body = Html(
            f"<h2>Body</h2><pre>{shown(text[: 3 * BODY_BYTES])}</pre>"
            f"<p>{link('/message', f'As {other}', **more)}</p>"
        )
        back = link("/messages", "All messages", place=place)
        past = text_of(link("/history", "What happened to it", id=message_id))
        return self._page(
            f"Message {message_id}", [back, table(facts, "Head", ""), body, past], session, request
        )

    def _letters(self, request: Request, session: ConsoleSession) -> Answer:
        parts: list[Any] = []
        counts: dict[str, Counter[str]] = {
            "reason": Counter(),
            "origin": Counter(),
            "hour": Counter(),
        }
        with session.connection() as connection:
            for one in connection.administer("dlq.queues"):
                place = f"queue:{one['name']}"
                found = connection.admin.messages(place).where(
                    selector="$DeadReason IS NOT NULL", limit=ROWS
                )
                rows = [_letter(place, row) for row in found.list(LETTER)]
                for by, counted in counts.items():
                    counted.update(
                        str(row["at"])[:HOUR] if by == "hour" else row[by] for row in rows
                    )
                listed = table(rows, one["name"], f"No dead letter in {one['name']}.")
                orders = [listed, button("Return", "return"), button("Delete", "delete")]
                hidden = {"place": place, "token": session.token, "back": "/letters"}
                parts.append(form("/order", orders, hidden) if rows else listed)
        if counts["reason"]:
            parts[:0] = [
                table(
                    [{by: one, "letters": n} for one, n in counted.most_common()],
                    f"Of those shown, by {by}",
                    "",
                )
                for by, counted in counts.items()
            ]
        parts = parts or [Html("<p>No queue of dead letters that you may see.</p>")]
        parts.append(text_of(link("/rules", "Rules for dead letters")))
        return self._page("Dead letters", parts, session, request)

    def _clients(self, request: Request, session: ConsoleSession) -> Answer:
        with session.connection() as connection:
            said = connection.administer("client.list", {})
        rows = [
            {
                "client": link("/client", one["id"], id=one["id"]),
                "user": one["user"],
                "client id": one["client_id"],
                "name": one["client_name"],
                "from": one.get("address", ""),
                "since": time_text(one["since_ms"]),
                "consumers": one["consumers"],
                "producers": one["producers"],
                "in flight": one["in_flight"],
            }
            for one in said[:ROWS]
        ]
        parts = [table(rows, f"{len(rows)} of {len(said)}", "Nobody is connected.")]
        return self._page("Connections", parts, session, request)

    def _client(self, request: Request, session: ConsoleSession) -> Answer:
        text = request.argument("id")
        with session.connection() as connection:
            said = connection.administer("client.show", {"number": number_of(text) or 0})
        consumers, producers = said.pop("consumers_open"), said.pop("producers_open")
        facts = [{"what": name, "value": value} for name, value in said.items()]
        close = [field("reason", "Reason"), field("hours", "Hours"), button("Close", "close")]
        close.append(button("Ban", "ban"))
        parts = [
            form("/order", close, {"number": text, "token": session.token}),
            table(consumers, "Consumers", "No consumer."),
            table(producers, "Producers", "No producer."),
            table(facts, "Client", ""),
        ]
        return self._page(f"Client {text}", parts, session, request)

    def _asked(self, ask: Page, request: Request, session: ConsoleSession) -> Answer:
        """The answer, or a page that says why there is none."""
        try:
            return ask(request, session)
        except Refused as why:
            return self._fault(why.title, str(why), session)
        except HmsError as error:
            return self._fault("The node refuses", str(error), session)

    def _of_group(self, ask: Ask, request: Request, session: ConsoleSession) -> Answer:
        found = ask(request, session)
        if isinstance(found, Answer):
            return found
        title, parts = found
        return self._page(title, parts, session, request)

    def _listed(self, request: Request, session: ConsoleSession) -> Answer:
        with session.connection() as connection:
            title, parts = self._listed_pages[request.path](connection, request, session.token)
        return self._page(title, parts, session, request)

    # parts

    def _page(
        self,
        title: str,
        parts: list[Any],
        session: ConsoleSession | None,
        request: Request | None = None,
    ) -> Answer:
        told = request.argument("said") if request is not None else ""
        said = [Html(f'<p class="said" role="status">{shown(told)}</p>')] if told else []
        here = request.path if request is not None else ""
        user: Html | str = ""
        if session is not None and session.user:
            user = form("/logout", [button(f"Log out {session.user}")], {"token": session.token})
        return Answer(page(title, self._node, [*said, *parts], here, user), HTML)

    def _login_page(self, said: str) -> Answer:
        fault = [Html(f'<p class="bad" role="alert">{shown(said)}</p>')] if said else []
        asked = Html(
            '<form method="post" action="/login">'
            '<label>User <input name="user" autocomplete="username" required></label>'
            '<label>Password <input name="password" type="password" '
            'autocomplete="current-password" required></label><button>Log in</button></form>'
        )
        made = page("Log in", self._node, [*fault, asked])
        return Answer(made, HTML, HTTPStatus.UNAUTHORIZED)

    def _fault(self, title: str, text: str, session: ConsoleSession | None) -> Answer:
        said = Html(f'<p class="bad" role="alert">{shown(text)}</p>')
        made = self._page(title, [said], session)
        return Answer(made.body, HTML, HTTPStatus.BAD_REQUEST)


def _holders(connection: Any, queue: str) -> list[dict[str, Any]]:
    """Its consumers, as far as the user may see clients."""
    try:
        asked = {"destination": f"queue:{queue}"}
        found: list[dict[str, Any]] = connection.administer("consumer.list", asked)
    except NotAuthorized:
        return []
    return found


def link_back(path: str) -> Html:
    """Away from a question."""
    return Html(f'<p><a href="{shown(path)}">Do nothing</a></p>')


def _is_ours(request: Request) -> bool:
    """Whether a form was sent by a page of this server."""
    return request.headers.get("origin", "") == f"http://{request.headers.get('host', '')}"


def _letter(place: str, row: dict[str, Any]) -> dict[str, Any]:
    said = row["properties"]
    return {
        "choose": box(row["id"]),
        "id": link("/message", row["id"], place=place, id=row["id"]),
        "reason": said.get("$DeadReason", ""),
        "origin": " ".join(filter(None, map(said.get, ("$DeadOrigin", "$DeadSubscription")))),
        "at": time_text(said.get("$DeadTime", 0)),
        "attempts": said.get("$DeadCount", ""),
        "type": row["type"],
    }
