"""`view`: a host for tests of MCP Apps, with one tool and its view.

The test plays the view itself, message by message, or the view runs in a real Chromium (`browser=True`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from toolwire.apps.bridge import DisplayMode
from toolwire.apps.host import PATIENCE, Consent, ViewHost, find_view
from toolwire.apps.profiles import HostProfile, HostSettings, ProfileName, Theme, profile_of
from toolwire.client import Client
from toolwire.testing.scripted_views import ScriptedView

if TYPE_CHECKING:
    from toolwire.testing.browser_views import BrowserView


class ViewOptions(TypedDict, total=False):
    """The options of `view`: the surroundings of the view, and the rules of its host."""

    theme: Theme
    """By default "light"."""
    locale: str
    """By default "en-US"."""
    time_zone: str
    """By default "UTC"."""
    width: int
    """The width of the frame in pixels, by default 720."""
    max_height: int
    """The height up to which the frame follows the view, by default 6000."""
    display_mode: DisplayMode
    """By default "inline"."""
    styles: Mapping[str, str]
    """The CSS variables of the host, such as `{"--color-text-primary": "#111"}`, instead of the usual ones."""
    context: Mapping[str, Any]
    """Further members of `hostContext`, such as `{"platform": "mobile"}`."""
    profile: ProfileName | HostProfile | None
    """The host to play: "claude" or "chatgpt"; by default one that follows the specification."""
    consent: Consent
    """Decides about links, downloads, messages, and calls of tools with `destructiveHint`. It gets the request, may be
    `async`, and returns True or False. Without it, everything is allowed."""
    endpoint: str
    """The public address of the server, with which the profile "claude" checks the domain of the view."""
    cancelled: str
    """The reason for which the call is cancelled. The tool is not called then, and the view learns it."""
    partial: Sequence[Mapping[str, Any]]
    """Arguments as they arrive while a model writes them. The view gets each of them before the whole arguments."""
    patience: float
    """The seconds within which the view has to initialize, and to answer when it is closed; by default 5."""


@overload
def view(
    client: Client,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    browser: Literal[False] = False,
    **options: Unpack[ViewOptions],
) -> AbstractAsyncContextManager[ScriptedView]: ...


@overload
def view(
    client: Client,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    browser: Literal[True] | str,
    **options: Unpack[ViewOptions],
) -> AbstractAsyncContextManager[BrowserView]: ...


def view(
    client: Client,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    browser: bool | str = False,
    **options: Unpack[ViewOptions],
) -> AbstractAsyncContextManager[Any]:
    """Call a tool and show its view, as a host does.

    `async with view(client, "show_orders", {"month": "May"}) as v`

    Without `browser`, the test plays the view: `await v.initialize()`, `await v.call_tool("cancel", {…})`. With
    `browser=True`, the view runs in Chromium, in a frame of another origin and under the policy that its `_meta.ui`
    asks for. That needs `pip install playwright`, and a browser: the one that TOOLWIRE_BROWSER names, Chromium or
    Chrome on the PATH, or that of Playwright. `browser=` can also be the path of the program.

    Calls of the view reach its own server, and there the tools that are open to views.
    """
    return _open_view(client, tool, arguments or {}, browser, options)


@asynccontextmanager
async def _open_view(
    client: Client, name: str, arguments: Mapping[str, Any], browser: bool | str, options: ViewOptions
) -> AsyncIterator[Any]:
    cancelled = options.get("cancelled")
    opened = await client.apps.open(name)
    found = await find_view(client, opened)
    result = None if cancelled is not None else await client.call_tool(name, arguments)
    settings = _settings(options)
    host = ViewHost(
        opened,
        found,
        lambda message: shown.deliver(message),
        settings=settings,
        profile=profile_of(options.get("profile")),
        consent=options.get("consent"),
        endpoint=options.get("endpoint"),
        patience=options.get("patience", PATIENCE),
    )
    shown: ScriptedView | BrowserView
    partial = options.get("partial", ())
    if result is None:
        host.show_cancelled(arguments, str(cancelled), partial)
    else:
        host.show(arguments, result, partial)
    try:
        if browser is False:
            shown = ScriptedView(host, result)
            host.start()
            yield shown
            await host.tear_down("the test is over")
        else:
            # Imported here because Playwright may be missing.
            from toolwire.testing.browser_views import BrowserView

            shown = BrowserView(host, result, settings)
            async with shown.opened(None if browser is True else browser):
                yield shown
                await host.tear_down("the test is over")
    finally:
        await host.close()
    if host.failure is not None:
        raise host.failure


def _settings(options: ViewOptions) -> HostSettings:
    given: dict[str, Any] = {name: value for name, value in options.items() if name in HostSettings.__struct_fields__}
    return HostSettings(**given, others=options.get("context", {}))
