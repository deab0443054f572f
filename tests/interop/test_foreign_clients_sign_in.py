"""Clients that we did not write sign in to our server, at an authorization server that we did not write either.

The whole way each time: 401, discovery, registration, code, token, call; then a call that needs more scopes, and one
after the token has ended. Then all of it again through our proxy, where the authorization server knows one client only.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers
from tests.interop.protected import protected

#: How long a token lives, and how long a client waits until its own has ended.
LIFETIME, LONGER = 4, "5"

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with protected(seconds=LIFETIME, skew=0) as url:
        yield url


@pytest.fixture(scope="module")
def proxied_url() -> Iterator[str]:
    with protected(seconds=LIFETIME, skew=0, proxy=True) as url:
        yield url


def play(command: list[str], cwd: Path | None, url: str, **environment: str) -> dict[str, Any]:
    """Let a client play its part; what it reports."""
    played = subprocess.run(
        [*command, url, LONGER],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert played.returncode == 0, played.stderr
    report: dict[str, Any] = json.loads(played.stdout)
    return report


def check(report: dict[str, Any], *, refreshes: bool = True) -> None:
    # What needs a scope is listed; what is for others is not.
    assert report["tools"] == ["whoami", "write"]
    assert report["whoami"] == "ada may notes:read"
    visits = [set(scopes) - {"offline_access"} for scopes in report["visits"]]
    assert report["write"] == "wrote this"
    # They ask for little at first, and for all that is needed at once when that did not do.
    assert visits == [{"notes:read"}, {"notes:read", "notes:write"}]
    # The token has ended meanwhile; the user is asked again only by a client that did not ask for a refresh token.
    assert report["later"].startswith("ada may notes:read")
    assert report["visits_later"] == len(visits) + (not refreshes)


def play_python(url: str, mode: str) -> dict[str, Any]:
    return play(
        [str(peers.needed("mcp-2.3.0").python), str(peers.SCRIPTS / "drive_oauth_mcp2.py")], None, url, DRIVE_MODE=mode
    )


def play_node(url: str, package: str, mode: str) -> dict[str, Any]:
    command = [str(peers.needed_node()), str(peers.SCRIPTS / "drive_oauth_node.mjs")]
    return play(command, peers.node_folder(), url, DRIVE_PACKAGE=package, DRIVE_MODE=mode)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_python(server_url: str, mode: str) -> None:
    check(play_python(server_url, mode))


# Release 1, the package "sdk", knows one era only.
@pytest.mark.parametrize(("package", "mode"), [("client", "auto"), ("client", "legacy"), ("sdk", "legacy")])
def test_typescript(server_url: str, package: str, mode: str) -> None:
    check(play_node(server_url, package, mode), refreshes=package == "client")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_python_through_the_proxy(proxied_url: str, mode: str) -> None:
    check(play_python(proxied_url, mode))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_typescript_through_the_proxy(proxied_url: str, mode: str) -> None:
    check(play_node(proxied_url, "client", mode))
