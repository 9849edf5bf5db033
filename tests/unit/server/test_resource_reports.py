"""Reports of recovery: what one client says, every status has to carry."""

import pytest

import hms
from hms.server.resource_managers import ResourceManagers
from hms.wire.commands import order
from hms.wire.operations import REPORT_BYTES_MAX

BAD = [
    None,
    7,
    "",
    "[]",
    "{",
    '{"x": 123456789012345678901234567890}',
    '{"x": ' + "[" * 5000 + "]" * 5000 + "}",
    '{"x": "\\ud800"}',
    '{"x": "' + "y" * REPORT_BYTES_MAX + '"}',
]


def _report(text):
    return "resource.report", order("resource.report", {"report": text}).arguments


@pytest.mark.parametrize("report", BAD)
def test_a_report_that_no_status_could_carry_is_refused(report):
    """A large integer stopped the node with the next status."""
    resources = ResourceManagers([{"name": "pg"}])
    resources.operate(*_report('{"waiting": 1}'))

    with pytest.raises(hms.InvalidArgument):
        resources.operate(*_report(report))

    assert resources.describe() == {"recovery": {"waiting": 1}}
