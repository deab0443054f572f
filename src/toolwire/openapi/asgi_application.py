"""Use an ASGI application of this process as an API, without a socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final

from toolwire.base_errors import ServerError, ToolwireError
from toolwire.http1.asgi_pool import Application, AsgiPool
from toolwire.http1.pool import Pool
from toolwire.loops import finish
from toolwire.openapi.description.documents import Limits
from toolwire.openapi.model import DescriptionError

#: The address of an application that has none. It is the header `Host` of requests.
ADDRESS: Final = "http://localhost"
DESCRIPTION_PATH: Final = "/openapi.json"


def read_application(application: Application, path: str, address: str, limits: Limits) -> bytes:
    """Return the description that an application serves at a path.

    Raises `DescriptionError` where it serves none.
    """

    async def read() -> bytes:
        async with asyncio.timeout(limits.seconds), AsgiPool(application) as pool:
            response = await pool.send("GET", address + path, {"accept": "application/json"}, None)
            async with response:
                if response.status != 200:
                    raise DescriptionError(
                        f"the application answers {response.status} at {path}: name the path of its description"
                    )
                return await response.read(limits.bytes)

    try:
        return finish(read())
    except TimeoutError:
        raise DescriptionError(f"the application did not answer at {path} in {limits.seconds:g} s") from None
    except DescriptionError:
        raise
    except ToolwireError as error:
        raise DescriptionError(f"the description of the application at {path} cannot be read: {error}") from None


@asynccontextmanager
async def running(application: Application, *, lifespan: bool) -> AsyncIterator[Pool]:
    """Run the lifespan of an application, and carry requests to it."""
    if not lifespan:
        async with AsgiPool(application) as pool:
            yield pool
        return
    async with _Lifespan(application).held() as state, AsgiPool(application, state=state) as pool:
        yield pool


class _Lifespan:
    """The lifespan protocol of ASGI, as a server speaks it."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._state: dict[str, Any] = {}
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._started = asyncio.Event()
        self._ended = asyncio.Event()
        self._failure: str | None = None
        self._is_known = True

    @asynccontextmanager
    async def held(self) -> AsyncIterator[Mapping[str, Any]]:
        """Run the lifespan of the application.

        Raises `ServerError` where it does not start.
        """
        task = asyncio.get_running_loop().create_task(self._run())
        self._events.put_nowait({"type": "lifespan.startup"})
        try:
            await self._started.wait()
            if self._failure is not None:
                raise ServerError(f"the application did not start: {self._failure}")
            yield self._state
            if self._is_known:
                self._events.put_nowait({"type": "lifespan.shutdown"})
                await self._ended.wait()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        try:
            await self._application(scope, self._events.get, self._send)
        except Exception:
            # ASGI, lifespan protocol: an application that raises here does without.
            self._is_known = self._started.is_set()
        finally:
            self._started.set()
            self._ended.set()

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "lifespan.startup.failed":
            self._failure = str(message.get("message", ""))[:200] or "it gives no reason"
        if message["type"].startswith("lifespan.startup."):
            self._started.set()
        else:
            self._ended.set()


def is_application(source: Any) -> bool:
    """Return whether something is an ASGI application, and no description."""
    return callable(source) and not isinstance(source, str | bytes | os.PathLike | Mapping)
