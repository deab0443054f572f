"""Checks of `toolwire doctor` for a process: speed, standard output, end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from toolwire.cli.diagnosis import HEAD_START, IDENTITY, Diagnosis, bad, good, skipped, warning
from toolwire.protocol import types as t
from toolwire.protocol.errors import Unreachable, counted
from toolwire.protocol.revisions import LATEST_LEGACY, is_modern
from toolwire.wire.subprocess import ProcessChannel

# Hosts start all their servers at once when they start; a slow one is seen by the user.
FAST_SECONDS: Final = 2.0
_SHOWN: Final = 120
_MOST_LINES: Final = 1_000
#: How long hosts wait for a server to leave, and how long it is waited for here.
HOST_SECONDS: Final = 2.0
LEAVING_SECONDS: Final = 5.0
_TOO_LATE: Final = f"Hosts wait about {HOST_SECONDS:g} s and then kill it, and then nothing is cleaned up: be quicker."

_HELLO: Final = {
    "jsonrpc": "2.0",
    "id": "doctor",
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_LEGACY,
        "capabilities": {},
        "clientInfo": IDENTITY,
    },
}


async def check(
    command: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: str | None,
    patience: float,
    *,
    inherit_env: bool = False,
    on_stderr: Callable[[str], None] | None = None,
) -> AsyncIterator[Diagnosis]:
    """Start the server once and watch it from the first byte to its end.

    The first message is the `initialize` of older clients. A server of 2026-07-28 alone answers it with an error, and
    any answer is good enough here.
    """
    begun = time.monotonic()
    try:
        channel = await ProcessChannel.spawn(
            command, env=env, cwd=cwd, inherit_env=inherit_env, on_stderr=on_stderr, grace=LEAVING_SECONDS
        )
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
    """Send `initialize`; return whether it was answered, and stray lines before it."""
    stray: list[str] = []
    channel.write(msgspec.json.encode(_HELLO))
    return await _answer(channel, _HELLO["id"], patience, stray), stray


async def _answer(channel: ProcessChannel, identifier: Any, patience: float, stray: list[str]) -> bool:
    """Wait for an answer. Lines that are no messages are added to `stray`."""
    try:
        async with asyncio.timeout(patience):
            while len(stray) < _MOST_LINES and (line := await channel.read()) is not None:
                message = _message(line)
                if message is None:
                    stray.append(line[:_SHOWN].decode("utf-8", "replace"))
                elif message.get("id") == identifier:
                    return True
    except TimeoutError:
        pass
    return False


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
        f"{counted(len(stray), 'line')} without a message, the first: {stray[0]!r}",
        "Print and log to standard error, also while modules are imported; `toolwire run FILE` takes care of it.",
    )


async def _ending(channel: ProcessChannel) -> Diagnosis:
    """Check that the server ends when its input ends (2026-07-28 basic/transports/stdio)."""
    seconds = await _seconds_to_leave(channel)
    if seconds is None:
        return bad(
            "end",
            "it went on after its input ended and had to be killed",
            "Leave when standard input ends: hosts that die leave such servers behind.",
        )
    if seconds > HOST_SECONDS:
        return warning("end", f"it left {seconds:.1f} s after its input ended", _TOO_LATE)
    return good("end", "it left when its input ended")


async def _seconds_to_leave(channel: ProcessChannel) -> float | None:
    """Close the input of a server and measure how long it takes to end.

    None if it does not end by itself.
    """
    begun = time.monotonic()
    await channel.close()
    seconds = time.monotonic() - begun
    # A server that got a signal may still end with a good status, so the time counts as well.
    ended = channel.returncode is not None and channel.returncode >= 0 and seconds < LEAVING_SECONDS
    return seconds if ended else None


async def leave(
    command: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: str | None,
    patience: float,
    revision: str,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    inherit_env: bool = False,
    on_stderr: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Check what happens when a client leaves during a call."""
    try:
        channel = await ProcessChannel.spawn(
            command, env=env, cwd=cwd, inherit_env=inherit_env, on_stderr=on_stderr, grace=LEAVING_SECONDS
        )
    except Unreachable as error:
        return skipped("leaving", str(error))
    try:
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if is_modern(revision):
            params["_meta"] = {t.PROTOCOL_VERSION_KEY: revision, t.CLIENT_CAPABILITIES_KEY: {}}
        elif (await _greet(channel, patience))[0]:
            channel.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        call = {"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": params}
        channel.write(msgspec.json.encode(call))
        ended = await _answer(channel, "call", HEAD_START, [])
        when = f"{'right after' if ended else 'during'} a call of {tool}"
        seconds = await _seconds_to_leave(channel)
        if seconds is None:
            advice = "Cancel what is under way when standard input ends; a server that is killed cleans nothing up."
            return bad("leaving", f"it stays when its client leaves {when}, and has to be killed", advice)
        if seconds > HOST_SECONDS:
            return warning("leaving", f"it leaves {seconds:.1f} s after a client that leaves {when}", _TOO_LATE)
        return good("leaving", f"it leaves with a client that leaves {when}")
    finally:
        await channel.close()
