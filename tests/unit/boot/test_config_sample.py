"""A key of hms.conf is declared in one place, and everything else follows from it."""

import re
import subprocess
import sys
import tomllib
from typing import Annotated

import pytest
from msgspec import Meta

from hms.boot.check import Report, check_sections
from hms.boot.config import load, sample
from hms.boot.locate import parse
from hms.boot.sections import SECTIONS, Named, Section, engine_settings
from hms.boot.sections.section import key, reads
from hms.engine.settings import DestinationSettings, EngineSettings, SubscriptionSettings

KEYS = [(section, key) for section in SECTIONS for key in section.keys]


def _id(value):
    return getattr(value, "title", None) or value.name


def test_the_sample_at_the_root_is_the_one_that_is_installed(project_root):
    """The command config init must write what the repository shows."""
    assert (project_root / "hms.conf").read_text() == sample()


def test_the_sample_boots_as_it_stands(tmp_path):
    """The first file that anyone tries."""
    path = tmp_path / "hms.conf"
    path.write_text(sample())

    assert load(path).queues.keys() == {"orders", "bench"}


def test_the_sample_with_every_key_switched_on_is_good_too(tmp_path):
    """A commented key that is refused when its mark is removed is a trap."""
    path = tmp_path / "hms.conf"
    path.write_text(_of_a_secured_node(_without(_switched_on(), REPLICATED)))

    config = load(path)

    assert config.servers["orders"].module == "services.orders"
    assert config.services["ORDER_SVC"].timeout_s == 0


def test_the_sample_of_a_node_with_replicas_is_good_too(tmp_path):
    """It has two copies, in no cluster and no database."""
    path = tmp_path / "hms.conf"
    text = _of_a_secured_node(_without(_switched_on(), ALONE))
    other = text[text.index("[replica.a]") : text.index("# When something is an alert")]
    path.write_text(
        text
        + "\n"
        + other.replace("replica.a", "replica.b")
        .replace("10.0.0.1", "10.0.0.2")
        .replace("yf7", "yf8")
    )

    config = load(path)

    assert list(config.replicas) == ["a", "b"]
    assert config.arbiter.kind == "etcd"


REPLICATED = (
    r'replica = |\[replica\.a\]|(address|listen) = \[?"tcp://10|key_file = "keys/rep|public_key'
    r"|scrub_s|mode = |engine_roll|standby = |copies_min"
)
ALONE = r"database = |HMSPORT|link_|config_master|GLOBAL|GQ|password = \"env:HMS_ARB"


def _without(text, pattern):
    """What a node of the other kind does not have."""
    if pattern == REPLICATED:  # an arbiter that has nothing to decide is refused
        text = text[: text.index("[arbiter]")] + text[text.index("[replica.a]") :]
    lines = text.splitlines()
    replica = text[: text.index("[replica.a]")].count("\n")
    kept = []
    for number, line in enumerate(lines):
        is_own = number > replica and line.startswith("NODENAME") and "replica" in pattern
        if not is_own and re.match(pattern, line) is None:
            kept.append(line)
    return "\n".join(kept)


def _switched_on():
    lines = []
    for line in sample().splitlines():
        word = line.removeprefix("# ")
        is_key = " = " in word and word.split(" = ")[0].isidentifier()
        lines.append(word if is_key or word.startswith("[") else line)
    return "\n".join(lines)


def _of_a_secured_node(text):
    """Such a node listens where nobody else hears."""
    return text.replace('"tcp://127.0.0.1:7700"', '"ipc:///run/hms/NODE1.sock"')


def _tables(section):
    """The sections of one kind in the sample, everything switched on."""
    level = tomllib.loads(_switched_on())
    for word in section.path:
        level = level[word]
    return list(level.values()) if section.is_named else [level]


@pytest.mark.parametrize(("section", "one"), KEYS, ids=_id)
def test_the_sample_shows_every_key_with_its_default_and_why(section, one):
    """An operator must not have to look elsewhere for what there is."""
    assert one.why
    is_example = one.default is None and one.otherwise
    without = f" Without it: {one.otherwise}." if is_example else ""  # else it looks like a default
    assert f"# {one.why}{without}\n" in sample()
    shown = next(table[one.name] for table in _tables(section) if one.name in table)
    if one.default is not None:
        assert one.read(shown) == one.default


