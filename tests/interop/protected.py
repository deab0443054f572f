"""A server of ours that asks for tokens, and an authorization server of others that issues them, both running."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.interop import peers
from tests.ports import free_port

FOLDER = peers.node_folder()
RESOURCE = "/.well-known/oauth-protected-resource/mcp"


@contextmanager
def protected(*, seconds: int = 3600, skew: int = 60, proxy: bool = False) -> Iterator[str]:
    """The address of the server. Tokens live for so many seconds, and for `skew` more where clocks may differ.

    With `proxy`, clients sign in at our server, which is the one client of the other.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with provider(url, seconds=seconds) as issuer:
        server = [sys.executable, str(peers.SCRIPTS / "serve_notes.py"), str(port), issuer, str(skew)]
        with running([*server, *(["proxy"] if proxy else [])], f"http://127.0.0.1:{port}{RESOURCE}"):
            yield url


@contextmanager
def provider(resource: str, *, seconds: int) -> Iterator[str]:
    """The address of an authorization server of others, whose tokens are for a resource."""
    port = free_port()
    issuer = f"http://127.0.0.1:{port}"
    command = [str(peers.needed_node()), str(peers.SCRIPTS / "serve_oidc.mjs"), str(port), resource, str(seconds)]
    with running(command, f"{issuer}/.well-known/openid-configuration", cwd=FOLDER):
        yield issuer


@contextmanager
def running(command: list[str], url: str, **options: Any) -> Iterator[None]:
    """A process, from when `url` answers on."""
    with subprocess.Popen(command, **options) as process:
        try:
            _answers(url)
            yield
        finally:
            process.kill()


def _answers(url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.05)
