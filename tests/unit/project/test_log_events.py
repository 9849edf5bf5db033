"""Names of events in a log: each line has one, no two have the same, and the page lists them."""

import runpy

import pytest

from hms.client.core.log_events import EVENTS
from tests.support.project import ROOT

SCRIPT = ROOT / "scripts" / "generate-log-events"


@pytest.fixture(scope="module")
def script():
    """What it has."""
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def named(script):
    """Each line that the source writes, with its name."""
    return script["named"]()


def test_the_page_has_each_line_and_each_line_has_a_name(script, named):
    """A script that looks for a text goes on looking in vain when the text is changed."""
    assert [line for line, event in named if not event] == []
    assert script["PAGE"].read_text() == script["made"](), f"it is made by {SCRIPT.name}"


def test_a_name_is_of_one_kind_of_line(named):
    """Else whoever is paged for it does not know for what."""
    texts = {}
    for line, event in named:
        texts.setdefault(event, set()).add((line.logger, line.text))

    assert {event: some for event, some in texts.items() if len(some) > 1} == {}


def test_no_name_is_left_of_a_line_that_is_gone(named):
    """The page would promise what never comes."""
    written = {(line.logger, line.text) for line, _ in named}

    assert {(one, text) for one, rows in EVENTS.items() for text in rows} <= written
