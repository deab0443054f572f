"""The command line in this process, against a server object instead of a target."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from toolwire import cli, logs
from toolwire.cli import targets


class Done(NamedTuple):
    status: int
    out: str
    err: str


class Command:
    """Runs `toolwire WORDS`; the target `server` is the object that was given."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def serves(self, server: Any) -> None:
        locate = targets.locate
        self._monkeypatch.setattr(
            targets, "locate", lambda target: targets.Place(server) if target == "server" else locate(target)
        )

    def __call__(self, *words: str) -> Done:
        try:
            status = cli.main(words)
        except SystemExit as left:
            status = int(left.code or 0)
        finally:
            logs.uninstall()
        out, err = self._capsys.readouterr()
        return Done(status, out, err)
