"""A process of the command: garbage is collected while the command runs, and not while it is loaded or ends."""

from __future__ import annotations

import sys
from argparse import Namespace
from types import ModuleType, SimpleNamespace

import pytest

from toolwire import cli


def test_process_collects_garbage_while_its_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    collector = SimpleNamespace(
        **{name: lambda name=name: steps.append(name) for name in ("disable", "enable", "freeze")}
    )

    def run(arguments: Namespace) -> int:
        steps.append(f"run {arguments.word}")
        return 3

    command = ModuleType("toolwire.cli.example")
    command.__dict__.update(add_arguments=lambda parser: parser.add_argument("word"), main=run)
    monkeypatch.setitem(sys.modules, command.__name__, command)
    monkeypatch.setitem(cli.COMMANDS, "example", ("example", "purpose"))
    monkeypatch.setattr(cli, "gc", collector)
    monkeypatch.setattr(sys, "argv", ["toolwire", "example", "now"])
    assert cli.start() == 3
    assert steps == ["disable", "freeze", "enable", "run now", "freeze"]


def test_program_that_runs_a_command_keeps_its_own_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "gc", None)
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert cli.main(["unknown"]) == 2
