"""A worker sends one report of a test that passed, and every report of any other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest
from tests.cases import cases
from tests.fewer_reports import FewerReports, needs_all


class WorkerInteractor:
    """What pytest-xdist sends reports with."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def sendevent(self, name: str, **members: Any) -> None:
        self.sent.append((name, members))


def report(when: Literal["setup", "call", "teardown"], outcome: Literal["passed", "failed", "skipped"]) -> Any:
    return pytest.TestReport("a.py::b", ("a.py", 1, "b"), {"mark": 1}, outcome, None, when)


@cases(
    "outcomes, sent",
    [
        (["passed", "passed", "passed"], ["call passed"]),
        (["passed", "failed", "passed"], ["call failed"]),
        (["passed", "skipped", "passed"], ["call skipped"]),
        (["failed", "passed"], ["setup failed"]),
        (["skipped", "passed"], ["setup skipped"]),
        (["passed", "passed", "failed"], ["call passed", "teardown failed"]),
    ],
    ids=lambda value: "-".join(value),
)
def test_report_that_tells_something_is_sent(outcomes: list[Any], sent: list[str]) -> None:
    plugin, worker = FewerReports(), WorkerInteractor()
    session: Any = SimpleNamespace(config=SimpleNamespace(pluginmanager=SimpleNamespace(get_plugins=lambda: [worker])))
    plugin.pytest_sessionstart(session)
    phases: list[Any] = ["setup", "call", "teardown"] if len(outcomes) == 3 else ["setup", "teardown"]
    for phase, outcome in zip(phases, outcomes, strict=True):
        each = report(phase, outcome)
        worker.sendevent("testreport", data=plugin.pytest_report_to_serializable(each) or each._to_json())
    worker.sendevent("logstart", nodeid="a.py::b")
    worker.sendevent("logfinish", nodeid="a.py::b")
    *reports, (last, _) = worker.sent
    assert last == "logfinish"
    assert [f"{each['data']['when']} {each['data']['outcome']}" for _, each in reports] == sent
    assert all(each["data"]["keywords"] == {} for _, each in reports if each["data"]["outcome"] == "passed")
    assert all(each["data"]["keywords"] for _, each in reports if each["data"]["outcome"] != "passed")


@cases(
    "options, needed",
    [({}, False), ({"durations": 5}, True), ({"xmlpath": "a.xml"}, True), ({"verbose": 1}, True)],
    ids=str,
)
def test_options_that_show_every_phase_need_every_report(options: dict[str, Any], needed: bool) -> None:
    config: Any = SimpleNamespace(
        option=SimpleNamespace(**{"durations": None, "xmlpath": None, "verbose": 0, **options})
    )
    assert needs_all(config) is needed


def test_worker_of_this_version_is_found(request: pytest.FixtureRequest) -> None:
    if not hasattr(request.config, "workerinput"):
        pytest.skip("this is no worker")
    if needs_all(request.config):
        pytest.skip("this run sends every report")
    plugins = {type(plugin).__name__: plugin for plugin in request.config.pluginmanager.get_plugins()}
    assert plugins["WorkerInteractor"].sendevent.__module__ == "tests.fewer_reports"
