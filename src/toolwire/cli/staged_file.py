"""The server of a file on a stage, where the file's next version takes over whenever it changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from toolwire.cli.reloading import LoadFailed, Reloader, where
from toolwire.server.hot_reload import Stage
from toolwire.server.server import Server


class StagedFile:
    """`stage` is run like any server. `report` is called after each load, with what went wrong, if something did."""

    def __init__(self, reloader: Reloader, report: Callable[[LoadFailed | None], None]) -> None:
        self._reloader = reloader
        self._report = report
        loaded = reloader.load()
        self.failed: LoadFailed | None = loaded if isinstance(loaded, LoadFailed) else None
        # A file that is broken from the start has a server too: an empty one, until it is mended.
        self.stage: Stage = Stage(_revealing(loaded if self.failed is None else Server("broken")), beside=self._watch)
        _tell(self.failed, "nothing is served until that is mended")

    async def _watch(self) -> None:
        while True:
            await self._reloader.changed()
            failed = await self._reload()
            _tell(failed, "the last version that worked goes on")
            self._report(failed)

    async def _reload(self) -> LoadFailed | None:
        loaded = self._reloader.load()
        if isinstance(loaded, LoadFailed):
            return loaded
        try:
            changed = await self.stage.replace(_revealing(loaded))
        except Exception as error:
            told = f"the lifespan failed: {type(error).__name__}: {error}"
            return LoadFailed(told, told, *where(error))
        sys.stderr.write(f"toolwire: loaded again, {' and '.join(changed) or 'no list'} changed\n")
        return None


def _revealing(server: Any) -> Any:
    """Errors say what happened: whoever calls a server under development is whoever writes it."""
    server.kernel.failures.debug = True
    return server


def _tell(failed: LoadFailed | None, meanwhile: str) -> None:
    if failed is not None:
        sys.stderr.write(failed.trace if failed.trace.endswith("\n") else f"toolwire: {failed.trace}\n")
        sys.stderr.write(f"toolwire: {meanwhile}\n")
    sys.stderr.flush()
