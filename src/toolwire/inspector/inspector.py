"""The inspected server: its connection, lists, announcements, and the page's calls."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from toolwire.client import Change, Client, Subscription
from toolwire.client.http_target import HttpTarget
from toolwire.client.targets import TargetLike
from toolwire.http1.response import HttpResponse
from toolwire.inspector.calls import PageCalls
from toolwire.inspector.catalogue import KINDS, ServerCatalogue
from toolwire.inspector.credentials import ConnectionCredentials, OAuthClient
from toolwire.inspector.events import Events
from toolwire.inspector.excerpt import Excerpt
from toolwire.inspector.fleet_view import FleetView
from toolwire.inspector.input_requests import InputRequests
from toolwire.inspector.reproduce import as_entry
from toolwire.inspector.saved_requests import SavedRequests
from toolwire.inspector.server_output import ServerOutput
from toolwire.inspector.session_export import export_session
from toolwire.inspector.sign_in_steps import SignInSteps
from toolwire.inspector.skills import PageSkills
from toolwire.inspector.views import PageViews
from toolwire.inspector.views.open_views import shown_profiles
from toolwire.inspector.wire_log import WireEntry, WireLog
from toolwire.protocol import types as t
from toolwire.protocol.apps import APP_MIME_TYPE, UI_EXTENSION
from toolwire.protocol.errors import ToolwireError, Unauthorized
from toolwire.protocol.revisions import REVISIONS
from toolwire.stores import Stores
from toolwire.util.numbers import is_number
from toolwire.wire.tapped_channel import Direction

if TYPE_CHECKING:
    from toolwire.inspector.gateway_view import GatewayView

MAX_NOTES: Final = 500
MAX_SUBSCRIPTIONS: Final = 200
#: Seconds for each request apart from calls, which wait until they are cancelled.
DEFAULT_SECONDS: Final = 60.0
MAX_SECONDS: Final = 3600.0
# The number of messages that a page gets when it opens: the newest ones.
MAX_FIRST: Final = 2_000

# The inspector shows views.
_SHOWN: Final = {UI_EXTENSION: {"mimeTypes": [APP_MIME_TYPE]}}
# The lists that a change concerns; templates (1.10.7) and skills have no announcement of their own.
_LISTS: Final = {"tools": ("tools",), "prompts": ("prompts",), "resources": ("resources", "templates", "skills")}


class Inspector:
    """A server, with everything that a page can see of it and do with it.

    `label` names the target for people. `url` is the address of its endpoint and `command` what started it, where there
    is one, for those who want to send a message by hand. `callback` is where a browser comes back to after signing in,
    for servers that want that. `saved` keeps the requests that the user saves; by default they end with the inspector.
    `stores` returns the stores of the server, where they are known: the page then shows the tasks of its fleet.
    `gateway` returns the server object, where it is in this process: the page then shows the servers behind a gateway.
    `options` go to `Client`. `on_stderr` gets each line that a started server writes to standard error; the page shows
    the lines in any case.
    """

    def __init__(
        self,
        target: TargetLike,
        *,
        label: str,
        url: str | None = None,
        command: list[str] | None = None,
        revision: str | None = None,
        callback: str | None = None,
        saved: SavedRequests | None = None,
        stores: Callable[[], Stores] | None = None,
        gateway: Callable[[], object] | None = None,
        options: Mapping[str, Any] | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> None:
        self.label = label
        self.url = url
        self.command = command
        self.revision = revision
        self.events: Events = Events()
        self.log: WireLog = WireLog(self._overheard)
        self.steps: SignInSteps = SignInSteps(self.events)
        self.input_requests: InputRequests = InputRequests(self.events)
        self.saved: SavedRequests = SavedRequests() if saved is None else saved
        self.calls: PageCalls = PageCalls(self.events)
        self.views: PageViews = PageViews(self)
        self.catalogue: ServerCatalogue = ServerCatalogue()
        self._fleet = None if stores is None else FleetView(stores, self._server_name)
        self.output: ServerOutput = ServerOutput(self.events, on_stderr)
        self._backs = None if gateway is None else _gateway_view(gateway, self.events, self.log, self.output)
        self.skills: PageSkills = PageSkills()
        self.roots: list[str] = []
        self.notes: deque[dict[str, Any]] = deque(maxlen=MAX_NOTES)
        self.reload: dict[str, Any] | None = None
        self._target = target
        self._options = dict(options or {})
        self.credentials: ConnectionCredentials = ConnectionCredentials(
            self._options.pop("headers", None),
            self._options.pop("auth", None),
            None if callback is None else partial(self._signing_in, callback),
        )
        self.log.over_http = self.is_at_url
        self._state = "closed"
        self._problem: str | None = None
        self._refused = False
        self._client = self._make_client()
        self._lock = asyncio.Lock()
        self._attempt: asyncio.Task[None] | None = None
        self._watching: set[asyncio.Task[None]] = set()
        self._subscriptions: dict[str, asyncio.Task[None]] = {}

    # --- the connection ---

    @property
    def client(self) -> Client:
        """The connected client; `ToolwireError` when the inspector is not connected."""
        if self._state != "connected":
            raise ToolwireError(self._problem or "The inspector is not connected to the server")
        return self._client

    def _make_client(self) -> Client:
        target = self._target
        if self.is_at_url:
            credentials = self.credentials
            # The client that is closed later still sends these, whatever the user gives for the next one.
            responded = partial(self._responded, tuple(credentials.names))
            target = HttpTarget(str(target), headers=credentials.headers, auth=credentials.auth, on_response=responded)
        return Client(
            target,
            elicit=self.input_requests.elicitation,
            sample=self.input_requests.sampling,
            roots=lambda: self.roots,
            on_log=self._logged,
            on_message=self._passed,
            on_stderr=self.output.add,
            revision=self.revision,
            name="toolwire-inspector",
            title="Toolwire inspector",
            **{**self._options, "extensions": {**_SHOWN, **self._options.get("extensions", {})}},
        )

    def _passed(self, direction: Direction, data: bytes) -> None:
        self.log.record(direction, data)
        if direction == "→":
            self.calls.sent(data)

    def configure(self, asked: Mapping[str, Any]) -> None:
        """Take what the page wants to connect with: `timeout`, and what `ConnectionCredentials.change` takes."""
        timeout = _seconds(asked["timeout"]) if "timeout" in asked else None
        if asked.keys() & {"token", "headers", "client"}:
            if not self.is_at_url:
                raise ValueError("The server is not reached by URL, so no token or header can go along")
            self.credentials.change(asked)
        if timeout is not None:
            self._options["timeout"] = timeout

    async def connect(self, revision: str | None = None) -> None:
        """Connect anew, on one revision or (None) the newest that both sides know."""
        if revision is not None and revision not in REVISIONS:
            raise ToolwireError(f"There is no revision {revision[:50]!r}")
        self._give_up()
        attempt = self._attempt = asyncio.get_running_loop().create_task(self._connect(revision))
        await asyncio.wait({attempt})
        if not attempt.cancelled():
            attempt.result()

    def _give_up(self) -> None:
        """Cancel the attempt to connect that is under way, because the user wants another one."""
        if self._attempt is not None:
            self._attempt.cancel()

    async def _connect(self, revision: str | None) -> None:
        async with self._lock:
            await self._let_go()
            self.revision = revision
            self.steps.begin()
            self._client = self._make_client()
            self._become("connecting")
            try:
                await self._client.connect()
            except Unauthorized as error:
                self.steps.ended(error.message)
                self._become("failed", error.message, refused=True)
                return
            except ToolwireError as error:
                self._become("failed", str(error))
                return
            except OSError as error:
                self._become("failed", f"{self.label} could not be started: {error.strerror or error}")
                return
            self.steps.ended(None)
            for kind in KINDS:
                await self.catalogue.refresh(self._client, kind)
            self._become("connected")
            self.events.tell("catalogue", catalogue=self.catalogue.describe())
            self._watch_lists()

    async def close(self) -> None:
        self._give_up()
        async with self._lock:
            await self._let_go()
            self._become("closed")

    async def _let_go(self) -> None:
        self.views.close_all()
        await self.calls.cancel_all()
        watching = [*self._watching, *self._subscriptions.values()]
        self._subscriptions.clear()
        for task in watching:
            task.cancel()
        if watching:
            await asyncio.wait(watching)
        await self._client.close()
        self.catalogue = ServerCatalogue()
        self.skills = PageSkills()

    def _become(self, state: str, problem: str | None = None, *, refused: bool = False) -> None:
        self._state, self._problem, self._refused = state, problem, refused
        self.events.tell("connection", connection=self.connection())

    @property
    def fleet(self) -> FleetView:
        """The tasks of the fleet; `ToolwireError` when the stores of the server are not known."""
        if self._fleet is None:
            raise ToolwireError("The store of this server is not known: give its address with --stores")
        return self._fleet

    def _server_name(self) -> str:
        server = self.client.server
        return "" if server is None else server.name

    # --- the state for the page ---

    @property
    def is_at_url(self) -> bool:
        """Return whether the server is reached by URL, so that credentials can go along."""
        return isinstance(self._target, str) and self._target.startswith(("http://", "https://"))

    def connection(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "state": self._state,
            "problem": self._problem,
            "label": self.label,
            "url": self.url,
            "command": self.command,
            "wanted": self.revision,
            "revisions": list(REVISIONS),
            "roots": self.roots,
            "subscriptions": sorted(self._subscriptions),
            "refused": self._refused,
            "hasFleet": self._fleet is not None,
            "credentials": self.credentials.describe() if self.is_at_url else None,
            "timeout": self._options.get("timeout", DEFAULT_SECONDS),
        }
        if self._state == "connected" and self._client.connected:
            server = self._client.server
            shown["revision"] = self._client.revision
            shown["server"] = None if server is None else Excerpt(server.to_dict()).value
            shown["capabilities"] = Excerpt(self._client.capabilities).value
            shown["instructions"] = (self._client.instructions or "")[:20_000]
        return shown

    def backs(self) -> list[dict[str, Any]] | None:
        """Return the servers behind the gateway; None if there is none in this process."""
        return None if self._backs is None else self._backs.describe()

    def configuration(self) -> dict[str, Any] | None:
        """Return the state of the file of the gateway; None for one without a file."""
        return None if self._backs is None else self._backs.configuration()

    def snapshot(self) -> dict[str, Any]:
        """Return all that a page needs when it opens, or after it missed events."""
        return {
            "connection": self.connection(),
            "catalogue": self.catalogue.describe(),
            "calls": self.calls.describe(),
            "questions": self.input_requests.describe(),
            "notes": list(self.notes),
            "output": self.output.list_lines() if self.command is not None or self.backs() is not None else None,
            "reload": self.reload,
            "signIn": self.steps.describe(),
            "backs": self.backs(),
            "configuration": self.configuration(),
            "profiles": shown_profiles(),
            "messages": [entry.summary() for entry in islice(self.log, max(0, len(self.log) - MAX_FIRST), None)],
        }

    async def export(self) -> bytes:
        """Write the session as a file, without secrets."""
        state = {"connection": self.connection(), "notes": list(self.notes), "signIn": self.steps.describe()}
        calls, messages = self.calls.all(), list(self.log)
        # In a thread: tens of megabytes take a second, and the server may be waiting for an answer.
        return await asyncio.to_thread(export_session, state, calls, messages, self.credentials.secrets)

    def entry(self) -> str:
        """Write the server as an entry for the configuration of a client."""
        server = self._client.server if self._state == "connected" and self._client.connected else None
        return as_entry(
            self.label if server is None else server.name,
            url=self.url,
            command=self.command,
            headers=self.credentials.names,
            env=self._options.get("env"),
            cwd=self._options.get("cwd"),
        )

    # --- signing in ---

    def _signing_in(self, callback: str, client: OAuthClient) -> Any:
        # Imported here because most servers need no sign-in.
        from toolwire.auth import OAuth

        return OAuth(
            login=self._sign_in,
            redirect_uri=callback,
            client_name="Toolwire inspector",
            client_id=client.client_id,
            client_secret=client.client_secret,
            scopes=client.scopes,
            on_fetch=self.steps.fetched,
        )

    async def _sign_in(self, url: str) -> str:
        self.steps.sent_to_sign_in(url)
        address = await self.input_requests.sign_in(url)
        self.steps.came_back(address)
        return address

    def _responded(
        self, given: Collection[str], method: str, sent: Mapping[str, str], body: bytes | None, response: HttpResponse
    ) -> None:
        self.log.responded(given, method, sent, body, response)
        if response.status in (401, 403) and self.credentials.signs_in:
            self.steps.challenged(method, response.url, response.status, response.headers)

    # --- messages and notes ---

    def _overheard(self, entry: WireEntry) -> None:
        self.events.tell("message", message=entry.summary())

    def _logged(self, params: t.LoggingMessageNotificationParams) -> None:
        members = Excerpt(params.to_dict()).value
        self.note("log", level=members.get("level"), logger=members.get("logger"), data=members.get("data"))

    def note(self, kind: str, **members: Any) -> None:
        """Show something that people should read: a log message, a change, a failure."""
        note = {"kind": kind, "at": time.time(), **members}
        self.notes.append(note)
        self.events.tell("note", note=note)

    def reloaded(self, error: dict[str, Any] | None) -> None:
        """Notify the pages that the server's file was loaded again, or failed to load.

        `error` says why and where that failed.
        """
        self.reload = {"at": time.time(), "error": error}
        self.events.tell("reload", reload=self.reload)
        self.events.tell("backs", backs=self.backs(), configuration=self.configuration())

    # --- changes at the server ---

    def _watch_lists(self) -> None:
        capabilities = self._client.capabilities
        announced = {kind: t.has_capability(capabilities, f"{kind}.listChanged") for kind in _LISTS}
        if any(announced.values()):
            changes = self._client.listen(
                tools=announced["tools"], prompts=announced["prompts"], resources_list=announced["resources"]
            )
            self._start(self._follow(changes, self._list_changed))

    async def _follow(self, changes: Subscription, act: Callable[[Change], Awaitable[None]]) -> None:
        try:
            async for change in changes:
                await act(change)
        except ToolwireError as error:
            self.note("problem", text=f"The server tells of no more changes: {error}")
        finally:
            await changes.close()

    async def _list_changed(self, change: Change) -> None:
        for kind in _LISTS.get(change.kind, ()):
            await self.catalogue.refresh(self._client, kind)
        self.note("changed", family=change.kind)
        self.events.tell("catalogue", catalogue=self.catalogue.describe())

    async def _updated(self, change: Change) -> None:
        self.note("updated", uri=change.uri)

    async def subscribe(self, uri: str, on: bool) -> None:
        """Begin or end listening to updates of a resource."""
        task = self._subscriptions.pop(uri, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        if on:
            if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
                raise ToolwireError(f"{MAX_SUBSCRIPTIONS} resources are watched already")
            changes = self.client.listen(resources=[uri])
            await changes.__aenter__()
            self._subscriptions[uri] = self._start(self._follow(changes, self._updated))
        self.events.tell("connection", connection=self.connection())

    async def set_roots(self, roots: list[str]) -> None:
        self.roots = roots
        await self.client.set_roots(lambda: self.roots)
        self.events.tell("connection", connection=self.connection())

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return task


def _gateway_view(gateway: Callable[[], object], events: Events, log: WireLog, output: ServerOutput) -> GatewayView:
    # Imported here because few servers that are inspected are gateways.
    from toolwire.inspector.gateway_view import GatewayView

    return GatewayView(gateway, events, log, output)


def _seconds(value: Any) -> float:
    if not is_number(value) or not 0 < value <= MAX_SECONDS:
        raise ValueError(f"A timeout is a number of seconds, at most {MAX_SECONDS:g}")
    return float(value)
