"""A process knows of another process of its machine whether it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from toolwire.wire import process_identity


def test_this_process_lives() -> None:
    assert not process_identity.is_gone(process_identity.own_identity())


@pytest.mark.skipif(os.name != "posix", reason="needs the process numbers of POSIX systems")
def test_a_process_that_ended_is_gone() -> None:
    code = "from toolwire.wire.process_identity import own_identity; print(own_identity())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process_identity.is_gone(ended.stdout.strip())


@pytest.mark.parametrize(
    ("change", "gone"),
    [(lambda machine, pid, started: ("elsewhere", "999999999", started), False)]
    + ([(lambda machine, pid, started: (machine, pid, "1"), True)] if sys.platform == "linux" else []),
)
def test_what_the_parts_of_an_identity_say(change: Callable[..., tuple[str, ...]], gone: bool) -> None:
    parts = change(*process_identity.own_identity().split("/"))
    assert process_identity.is_gone("/".join(parts)) == gone
