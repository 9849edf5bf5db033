"""The configuration of a domain, as loaded from hms.conf.

`load` checks the whole file and raises ConfigError with every fault at once. Attributes are the
file's keys in lower case; paths are absolute, and what the file leaves out is filled in.
"""

from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from hms.boot.check import Found, Report, check_sections
from hms.boot.entries import Config
from hms.boot.kinds import spell_size
from hms.boot.locate import Parsed, parse
from hms.boot.memory_limit import memory_for_messages, memory_limit
from hms.boot.references import check_references
from hms.boot.sections import (
    ALERTS,
    ARBITER,
    DOMAIN,
    LETTER_HANDLER,
    LISTENER,
    NODE,
    QUEUE,
    REPLICA,
    RESOURCE,
    SERVER,
    SERVICE,
    SUBSCRIPTION,
    SVRGROUP,
    TOPIC,
    Alerts,
    Arbiter,
    Domain,
    Entry,
    Group,
    LetterHandler,
    Listener,
    Named,
    Node,
    Queue,
    Replica,
    Resource,
    Section,
    Server,
    Service,
    Subscription,
    Topic,
)
from hms.errors.catalogue import ConfigError

__all__ = [
    "Config",
    "Domain",
    "Group",
    "Node",
    "Queue",
    "Resource",
    "Server",
    "Service",
    "Subscription",
    "Topic",
    "effective",
    "load",
    "parsed",
    "sample",
    "sections_of",
    "values_of",
]

FILE_BYTES_MAX = 1 << 20

_Entry = TypeVar("_Entry", bound=Named)


def load(path: str | Path) -> Config:
    """Read and check hms.conf; raises ConfigError whose report has one line for each fault."""
    found = parsed(path)
    report = Report(found, str(path))
    every = check_sections(found, report)
    if found.data or not found.faults:
        check_references(every, report)
    if lines := report.lines():
        raise ConfigError(report="\n".join(lines))
    return _build(every, Path(path).absolute())


def sample() -> str:
    """The commented file that `hms config init` writes: every key, its default and why."""
    return resources.files("hms.boot").joinpath("sample.conf").read_text(encoding="utf-8")


def effective(config: Config) -> dict[str, Any]:
    """What holds, by section as in the file, defaults filled in. No key of it is a secret.

    What a queue or topic has from its node is filled in where the file has one node only.
    """
    return {
        "domain": _plain(DOMAIN, config.domain),
        "node": {name: _plain(NODE, node) for name, node in config.nodes.items()},
        "svrgroup": {name: _plain(SVRGROUP, group) for name, group in config.groups.items()},
        "alerts": _plain(ALERTS, config.alerts),
        "server": {name: _plain(SERVER, server) for name, server in config.servers.items()},
        "service": {name: _plain(SERVICE, service) for name, service in config.services.items()},
        **_listeners(config),
        **_replicas(config),
        **_resources(config),
        **_letter_handlers(config),
        "hms": _destinations(config),
    }


def sections_of(config: Config) -> Iterator[tuple[Section, str, Entry]]:
    """Each section that holds, by kind and as in the file; its name, "" of one that has none."""
    for section, one in (
        (DOMAIN, config.domain),
        (ALERTS, config.alerts),
        (ARBITER, config.arbiter),
    ):
        if one is not None:
            yield section, "", one
    many: tuple[tuple[Section, Mapping[str, Entry]], ...] = (
        (NODE, config.nodes),
        (LISTENER, config.listeners),
        (SVRGROUP, config.groups),
        (REPLICA, config.replicas),
        (SERVER, config.servers),
        (SERVICE, config.services),
        (RESOURCE, config.resources),
        (LETTER_HANDLER, config.letter_handlers),
        (QUEUE, config.queues),
        (TOPIC, config.topics),
        (SUBSCRIPTION, config.subscriptions),
    )
    for section, entries in many:
        for name, entry in entries.items():
            yield section, name, entry


def values_of(config: Config, section: Section, entry: Entry) -> dict[str, Any]:
    """What holds in a section, as effective()."""
    if isinstance(entry, Queue | Topic):
        entry = entry.on(config.node() if len(config.nodes) == 1 else None)
    return _plain(section, entry)


def parsed(path: str | Path) -> Parsed:
    """What stands in the file itself, and where; ConfigError for one that cannot be read."""
    return parse(_read(Path(path)))


def _listeners(config: Config) -> dict[str, Any]:
    """What stands below [listener]; nothing when there is none."""
    known = {name: _plain(LISTENER, one) for name, one in config.listeners.items()}
    return {"listener": known} if known else {}


def _replicas(config: Config) -> dict[str, Any]:
    """What stands below [arbiter] and [replica]; nothing when there is none."""
    known = {name: _plain(REPLICA, one) for name, one in config.replicas.items()}
    arbiter = {} if config.arbiter is None else {"arbiter": _plain(ARBITER, config.arbiter)}
    return {**arbiter, **({"replica": known} if known else {})}


def _resources(config: Config) -> dict[str, Any]:
    """What stands below [rm]; nothing when there is none."""
    known = {name: _plain(RESOURCE, one) for name, one in config.resources.items()}
    return {"rm": known} if known else {}


def _letter_handlers(config: Config) -> dict[str, Any]:
    """What stands below [dlq]; nothing when there is none."""
    known = {name: _plain(LETTER_HANDLER, one) for name, one in config.letter_handlers.items()}
    return {"dlq": known} if known else {}


