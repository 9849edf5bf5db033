"""The sample, the schema and the page on configuration say the same."""

import tomllib

import pytest

from hms.boot.config import load, sample
from hms.boot.schema import SECTIONS

PAGE = "docs/reference/configuration.md"
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
    path.write_text(_switched_on())

    config = load(path)

    assert config.servers["orders"].module == "services.orders"
    assert config.services["ORDER_SVC"].timeout_s == 0


def _switched_on():
    lines = []
    for line in sample().splitlines():
        word = line.removeprefix("# ")
        is_key = " = " in word and word.split(" = ")[0].isidentifier()
        lines.append(word if is_key or word.startswith("[") else line)
    return "\n".join(lines)


def _tables(section):
    """The sections of one kind in the sample, everything switched on."""
    level = tomllib.loads(_switched_on())
    for word in section.path:
        level = level[word]
    return list(level.values()) if section.is_named else [level]


@pytest.mark.parametrize(("section", "key"), KEYS, ids=_id)
def test_the_sample_shows_every_key_with_its_default_and_why(section, key):
    """An operator must not have to look elsewhere for what there is."""
    assert f"# {key.why}\n" in sample()
    shown = next(table[key.name] for table in _tables(section) if key.name in table)
    if key.default is not None:
        assert shown == key.default


@pytest.mark.parametrize(("section", "key"), KEYS, ids=_id)
def test_the_page_has_a_row_for_every_key(section, key, project_root):
    """What is not in the reference does not exist."""
    page = (project_root / PAGE).read_text()
    part = page.split(f"## `{section.title}`")[1].split("\n## ")[0]

    assert f"| `{key.name}` | {_default(key)} | {key.why} |" in part


@pytest.mark.parametrize("section", SECTIONS, ids=_id)
def test_the_page_names_what_is_refused_with_a_reason(section, project_root):
    """Who comes from Tmax looks for its words."""
    page = (project_root / PAGE).read_text()
    part = page.split(f"## `{section.title}`")[1].split("\n## ")[0]

    assert [word for word in section.later if f"`{word}`" not in part] == []


def _default(key):
    if key.is_required:
        return "must be given"
    if key.default is None:
        return key.otherwise
    return f"`{tomllib_spelling(key.default)}`"


def tomllib_spelling(value):
    """A value as it is written in the file."""
    if isinstance(value, list):
        return "[" + ", ".join(tomllib_spelling(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
