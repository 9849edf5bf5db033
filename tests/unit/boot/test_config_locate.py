"""Lines in hms.conf: that a fault is shown where it stands, whatever the text looks like."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from hms.boot.locate import parse, plain, statements

TEXT = '''# a comment
[a.b]   # another
one = 1
"two words" = """
[not.a.header]
x = 1
"""

[a."c.d"]
list = [
  "]",  # ]
  [1, 2],
]
e.f = { g = 1 }
last = 'x'
'''


def test_every_key_is_found_on_the_line_where_it_stands():
    """A report with wrong lines sends the reader to the wrong place."""
    parsed = parse(TEXT)

    wanted = {
        ("a", "b"): 2,
        ("a", "b", "one"): 3,
        ("a", "b", "two words"): 4,
        ("a", "c.d"): 9,
        ("a", "c.d", "list"): 10,
        ("a", "c.d", "e", "f"): 14,
        ("a", "c.d", "last"): 15,
    }
    assert {path: parsed.line_of(path) for path in wanted} == wanted
    assert parsed.faults == []


def test_what_has_no_line_of_its_own_has_that_of_what_is_around_it():
    """A key of an inline table stands on the line of its table."""
    parsed = parse(TEXT)

    assert parsed.line_of(("a", "c.d", "e", "f", "g")) == 14
    assert parsed.line_of(("a", "b", "absent")) == 2
    assert parsed.line_of(("absent",)) == 1


def test_statements_tell_their_first_and_last_line():
    """What is blanked behind an error must be the statement, no more and no less."""
    lines = [(s.first_line, s.last_line) for s in statements(TEXT)]

    assert lines == [(2, 2), (3, 3), (4, 7), (9, 9), (10, 13), (14, 14), (15, 15)]


def test_a_second_section_of_one_name_is_read_beside_the_first():
    """Its keys are checked too, so that one report is enough."""
    parsed = parse("[a]\nx = 1\n[a]\ny = 2\n")

    assert [line for line, _ in parsed.faults] == [3]
    assert {plain(name) for name in parsed.data} == {"a"}
    assert sorted(key for table in parsed.data.values() for key in table) == ["x", "y"]


def test_a_file_full_of_errors_ends_the_report():
    """A file that is no configuration must not be read for ever."""
    parsed = parse("= 1\n" * 1000)

    assert len(parsed.faults) <= 21
    assert "read no further" in parsed.faults[-1][1]


_PIECES = st.sampled_from(
    [
        "[a]",
        "[a.b]",
        "x = 1",
        "y = [",
        "]",
        '"',
        "'''",
        '"""',
        "=",
        "#",
        "\n",
        "z = {",
        "}",
        ",",
        "\\",
    ]
)


@given(st.lists(_PIECES | st.text(max_size=3), max_size=20))
def test_any_text_is_read_or_its_faults_have_lines_of_it(pieces):
    """S02: the reader of the configuration neither fails nor hangs on anything."""
    text = "\n".join(pieces)

    parsed = parse(text)

    assert all(1 <= line <= text.count("\n") + 1 for line, _ in parsed.faults)
    if not parsed.faults:
        assert parsed.data == tomllib.loads(text)
