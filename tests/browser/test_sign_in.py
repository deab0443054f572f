"""A person signs in at a server that wants it, in the browser, and comes back to the inspector."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.auth.stand_in import Scene, Stage
from tests.inspector.test_sign_in import speak


class Thread:
    """A protected server and its authorization server, on a loop of their own."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.scene: Scene | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self.ready.wait(timeout=10)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with Stage() as scene:
            scene.server.serve = speak  # type: ignore[method-assign]
            self.scene = scene
            self.ready.set()
            await self._stop.wait()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=10)


@pytest.fixture
def scene(browser: Any) -> Iterator[Scene]:
    thread = Thread()
    assert thread.scene is not None
    yield thread.scene
    thread.end()


def test_a_person_signs_in_and_goes_on(inspect: Callable[..., Any], tab: Callable[..., Any], scene: Scene) -> None:
    opened = tab(inspect("inspect", scene.server.mcp), connected=False)
    page = opened.page
    page.goto(opened.inspected.url)
    dialog = page.locator("dialog.question")
    dialog.get_by_text("The server wants you to sign in").wait_for()
    opened.shot("sign-in")
    with page.context.expect_page() as another:
        dialog.get_by_role("button", name="Sign in").click()
    another.value.get_by_text("Signed in. Go back to the inspector.").wait_for()
    page.locator(".status.connected").wait_for()
    dialog.wait_for(state="hidden")
    assert scene.login.logins[0]["client_id"]
