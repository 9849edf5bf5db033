"""Rules tables: the vectors of the guide, and faulty tables with line and column."""

import pytest

from hms.client.letter_rules.rule_patterns import LetterFields, is_like
from hms.client.letter_rules.rules_table import Control, check_table, read_table
from hms.engine.selector.selector_fields import checked_selector
from hms.errors.catalogue import RulesTableFaulty

NUMBERS = {"REASON": 2053, "MSGTYPE": 8, "PERSIST": 1, "APPLTYPE": 65_536, "FEEDBACK": 0}


def rule(text):
    """The only rule of a table; without an action it ignores."""
    whole = text if "ACTION" in text.upper() else f"{text} ACTION(IGNORE)"
    (found,) = read_table(whole).rules
    return found


def faults(text):
    table, found = check_table(text, checked_selector)
    assert (table is None) is bool(found)
    return found


def letter(**fields):
    texts = {k: v for k, v in fields.items() if isinstance(v, str)}
    numbers = {k: v for k, v in fields.items() if isinstance(v, int)}
    return LetterFields("1", is_letter=True, texts=texts, numbers=NUMBERS | numbers)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("APPLNAME('ABC+\n      D')", "ABCD"),
        ("APPLNAME('ABC-\n D')", "ABC D"),
        ("APPL+\n  NAME('ABCD')", "ABCD"),
        ("APPLNAME('O''NEIL')", "O'NEIL"),
        ("FORMAT('ABC')", "ABC"),
        ("FORMAT(ABC)", "ABC"),
        ("FORMAT('A')", "A"),
        ("FORMAT( A )", "A"),
        ("FORMAT(' ')", " "),
        ("FORMAT('ABCDEFGH')", "ABCDEFGH"),
        ("FORMAT('A*C*E*G*I')", "A*C*E*G*I"),
        ("FORMAT('*A*C*E*G*I*K*M*O*')", "*A*C*E*G*I*K*M*O*"),
        ("DESTQM(bbbb.1)", "BBBB.1"),
        ("DESTQM('bbbb.1')", "bbbb.1"),
    ],
)
def test_a_value_is_what_stands_there(text, value):
    """DL-V1: quotes, continuation and capitals."""
    (pattern,) = rule(text).patterns
    assert pattern.value == value


@pytest.mark.parametrize(
    "text",
    [
        "MSGTYPE(2)",
        "MSGTYPE(*)",
        "MSGTYPE('*')",
        "REASON(999999999)",
        "action(fwd) fwdq(&DESTQ) fwdqm(bbbb.2) header(no)",
        "* a comment\n\n  ACTION(DISCARD)\n* the end",
        "INPUTQ(Q2),INPUTQM(QM2) RETRYINT(5) WAIT(NO)\nACTION(RETRY)",
        "REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)\r\n",
        "ACTION(FWD) FWDQ(A.B/C_D%E) FWDQM(' ')",
        "EXTENSIONS(YES)\nAGE(>3600) RETURNS(<3) SELECTOR('Table > 4') RATE(10) ACTION(RETRY)",
    ],
)
def test_a_table_without_faults_is_taken(text):
    """DL-V1."""
    assert faults(text if "ACTION" in text.upper() else f"{text} ACTION(IGNORE)") == []


FAULTY = [
    ("FORMAT('') ACTION(IGNORE)", 1, 8, "FORMAT"),
    ("FORMAT( ) ACTION(IGNORE)", 1, 9, "FORMAT"),
    ("FORMAT() ACTION(IGNORE)", 1, 8, "FORMAT"),
    ("FORMAT", 1, 7, "FORMAT"),
    ("MSGTYPE('2*') ACTION(IGNORE)", 1, 9, "MSGTYPE"),
    ("MSGTYPE(?) ACTION(IGNORE)", 1, 9, "MSGTYPE"),
    ("REASON(1000000000) ACTION(IGNORE)", 1, 8, "REASON"),
    ("REASON(Q_FUL) ACTION(IGNORE)", 1, 8, "REASON"),
    ("FORMAT('ABCDEFGHI') ACTION(IGNORE)", 1, 8, "FORMAT"),
    ("ACTION(FWD) FWDQ(' ')", 1, 18, "FWDQ"),
    ("ACTION(FWD) FWDQ(A*)", 1, 18, "FWDQ"),
    ("ACTION(RETRY) RETRY(*)", 1, 21, "RETRY"),
    ("ACTION(RETRY) RETRY(0)", 1, 21, "RETRY"),
    ("ACTION(RETRY) HEADER(NO)", 1, 15, "HEADER"),
    ("DESTQ(Q1) DESTQ(Q2) ACTION(DISCARD)", 1, 11, "DESTQ"),
    ("\n\nDESTQ(Q1)", 3, 1, "ACTION"),
    ("INPUTQ(Q1)", 1, 1, ""),
    ("ACTION(IGNORE)\nINPUTQ(Q1)", 2, 1, "INPUTQ"),
    ("INPUTQ(Q1) ACTION(IGNORE)", 1, 12, "ACTION"),
    ("", 1, 1, ""),
    ("* nothing\n", 2, 1, ""),
    ("ACTION(FWD)", 1, 8, "ACTION"),
    ("ACTION(DISCRAD)", 1, 8, "ACTION"),
    ("ACTOIN(DISCARD)", 1, 1, "ACTOIN"),
    ("ACTION(FWD) FWDQ(&DESTQM)", 1, 18, "FWDQ"),
    ("ACTION(FWD) FWDQ(A) HEADER(MAYBE)", 1, 28, "HEADER"),
    ("ACTION(FWD) FWDQ(A) PUTAUT(ROOT)", 1, 28, "PUTAUT"),
    ("DESTQ(A)ACTION(IGNORE)", 1, 9, ""),
    ("DESTQ('A ACTION(IGNORE)", 1, 7, "DESTQ"),
    ("DESTQ(A B) ACTION(IGNORE)", 1, 8, "DESTQ"),
    ("DESTQ(A-B) ACTION(IGNORE)", 1, 8, "DESTQ"),
    ("DESTQ 'A' ACTION(IGNORE)", 1, 7, "DESTQ"),
    ("DESTQ('A' B) ACTION(IGNORE)", 1, 11, "DESTQ"),
    ("ACTION(IGNORE) +", 1, 17, ""),
    ("RETRYINT(0)\nACTION(IGNORE)", 1, 10, "RETRYINT"),
    ("WAIT(SOON)\nACTION(IGNORE)", 1, 6, "WAIT"),
    ("AGE(>5) ACTION(IGNORE)", 1, 1, "AGE"),
    ("EXTENSIONS(YES)\nAGE(5) ACTION(IGNORE)", 2, 5, "AGE"),
    ("LENGTHS(IBM)\nUSERID('a user of 17 ch') ACTION(IGNORE)", 2, 8, "USERID"),
    ("(A) ACTION(IGNORE)", 1, 1, ""),
    ("EXTENSIONS(YES)\nSELECTOR('Table >') ACTION(IGNORE)", 2, 10, "SELECTOR"),
    ("EXTENSIONS(YES)\nSELECTOR('JMSDeadReason = 1') ACTION(IGNORE)", 2, 10, "SELECTOR"),
]


