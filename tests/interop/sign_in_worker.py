"""One of several processes that share a sign-in: `python sign_in_worker.py URL FOLDER`.

It reads a number of seconds from each line of its input, takes that much time to have passed, and writes a digest of
the access token that it has then. After the number, `before` makes it stop for ever once it has the lock, and `after`
once it has written a new token under the lock. It says `holds` when it stops.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolwire.auth import FileStorage, OAuth

url, folder = sys.argv[1:]
passed = 0.0
stops = ""


def stop_for_ever() -> None:
    print("holds", flush=True)
    threading.Event().wait()


class StoppingStorage(FileStorage):
    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        async with super().lock(key):
            if stops == "before":
                stop_for_ever()
            yield

    def save(self, key: str, value: str | None) -> None:
        super().save(key, value)
        if stops == "after":
            stop_for_ever()


async def main() -> None:
    global passed, stops
    auth = OAuth(login=None, storage=StoppingStorage(folder), clock=lambda: time.time() + passed)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        seconds, _, stops = line.strip().partition(" ")
        passed = float(seconds)
        headers = await auth.headers("POST", url)
        print(hashlib.sha256(headers.get("authorization", "").encode()).hexdigest()[:16], flush=True)


asyncio.run(main())
