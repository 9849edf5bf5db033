"""The tree of errors: what an application catches, prints and sends on must be whole."""

import copy
import pickle
import re
import subprocess
import sys
import tomllib

import pytest

from hms.errors import catalogue
from hms.errors.tree import HmsError
from tests.support.project import ROOT

TOML = tomllib.loads((ROOT / "hms" / "errors" / "errors.toml").read_text())
FIELD = re.compile(r"{(\w+)")
EVERY = [pytest.param(kind, id=kind.__name__) for kind in catalogue.BY_NUMBER.values()]

# What the first digit of a number says; errors.toml draws the same families.
THOUSANDS = range(1, 10)

BUILTINS = {
    "DestinationNotFound": LookupError,
    "SubscriptionNotFound": LookupError,
    "ServiceNotFound": LookupError,
    "PropertyNotFound": KeyError,
    "SelectorSyntaxError": ValueError,
    "PropertyRangeError": ValueError,
    "PropertyTypeError": TypeError,
    "RequestTimeout": TimeoutError,
    "ServiceTimeout": TimeoutError,
    "ConnectionLost": ConnectionError,
    "ConnectionRefused": ConnectionError,
    "CallWouldBlock": BlockingIOError,
    "TpSecurity": PermissionError,
    "TpOsError": OSError,
}


def _fields(kind: type[HmsError]) -> dict[str, str]:
    names = FIELD.findall(kind.text) + FIELD.findall(kind.cure_text)
    return {name: f"the {name}" for name in names}


def test_the_classes_and_the_page_are_made_from_the_catalogue():
    """An error that only one of the three knows misleads whoever reads the others."""
    ended = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate-errors", "--check"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout


def test_every_number_has_its_class():
    """The wire carries numbers: one without a class would arrive as an unknown error."""
    listed = {int(number): error["name"] for number, error in TOML["error"].items()}

    assert {n: kind.__name__ for n, kind in catalogue.BY_NUMBER.items()} == listed
    assert all(kind.number == number for number, kind in catalogue.BY_NUMBER.items())


def test_every_number_lies_in_a_family_range():
    """Operators look an error up by its first digit."""
    assert [n for n in catalogue.BY_NUMBER if n // 1000 not in THOUSANDS] == []


@pytest.mark.parametrize("kind", EVERY)
def test_an_error_says_its_number_and_all_its_fields(kind):
    """A text with a hole in it hides exactly the value that was wrong."""
    fields = _fields(kind)

    said = str(kind(**fields))

    assert said.startswith(f"HMS-{kind.number} ")
    assert [value for value in fields.values() if value not in said] == []
    assert "?" not in said
    assert "{" not in said


@pytest.mark.parametrize("kind", EVERY)
def test_an_error_says_what_to_do(kind):
    """The cure is the half of the message that ends the search."""
    assert kind(**_fields(kind)).cure


@pytest.mark.parametrize("kind", EVERY)
def test_an_error_carries_its_values_as_attributes_and_its_code(kind):
    """Programs decide by fields and codes, never by cutting up the text."""
    error = kind(**_fields(kind))

    assert {name: getattr(error, name) for name in error.fields} == error.fields
    assert error.code == error.tperrno == kind.code > 0
    assert error.symbol.startswith(("TPE", "TX", "XA"))


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize(
    "repeated",
    [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
def test_an_error_crosses_a_process_unchanged(kind, repeated):
    """Futures, process pools and Spark carry errors as pickles."""
    error = kind(**_fields(kind))

    again = repeated(error)

    assert type(again) is kind
    assert again.fields == error.fields
    assert str(again) == str(error)


def test_a_missing_field_does_not_hide_the_error():
    """An older peer sends fewer fields; its error must still be told."""
    assert "?" in str(catalogue.DestinationNotFound())


def test_what_another_error_has_said_ends_with_one_full_stop():
    """A node that does not boot says why in the words of another error, with its cure."""
    reason = str(catalogue.StoreLocked(path="/store", pid="7"))
    said = str(catalogue.BootFailed(reason=reason, log="/log"))

    assert reason.endswith(".")
    assert said.endswith(f"{reason} See /log.")


def test_an_unknown_attribute_is_refused():
    """A field that is misspelt must not read as an empty value."""
    with pytest.raises(AttributeError, match="has no attribute 'nowhere'"):
        _ = catalogue.DestinationNotFound(destination="orders").nowhere


@pytest.mark.parametrize(("name", "parent"), list(BUILTINS.items()))
def test_an_error_is_also_what_python_calls_it(name, parent):
    """`except LookupError` and `except TimeoutError` must work without knowing HMS."""
    assert issubclass(getattr(catalogue, name), parent)


@pytest.mark.parametrize("name", catalogue.__all__)
def test_every_class_descends_from_the_one_root(name):
    """Everything an application can catch is an HmsError."""
    kind = getattr(catalogue, name)

    assert name == "BY_NUMBER" or issubclass(kind, HmsError)


@pytest.mark.parametrize("name", list(TOML["family"]))
def test_a_family_stands_for_one_code(name):
    """Tmax programs switch on tperrno; two families with one code would be one error to them."""
    family = getattr(catalogue, name)
    others = [entry["code"] for other, entry in TOML["family"].items() if other != name]

    assert (family.code, family.symbol) == (
        TOML["family"][name]["code"],
        TOML["family"][name]["symbol"],
    )
    assert family.code not in others


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_missing_destination_names_its_own_kind_and_a_key_that_toml_reads(kind):
    """[hms.queue.orders.late] makes a queue "orders" with an unknown key; and a topic is in no
    list of queues."""
    said = str(catalogue.DestinationNotFound(kind=kind, destination="orders.late"))

    assert f"hms {kind} create 'orders.late'" in said
    assert f"hms {kind} list" in said
    head = re.search(r"\[hms[^\]]*\]", said)[0]
    assert tomllib.loads(head) == {"hms": {kind: {"orders.late": {}}}}


def test_what_somebody_else_chose_moves_no_cursor_of_a_terminal():
    error = catalogue.ServiceNotFound(service="A\x1b[2J\x9b1A\rB", at="ø\n")
    assert "A\\x1b[2J\\x9b1A\\x0dB" in str(error)
    assert "ø\n" in str(error)  # a text of several lines keeps them
    assert error.service == "A\x1b[2J\x9b1A\rB"
