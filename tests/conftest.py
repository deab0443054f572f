"""Shared by every test: whether the official schemas are here, and which test proves which requirement.

Tests carry `@pytest.mark.covers("META-2")`. This file collects those marks, writes them down on request
(`--covers-map=FILE`, used by tests/requirements.py), and after a full run fails the session when a row of
tests/requirements.toml has no marked test, or one that did not run and pass. It works the same under pytest-xdist: the
outcomes arrive in the controlling process, and each worker hands the marks over when it ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout
from hypothesis import HealthCheck, settings
from tests import bytecode, cases, fewer_reports, pairwise, patience, requirements, spec, warm_starts

ROOT = Path(__file__).resolve().parent.parent

# One entry per collected test, before anything is deselected: node id with parameters -> requirement ids.
COVERS = pytest.StashKey[requirements.Covers]()

# Contracts of the package say as much as tests do when they fail.
pytest.register_assert_rewrite("toolwire.testing.stores")

# Where these ask for more examples, or for libraries of others, a test may take long.
LONG_RUNS = ("TOOLWIRE_EXAMPLES", "TOOLWIRE_FUZZ", "TOOLWIRE_PEERS")

# No test asserts on a clock, and a busy machine is slow for reasons of its own. `make fuzz` tries more examples.
settings.register_profile(
    "toolwire",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("TOOLWIRE_EXAMPLES", "30")),
)
settings.load_profile("toolwire")

# Runs of pytest that tests start would read every module of the package for constants without what is noted there.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(ROOT / ".hypothesis"))

# Starts `python -m toolwire` in a moment, except for tests of the start.
STARTS = warm_starts.WarmStarts()

# Whether there was a whole collection of garbage since the last test began.
has_collected = False

# What is collected stays: without this, the collector looks for garbage among ever more tests.
gc.set_threshold(200_000, 50, 50)

# Tests start hundreds of processes. Where this is set, each of them compiles the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A job in the background of a script inherits ignored SIGINT and SIGQUIT, one under nohup an ignored SIGHUP, and so
# would every process that a test starts. With a handler here they start with the default instead.
if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _name in ("SIGHUP", "SIGQUIT"):
    if hasattr(signal, _name) and signal.getsignal(getattr(signal, _name)) is signal.SIG_IGN:
        signal.signal(getattr(signal, _name), lambda number, frame: None)


def strict() -> bool:
    """Whether a missing specification folder, and a required test that was skipped, are failures."""
    return os.environ.get("TOOLWIRE_REQUIRE_SPEC") == "1"


@pytest.fixture(scope="session")
def covers_map(request: pytest.FixtureRequest) -> requirements.Covers:
    """Return the marks of every test of the repository, also when only some tests run."""
    return request.config.stash[COVERS] if is_full_run(request.config) else requirements.collect_covers()


def is_full_run(config: pytest.Config) -> bool:
    """Whether this run was asked for every test: only then is a test that did not run worth a complaint."""
    option = config.option
    narrowed = any(
        getattr(option, name, None)
        for name in ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "collectonly", "stepwise")
    )
    asked_for = {(config.invocation_params.dir / argument).resolve() for argument in config.args}
    return not narrowed and asked_for <= {ROOT, ROOT / "tests"}


def is_whole(config: pytest.Config) -> bool:
    """Whether every cell and case is a test of its own, as when a test is named with its parameters."""
    return config.getoption("--all-cells") or any("[" in argument for argument in config.args)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--covers-map", metavar="FILE", help="write which test covers which requirement to FILE as JSON")
    parser.addoption("--sample", type=int, metavar="NUMBER", help="run every other cell of the grids that are sampled")
    parser.addoption(
        "--all-cells", action="store_true", help="run every cell of pairwise grids, and each case as a test"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool | None:
    """End a test that hangs after 20 quiet seconds or 60 real ones; one marked slow has the time of pyproject.toml."""
    if settings.method != "signal" or _may_take_long(item):
        return None
    limit = settings._replace(timeout=min(patience.SILENCE, settings.timeout))
    item.cancel_timeout = patience.alarm(  # type: ignore[attr-defined]
        limit.timeout, lambda: pytest_timeout.timeout_sigalrm(item, limit)
    )
    return True


def _may_take_long(item: pytest.Item) -> bool:
    marks = any(item.get_closest_marker(name) for name in ("slow", "timeout"))
    return marks or any(name in os.environ for name in LONG_RUNS)


def pytest_report_header() -> str:
    return f"official schemas: {spec.FOLDER}" if spec.OFFICIAL else spec.LEFT_OUT


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COVERS] = {}
    cases.separate = is_whole(config)
    if strict() and not spec.OFFICIAL:
        raise pytest.UsageError(f"TOOLWIRE_REQUIRE_SPEC=1 and {spec.LEFT_OUT}")
    if not is_whole(config):
        STARTS.install()
    worker = getattr(config, "workerinput", None)
    if worker is None:
        config.pluginmanager.register(OutcomeCheck(config), "toolwire-outcome-check")
        return
    if not fewer_reports.needs_all(config):
        config.pluginmanager.register(fewer_reports.FewerReports(), "toolwire-fewer-reports")
    if is_full_run(config):
        bytecode.compile_files(config, bytecode.find_files()[int(worker["workerid"][2:]) :: worker["workercount"]])


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if not is_whole(metafunc.config):
        pairwise.thin_out(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    covers = config.stash[COVERS]
    for item in items:
        ids = [id for mark in item.iter_markers("covers") for id in mark.args]
        if ids:
            covers[item.nodeid] = ids
    target = config.getoption("--covers-map")
    if target:
        Path(target).write_text(json.dumps(covers), encoding="utf-8")
    if not is_whole(config) and config.getoption("--sample") is not None:
        items[:], dropped = pairwise.sample_items(items, config.getoption("--sample"))
        config.hook.pytest_deselected(items=dropped)


def _note_collection(phase: str, info: dict[str, int]) -> None:
    global has_collected
    has_collected = has_collected or info["generation"] == 2


def pytest_runtest_setup(item: pytest.Item) -> None:
    global has_collected
    if has_collected:
        # A later collection need not look at what is left now. Garbage is freed first: it may warn of that.
        gc.collect()
        gc.freeze()
        has_collected = False
    STARTS.is_on = item.get_closest_marker("cold_start") is None
    STARTS.is_for_all = item.get_closest_marker("warm_start") is not None


def pytest_exception_interact(call: pytest.CallInfo[Any]) -> None:
    if call.excinfo is not None and str(call.excinfo.value).startswith("Timeout"):
        # A test that its time limit ended inside a loop leaves it as the running one.
        asyncio._set_running_loop(None)


def pytest_unconfigure() -> None:
    STARTS.close()


def pytest_collection_finish() -> None:
    """Keep the collected tests out of garbage collections, which would look through all of them again and again."""
    gc.freeze()
    gc.callbacks.append(_note_collection)
    # Collections that come seldom take a third of the time from tests that compute.
    gc.set_threshold(10_000, 20, 50)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the marks over to the controlling process of pytest-xdist, which collects nothing itself."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["covers"] = session.config.stash[COVERS]


class OutcomeCheck:
    """Notes how each test ended and, after a full run, compares that with the table of requirements."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.outcomes: dict[str, set[str]] = {}
        self.complaints: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A skip is reported by the set-up phase, a pass by the call phase.
        if report.when == "call" or report.skipped:
            self.outcomes.setdefault(report.nodeid.split("[", 1)[0], set()).add(report.outcome)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # A worker that crashed has handed nothing over.
        self.config.stash[COVERS].update(getattr(node, "workeroutput", {}).get("covers", {}))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        interrupted = session.shouldstop or session.shouldfail or session.exitstatus not in (0, 1)
        if interrupted or not is_full_run(self.config):
            return
        covers, outcomes = self.config.stash[COVERS], self.outcomes
        unproven = requirements.find_unproven(requirements.read_rows(), covers, outcomes, strict=strict())
        self.complaints = list(unproven)
        if self.complaints and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.complaints:
            terminalreporter.section("requirements without proof in this run")
            for line in self.complaints:
                terminalreporter.write_line(line)