def test_sample_and_page_are_made_of_the_sections(project_root):
    """What is not in the reference does not exist."""
    words = [sys.executable, str(project_root / "scripts" / "generate-configuration"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


PASSED_ON = (
    *("abandoned_after_s", "auto_destinations", "auto_idle_s", "file_life_s", "flow_control_s"),
    *("max_blocked_bytes", "max_retained", "max_retained_bytes", "max_schedules", "max_topics"),
    *("max_topic_length", "max_topic_levels", "strict_topics", "topic_life_s"),
)
"""Keys that the engine obeys under a name of its own."""
TEXTS = {"catalogue.py"}
"""Made of hms/errors/errors.toml: what an operator is told to change."""


@pytest.fixture(scope="module")
def sources(project_root):
    """The text of each file of ours, by its path."""
    roots = [project_root / top for top in ("boot", "hms", "tpmon", "services", "workers")]
    files = {path.resolve() for root in roots for path in root.rglob("*.py")}
    return {path: path.read_text() for path in files}


@pytest.mark.parametrize("word", PASSED_ON)
def test_a_key_is_named_in_one_file(word, sources):
    """A key that has to pass table after table is forgotten in one of them."""
    named = re.compile(rf"\b{word}\b")

    found = {path.name for path, text in sources.items() if named.search(text)} - TEXTS

    assert found == {"node_sections.py"}


class Shop(Named, frozen=True, kw_only=True):
    """A section that no version has."""

    max_cups: Annotated[int, Meta(ge=1, le=12), key(engine="cups_max")] = 3
    """Cups at most."""
    wait_s: Annotated[float, Meta(ge=0, le=60), key(engine="wait_ms")] = 1.5
    """How long to wait."""
    owner: Annotated[str | None, reads(str), key(otherwise="nobody")] = None
    """Whose."""


SHOP = Section(("shop",), Shop, "[shop.bar]")


def _found(text):
    parsed = parse(text)
    report = Report(parsed, "hms.conf")
    return check_sections(parsed, report, [SHOP], {}), report.lines()


def test_check_and_defaults_follow_from_the_field():
    """One place for a key: its type says what is refused, its default what holds."""
    good, nothing = _found("[shop.a]\nwait_s = 2\n")
    _, said = _found("[shop.a]\nmax_cups = 13\nmax_cupz = 1\ntable = 1\n[shops.b]\n")

    assert (good[0].values, nothing) == ({"max_cups": 3, "wait_s": 2.0, "owner": None}, [])
    assert said == [
        "hms.conf:2: [shop.a] max_cups: 13 is out of range: 1 to 12",
        "hms.conf:3: [shop.a] unknown key 'max_cupz' (did you mean 'max_cups'?)",
        "hms.conf:4: [shop.a] unknown key 'table'",
        "hms.conf:5: unknown section [shops] (did you mean 'shop'?)",
    ]


def test_the_engine_is_told_in_its_own_units():
    """It knows milliseconds only, and its own default for what the file leaves out."""
    assert engine_settings(Shop(name="a")) == {"cups_max": 3, "wait_ms": 1500}


@pytest.mark.parametrize("section", SECTIONS, ids=_id)
def test_the_engine_has_the_defaults_of_the_file(section, tmp_path):
    """An engine in a test must not be another one than that of a node."""
    path = tmp_path / "hms.conf"
    path.write_text("[node.N]\n[hms.queue.Q]\n[hms.topic.T]\n[hms.subscription.S]\ntopic = 'T'\n")
    config = load(path)
    own = {
        "[node.NAME]": (EngineSettings(), config.node()),
        "[hms.queue.NAME]": (DestinationSettings("queue", "Q"), config.queues["Q"]),
        "[hms.topic.NAME]": (DestinationSettings("topic", "T"), config.topics["T"]),
        "[hms.subscription.NAME]": (SubscriptionSettings("S", "T"), config.subscriptions["S"]),
    }
    settings, entry = own.get(section.title, (None, None))

    told = {} if entry is None else engine_settings(entry)

    assert {word: getattr(settings, word) for word in told} == told
