"""Pages of the console about users and roles: who there is, what each may do, and who may do what.

The node reads and changes the policy; here are a page of it and the orders that belong to it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from hms.boot.counts import counted
from hms.boot.web.console_orders import Form, Order, Refused
from hms.boot.web.console_pages import Shown, box
from hms.boot.web.http_server import Request
from hms.boot.web.markup import Html, button, field, form, link, shown, table
from hms.engine.security import Unacceptable, doubt_about, read_permission
from hms.errors.catalogue import NotSupported

__all__ = ["ORDERS_OF_USERS", "PAGES_OF_USERS"]

OPEN = Html("<p>This node is open: it knows no users. hms config secure makes it know some.</p>")
WHO = "queue:*"
BESIDE = (
    *(("/users", "Users"), ("/roles", "Roles"), ("/may", "Who may do what")),
    ("/policy", "The security file"),
)
Page = Callable[[Any, Request, str], Shown]


def _of_secured(title: str, make: Page) -> Page:
    """A page of a node that knows users; of another one it says so."""

    def page(connection: Any, request: Request, token: str) -> Shown:
        try:
            return make(connection, request, token)
        except NotSupported:
            return title, [OPEN]

    return page


def _users(connection: Any, request: Request, _token: str) -> Shown:
    wanted = request.argument("name")
    asked = {"names": wanted, "behind": request.argument("behind")}
    said = connection.administer("user.list", asked)
    rows = [
        {
            "user": link("/user", one["name"], name=one["name"]),
            "roles": _links("/role", one["roles"]),
            "may log in": "yes" if one["enabled"] else "no: disabled",
            "logs in by": ", ".join(one["logs in by"]),
        }
        for one in said["users"]
    ]
    caption = f"{len(rows)} of {counted(said['count'], 'user')}"
    parts = [_elsewhere(), _find("/users", wanted), table(rows, caption, "No such user.")]
    return "Users", [*parts, *_more("/users", said["users"], wanted, is_more=said["more"])]


def _user(connection: Any, request: Request, token: str) -> Shown:
    name = request.argument("name")
    said = connection.administer("user.show", {"name": name})
    may, count = said.pop("permissions"), said.pop("permission_count")
    said["roles"] = _links("/role", said["roles"])
    facts = [{"what": key, "value": _value(value)} for key, value in said.items()]
    word = ("disable", "Disable") if said["enabled"] else ("enable", "Enable")
    orders = [button(word[1], word[0]), button("Log out", "log_out")]
    rows = [{"permission": one} for one in may]
    return f"User {name}", [
        form("/order", orders, {"name": name, "token": token}),
        table(facts, "User", ""),
        table(rows, f"May, {_part(may, count)}", "It may do nothing."),
    ]


def _roles(connection: Any, request: Request, _token: str) -> Shown:
    wanted = request.argument("name")
    asked = {"names": wanted, "behind": request.argument("behind")}
    said = connection.administer("role.list", asked)
    rows = [
        {
            "role": link("/role", one["name"], name=one["name"]),
            "built in": "yes" if one["built_in"] else "no",
            "permissions": one["permissions"],
            "includes": _links("/role", one["roles"]),
            "users": one["users"],
        }
        for one in said["roles"]
    ]
    caption = f"{len(rows)} of {counted(said['count'], 'role')}"
    parts = [_elsewhere(), _find("/roles", wanted), table(rows, caption, "No such role.")]
    return "Roles", [*parts, *_more("/roles", said["roles"], wanted, is_more=said["more"])]


def _role(connection: Any, request: Request, token: str) -> Shown:
    name = request.argument("name")
    said = connection.administer("role.show", {"name": name})
    own, count = said["permissions"], said["permission_count"]
    caption, hidden = f"Its own permissions, {_part(own, count)}", {"name": name, "token": token}
    rows = [{"permission": one} for one in own]
    if said["built_in"]:
        parts: list[Any] = [Html("<p>It is built in and cannot be changed.</p>")]
        parts.append(table(rows, caption, "None."))
    else:
        grant = [field("permission", "Permission, such as produce queue:orders.*")]
        parts = [form("/order", [*grant, button("Grant", "grant")], hidden)]
        chosen = [{"choose": box(one["permission"]), **one} for one in rows]
        listed = [table(chosen, caption, "None."), button("Revoke", "revoke")]
        parts.append(form("/order", listed, hidden) if rows else listed[0])
    included = [{"permission": one} for one in said["included"]]
    about = f"By roles that it includes, {_part(included, said['included_count'])}"
    users = [{"user": link("/user", one, name=one)} for one in said["users"]]
    return f"Role {name}", [
        *parts,
        table(included, about, "It includes no other role."),
        table(users, f"Who has it, {_part(users, said['user_count'])}", "Nobody has it."),
    ]


def _may(connection: Any, request: Request, _token: str) -> Shown:
    resource, name = request.argument("resource", WHO) or WHO, request.argument("name")
    said = connection.administer("permission.matrix", {"resource": resource, "name": name})
    rows = [
        {
            "action": one["action"],
            "to all of it": _names(one["all"], one["all_count"]),
            "to some of it": _names(one["some"], one["some_count"]),
        }
        for one in said["rows"]
    ]
    asked = [field("resource", "Resource", resource), field("name", "Of this user alone", name)]
    find = form("/may", [*asked, button("Find")], {}, "get")
    return "Who may do what", [_elsewhere(), find, table(rows, resource, "Nothing.")]


def _elsewhere() -> Html:
    return Html(f"<p>{' · '.join(link(path, text) for path, text in BESIDE)}</p>")


def _find(path: str, wanted: str) -> Html:
    return form(path, [field("name", "Name has", wanted), button("Find")], {}, "get")


def _more(
    path: str, rows: Sequence[Mapping[str, Any]], wanted: str, *, is_more: bool
) -> list[Html]:
    if not is_more:
        return []
    further = link(path, "Further names", name=wanted, behind=rows[-1]["name"])
    return [Html(f"<p>{further}</p>")]


def _links(path: str, names: Sequence[str]) -> Html:
    return Html(", ".join(link(path, one, name=one) for one in names))


def _names(names: Sequence[str], count: int) -> Html:
    left = count - len(names)
    linked = [shown(one) if ":" in one else link("/user", one, name=one) for one in names]
    return Html(", ".join(linked) + (f" and {left} more" if left else ""))


def _part(some: Sequence[Any], count: int) -> str:
    return str(count) if len(some) == count else f"the first {len(some)} of {count}"


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _one(given: Form, name: str, what: str) -> str:
    value = given.get(name, [""])[-1].strip()
    if not value:
        raise Refused(f"{what} is missing.")
    return value


def _of_user(will: str) -> Callable[[Any, Form], str]:
    def preview(connection: Any, given: Form) -> str:
        name = _one(given, "name", "The user")
        said = connection.administer("user.show", {"name": name})
        return will.format(name=name, opened=counted(said["connections"], "connection"))

    return preview


def _order_of_user(verb: str, done: str) -> Callable[[Any, Form], str]:
    def do(connection: Any, given: Form) -> str:
        name = _one(given, "name", "The user")
        said = connection.administer(verb, {"name": name})
        return f"{name} {done}; {_told(said)}."

    return do


def _told(said: Mapping[str, Any]) -> str:
    text = f"policy version {said['version']}, record {said['audit']} of the audit"
    if said["closed"]:
        closed = counted(said["closed"], "connection, consumer or service")
        text += f"; {closed} closed"
    return text


def _granted(given: Form, chosen: str) -> dict[str, str]:
    """What is granted or revoked; a choice of several is none."""
    name, every = _one(given, "name", "The role"), [one for one in given.get(chosen, []) if one]
    if len(every) != 1:
        raise Refused("Choose, or write, one permission.")
    return {"name": name, "permission": every[0].strip()}


def _preview_grant(will: str, chosen: str) -> Callable[[Any, Form], str]:
    def preview(connection: Any, given: Form) -> str:
        asked = _granted(given, chosen)
        said = connection.administer("role.show", {"name": asked["name"]})
        users = counted(said["user_count"], "user")
        said = will.format(**asked, users=users)
        return f"{said} {_doubt(asked['permission'])}".rstrip() if chosen == "permission" else said

    return preview


def _doubt(text: str) -> str:
    """What is hardly meant by a permission; of one that cannot be the node says so."""
    try:
        doubt = doubt_about(read_permission(text))
    except Unacceptable:
        return ""
    return f"{doubt}." if doubt else ""


def _grant(verb: str, done: str, chosen: str) -> Callable[[Any, Form], str]:
    def do(connection: Any, given: Form) -> str:
        asked = _granted(given, chosen)
        said = connection.administer(verb, asked)
        return f"Role {asked['name']} {done} {asked['permission']}; {_told(said)}."

    return do


def _back(path: str) -> Callable[[Form], str]:
    return lambda given: f"{path}?{urlencode({'name': given.get('name', [''])[-1]})}"


PAGES_OF_USERS: Mapping[str, Page] = {
    "/users": _of_secured("Users", _users),
    "/user": _of_secured("User", _user),
    "/roles": _of_secured("Roles", _roles),
    "/role": _of_secured("Role", _role),
    "/may": _of_secured("Who may do what", _may),
}
ORDERS_OF_USERS: Mapping[str, Order] = {
    "disable": Order(
        "Disable",
        _of_user("{name} can log in no more; what it has open is closed: {opened}."),
        _order_of_user("user.disable", "is disabled"),
        _back("/user"),
    ),
    "enable": Order(
        "Enable",
        _of_user("{name} can log in again."),
        _order_of_user("user.enable", "is enabled"),
        _back("/user"),
    ),
    "log_out": Order(
        "Log out",
        _of_user("What {name} has open is closed: {opened}. It can log in again."),
        _order_of_user("user.logout", "is logged out"),
        _back("/user"),
    ),
    "grant": Order(
        "Grant",
        _preview_grant(
            "Adds the permission {permission} to role {name}, of {users}.", "permission"
        ),
        _grant("permission.grant", "may", "permission"),
        _back("/role"),
    ),
    "revoke": Order(
        "Revoke",
        _preview_grant("Takes the permission {permission} from role {name}, of {users}.", "id"),
        _grant("permission.revoke", "may no longer", "id"),
        _back("/role"),
    ),
}
