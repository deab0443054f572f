"""Both event loops, in this process and in a script."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


Run = Callable[[Coroutine[Any, Any, T]], T]


LOOPS = ["asyncio", "uvloop"]


MAIN = """
import asyncio, os, sys
def run(main):
    if sys.argv[1] == "uvloop":
        import uvloop
        uvloop.run(main())
    else:
        asyncio.run(main())
"""


ECHO = (
    MAIN
    + """
from toolwire.wire.stdio import StdioChannel, claim
claim()
async def main():
    channel = StdioChannel()
    while (message := await channel.read()) is not None:
        channel.write(b"echo " + message)
    await channel.close()
run(main)
"""
)
