"""Runs of records that are as short as tests can write them; see hms/wire/record_runs.py."""

import pytest

from hms.store.journal import segment_walk
from hms.wire import record_runs


def shorten_runs(patch: pytest.MonkeyPatch, records: int = 2) -> None:
    """So many messages that were sent one by one are a run, and a block."""
    for module in (record_runs, segment_walk):
        patch.setattr(module, "RUN_RECORDS", records)
