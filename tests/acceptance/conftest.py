"""What a test has recorded as its figures is shown in one table at the end, also with -n."""


def pytest_terminal_summary(terminalreporter):
    """A line for each test that recorded some, whether it passed or not."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        if report.when == "call"
    ]
    rows = sorted(
        " ".join(f"{name}={value}" for name, value in figures.items())
        for report in reports
        for key, figures in report.user_properties
        if key == "figures"
    )
    if rows:
        terminalreporter.section("figures")
        for row in rows:
            terminalreporter.write_line(row)