def _destinations(config: Config) -> dict[str, Any]:
    """What stands below [hms]; a kind of which there is none is left out, as a file would."""
    only = config.node() if len(config.nodes) == 1 else None
    every = {
        "queue": {q.name: _plain(QUEUE, q.on(only)) for q in config.queues.values()},
        "topic": {t.name: _plain(TOPIC, t.on(only)) for t in config.topics.values()},
        "subscription": {n: _plain(SUBSCRIPTION, s) for n, s in config.subscriptions.items()},
    }
    return {kind: entries for kind, entries in every.items() if entries}


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError as fault:
        hint = "hms config init writes one, --config or HMS_CONFIG names another"
        raise ConfigError(report=f"{path}: there is no such file; {hint}") from fault
    except OSError as fault:
        raise ConfigError(report=f"{path}: cannot be read: {fault.strerror}") from fault
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(report=f"{path}: is larger than {spell_size(FILE_BYTES_MAX)}")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise ConfigError(report=f"{path}:{line}: is not UTF-8 text") from fault


def _build(every: list[Found], path: Path) -> Config:
    base = path.parent
    node_names = [found.name for found in _of(every, NODE)]
    domain = next((Domain(**found.values) for found in _of(every, DOMAIN)), None) or Domain()
    groups = {f.name: _group(f, base, node_names) for f in _of(every, SVRGROUP)}
    nodes = {f.name: _node(f, base, domain, groups) for f in _of(every, NODE)}
    return Config(
        domain=domain,
        nodes=nodes,
        groups={**{node.group.name: node.group for node in nodes.values()}, **groups},
        servers={found.name: _server(found, base) for found in _of(every, SERVER)},
        services=_entries(every, SERVICE, Service, base),
        queues=_entries(every, QUEUE, Queue, base),
        topics=_entries(every, TOPIC, Topic, base),
        subscriptions=_entries(every, SUBSCRIPTION, Subscription, base),
        path=path,
        resources={f.name: _resource(f, base) for f in _of(every, RESOURCE)},
        listeners=_entries(every, LISTENER, Listener, base),
        alerts=next((Alerts(**found.values) for found in _of(every, ALERTS)), Alerts()),
        arbiter=next((Arbiter(**_values(found, base)) for found in _of(every, ARBITER)), None),
        replicas={f.name: _replica(f, base, node_names) for f in _of(every, REPLICA)},
        letter_handlers=_entries(every, LETTER_HANDLER, LetterHandler, base),
    )


def _of(every: list[Found], section: Section) -> list[Found]:
    return [found for found in every if found.section is section]


def _entries(
    every: list[Found], section: Section, kind: type[_Entry], base: Path
) -> dict[str, _Entry]:
    found = _of(every, section)
    return {one.name: kind(name=one.name, **_values(one, base)) for one in found}


def _values(found: Found, base: Path) -> dict[str, Any]:
    """What the file says or its defaults, with absolute paths."""
    return {word: _absolute(value, base) for word, value in found.values.items()}


def _absolute(value: Any, base: Path) -> Any:
    if isinstance(value, tuple):
        return tuple(_absolute(item, base) for item in value)
    return base / value if isinstance(value, Path) else value


def _replica(found: Found, base: Path, node_names: list[str]) -> Replica:
    values = _values(found, base)
    values["nodename"] = values["nodename"] or node_names[0]
    return Replica(name=found.name, **values)


def _group(found: Found, base: Path, node_names: list[str]) -> Group:
    values = _values(found, base)
    values["nodename"] = values["nodename"] or node_names[0]
    return Group(name=found.name, **values)


def _node(found: Found, base: Path, domain: Domain, groups: dict[str, Group]) -> Node:
    values, name = _values(found, base), found.name
    own = (g for g in groups.values() if g.nodename == name and g.svgtype == "HMS")
    group = next(own, None) or Group(name=f"{name}-hms", nodename=name)
    values["store"] = values["store"] or base / "var" / name / "store"
    values["runtime"] = values["runtime"] or values["store"].parent / "run"
    values["log_file"] = values["log_file"] or values["runtime"] / f"{name}.log"
    values["maxsession"] = values["maxsession"] or domain.maxsession
    if "max_memory_bytes" not in found.given:
        least, most = values["max_message_bytes"], values["max_memory_bytes"]
        values["max_memory_bytes"] = memory_for_messages(most, least, memory_limit())
    return Node(name=name, group=group, **values)


def _server(found: Found, base: Path) -> Server:
    values = _values(found, base)
    values["max"] = values["max"] or max(values["min"], 1)
    return Server(name=found.name, **values)


def _resource(found: Found, base: Path) -> Resource:
    values = _values(found, base)
    for key, prefix in (("open", "sqlite:"), ("password", "file:")):
        where = values[key]
        if where is not None and where.startswith(prefix):
            values[key] = f"{prefix}{base / where.removeprefix(prefix)}"
    return Resource(name=found.name, **values)


def _plain(section: Section, what: Entry) -> dict[str, Any]:
    """An entry as the file would say it; keys that are None are left to their default."""
    shown = {key.name: getattr(what, key.attribute) for key in section.keys}
    return {word: _written(value) for word, value in shown.items() if value is not None}


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return str(value) if isinstance(value, Path) else value
