"""Sends the controlling process of pytest-xdist one report of a test that passed, where each phase has one.

Writing and reading reports is most of what that process does, and a tenth of what a short test costs. `--durations`,
`--junitxml` and `-v` need all of them.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

_LEFT_OUT: Final = "$left_out"


def needs_all(config: pytest.Config) -> bool:
    options = config.option
    return options.durations is not None or bool(options.xmlpath) or options.verbose > 0


class FewerReports:
    """The plugin of a worker process."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_to_serializable(self, report: object) -> dict[str, Any] | None:
        """Shorten the report of a test that passed; mark that of its set-up and its end."""
        if not isinstance(report, pytest.TestReport) or not report.passed:
            return None
        report.keywords = {}  # They are for selecting tests.
        return None if report.when == "call" else {_LEFT_OUT: True}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        for plugin in session.config.pluginmanager.get_plugins():
            if type(plugin).__name__ == "WorkerInteractor":
                plugin.sendevent = _sending_the_rest(plugin.sendevent)


def _sending_the_rest(send: Any) -> Any:
    def sendevent(name: str, **members: Any) -> None:
        # That a test begins, only `-v` shows, which needs all.
        if name != "logstart" and (name != "testreport" or _LEFT_OUT not in members["data"]):
            send(name, **members)

    return sendevent