@pytest.mark.parametrize(("text", "line", "column", "keyword"), FAULTY)
def test_a_fault_is_told_with_its_place(text, line, column, keyword):
    """42 faulty tables, each with the one fault that it has."""
    assert [(one.line, one.column, one.keyword) for one in faults(text)] == [
        (line, column, keyword)
    ]


def test_every_fault_of_a_table_is_told_at_once():
    """Who corrects a table at night does not do so ten times."""
    text = "ACTION(DISCRAD)\nACTION(RETRY) HEADER(NO) RETRY(0)\nFORMAT() ACTION(IGNORE)"

    with pytest.raises(RulesTableFaulty) as caught:
        read_table(text, "my.rules")

    told = caught.value.report.splitlines()
    assert [line.split(" ")[0] for line in told] == [
        "my.rules:1:8:",
        "my.rules:2:15:",
        "my.rules:2:32:",
        "my.rules:3:8:",
    ]
    assert "did you mean DISCARD" in told[0]


def test_a_fault_behind_a_continuation_stands_where_it_stands():
    """Lines of the file are counted, not entries."""
    (fault,) = faults("DESTQ(A) +\n* in between\n   ACTION(NOTHING)")

    assert (fault.line, fault.column) == (3, 11)


@pytest.mark.parametrize(
    ("pattern", "field", "is_match"),
    [
        ("REPLYQ(?*)", "", False),
        ("REPLYQ(?*)", "Q", True),
        ("REPLYQM(AAAA.*)", "AAAA.", True),
        ("REPLYQM(AAAA.*)", "AAAA.QM1", True),
        ("REPLYQM(AAAA.*)", "AAAA", False),
        ("FORMAT('AB')", "AB      ", True),
        ("FORMAT(' AB')", "AB", False),
        ("FORMAT('A B')", "AB", False),
        ("FORMAT('A?')", "A       ", False),
        ("USERID(*)", "", True),
        ("DESTQ('a*b?d')", "axxbcd", True),
        ("DESTQ('a*b?d')", "axxbd", False),
    ],
)
def test_a_pattern_matches_as_the_guide_says(pattern, field, is_match):
    """DL-V2."""
    found = rule(pattern)
    keyword = pattern.partition("(")[0]

    assert found.matches(letter(**{keyword: field})) is is_match


def test_numbers_and_their_names_mean_the_same():
    """MSGTYPE(2) is a reply; a number that nothing has matches nothing."""
    assert rule("MSGTYPE(2)").matches(letter(MSGTYPE=2))
    assert not rule("MSGTYPE(2)").matches(letter())
    assert rule("MSGTYPE(*) REASON(MQRC_Q_FULL)").matches(letter())
    assert rule("REASON(QUEUE_FULL)").matches(letter())
    assert not rule("REASON(999999999)").matches(letter())


def test_a_pattern_of_many_stars_is_quick():
    """The work is bounded by the product of the lengths."""
    assert not is_like("*a" * 120, "a" * 119 + "b")


def test_control_data_have_their_defaults():
    """WAIT waits for ever, RETRYINT is a minute."""
    assert read_table("ACTION(DISCARD)").control == Control()
    table = read_table("INPUTQ(' ') INPUTQM(QM2) WAIT(5) RETRYINT(3)\nACTION(DISCARD)")
    assert table.control == Control("", "QM2", 3, 5)
    assert read_table("WAIT(NO)\nACTION(DISCARD)").control.wait_s == 0


def test_what_is_seldom_meant_is_a_warning():
    """It is legal, and told: no rule for all, one behind it, ignoring, small letters."""

    def warned(text):
        return [(one.line, one.keyword) for one in read_table(text).warnings]

    assert warned("ACTION(FWD) FWDQ(A)") == []
    assert warned("REASON(QUEUE_FULL) ACTION(DISCARD)") == [(1, "")]
    assert warned("ACTION(DISCARD)\nDESTQ(A) ACTION(DISCARD)") == [(2, "")]
    assert warned("ACTION(IGNORE)") == [(1, "ACTION")]
    assert warned("ACTION(FWD) FWDQ(late)") == [(1, "FWDQ")]
    assert warned("* " + "x" * 80 + "\nACTION(DISCARD)") == [(1, "")]
