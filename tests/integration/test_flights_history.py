"""The proof on real flights, for a few days: sent, archived, reported, replayed, all equal."""

import pytest

from bench.flights import WEEK, flights, in_week, prove
from hms.history import session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAYS = ("13", "14", "15")


def test_flights_are_the_same_in_history_archive_and_where_they_were_replayed(tmp_path):
    """The whole way of a message, on data that nobody made for it; `python -m bench.flights` does
    it with the whole year."""
    rows = flights(lambda row: row["month"] == "7" and row["day"] in DAYS)
    proof = prove(rows, WEEK, in_week, session("hms-tests"), tmp_path)

    assert proof.faults == []
    assert proof.archived == proof.flights == len(rows) > 2500
    assert proof.replayed == sum(map(in_week, rows)) < len(rows)
    assert proof.reports["audit"].is_good
