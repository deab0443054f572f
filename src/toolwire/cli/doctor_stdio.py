"""How a server behaves as a child process: how fast it answers, what it writes to its output, how it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from toolwire._version import __version__
from toolwire.cli.diagnosis import Diagnosis, bad, good, warning
from toolwire.protocol.errors import Unreachable
from toolwire.protocol.revisions import LATEST_LEGACY
from toolwire.wire.subprocess import ProcessChannel

# Hosts start all their servers at once when they start; a slow one is seen by the user.
FAST_SECONDS: Final = 2.0
_SHOWN: Final = 120
_MOST_LINES: Final = 1_000

_HELLO: Final = {
    "jsonrpc": "2.0",
    "id": "doctor",
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "toolwire-doctor", "version": __version__},
    },
}


async def check(
    command: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: str | None,
    patience: float,
    *,
    inherit_env: bool = False,
) -> AsyncIterator[Diagnosis]:
    """Start the server once and watch it from the first byte to its end.

    It is greeted as the older clients do: a server of 2026-07-28 alone answers that with an error, and an answer is all
    that is needed here.
    """
    begun = time.monotonic()
    try:
        channel = await ProcessChannel.spawn(command, env=env, cwd=cwd, inherit_env=inherit_env)
    except Unreachable as error:
        yield bad("start", str(error), "Check the command and that its program is installed.")
        return
    try:
        answered, stray = await _greet(channel, patience)
        seconds = time.monotonic() - begun
        if not answered:
            await channel.close()
            yield _silent(channel, patience)
            if stray:
                yield _cleanliness(stray)
            return
        yield _speed(seconds)
        yield _cleanliness(stray)
        yield await _ending(channel)
    finally:
        await channel.close()


async def _greet(channel: ProcessChannel, patience: float) -> tuple[bool, list[str]]:
    """Whether an answer came, and the lines before it that are no messages."""
    stray: list[str] = []
    channel.write(msgspec.json.encode(_HELLO))
    try:
        async with asyncio.timeout(patience):
            while len(stray) < _MOST_LINES and (line := await channel.read()) is not None:
                message = _message(line)
                if message is None:
                    stray.append(line[:_SHOWN].decode("utf-8", "replace"))
                elif message.get("id") == _HELLO["id"]:
                    return True, stray
    except TimeoutError:
        pass
    return False, stray


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return message if isinstance(message, dict) and message.get("jsonrpc") == "2.0" else None


def _silent(channel: ProcessChannel, patience: float) -> Diagnosis:
    said = channel.last_said
    last = f"; its last words: {said[:_SHOWN]}" if said else ""
    if channel.returncode is not None and channel.returncode >= 0:
        return bad(
            "start", f"it ended with code {channel.returncode}{last}", "Run the command by hand and read what it says."
        )
    return bad(
        "start", f"no answer in {patience:g} s{last}", "It must answer on standard output as soon as it is asked."
    )


def _speed(seconds: float) -> Diagnosis:
    found = f"the first answer came after {seconds:.2f} s"
    advice = "Import heavy libraries in the tools that use them, and do slow work in the lifespan or when first needed."
    if seconds <= FAST_SECONDS:
        return good("start", found)
    return warning("start", found, advice)


def _cleanliness(stray: list[str]) -> Diagnosis:
    if not stray:
        return good("standard output", "nothing but messages")
    return bad(
        "standard output",
        f"{len(stray)} line{'' if len(stray) == 1 else 's'} that no message is in, the first: {stray[0]!r}",
        "Print and log to standard error, also while modules are imported; `toolwire run FILE` takes care of it.",
    )


async def _ending(channel: ProcessChannel) -> Diagnosis:
    """2026-07-28 basic/transports/stdio: the end of its input is how a server is told to leave."""
    await channel.close()
    status = channel.returncode
    if status is None or status < 0:
        return bad(
            "end",
            "it went on after its input ended and had to be killed",
            "Leave when standard input ends: hosts that die leave such servers behind.",
        )
    return good("end", "it left when its input ended")
