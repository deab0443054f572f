"""The inspector over HTTP: the page's files, its operations, and its events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import msgspec

from toolwire.client import Client
from toolwire.http.body import read_body
from toolwire.http.responses import HttpRefusal, respond
from toolwire.http1.asgi_types import HeaderList, Receive, Scope, SendMessage
from toolwire.inspector.calls import PageCall
from toolwire.inspector.excerpt import Excerpt
from toolwire.inspector.input_requests import BadAnswer
from toolwire.inspector.inspector import Inspector
from toolwire.inspector.reproduce import as_command
from toolwire.inspector.security import AccessCheck, page_headers
from toolwire.inspector.views.open_views import has_view
from toolwire.inspector.views.settings import ViewSettings
from toolwire.inspector.wire_log import WireLog
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolwireError
from toolwire.util.json_pointer import MISSING, at_pointer

#: The path that a browser comes back to after signing in at the inspected server.
CALLBACK: Final = "/callback"
MAX_BODY: Final = 16 * 1024 * 1024
BODY_SECONDS: Final = 30.0
KEEP_ALIVE_SECONDS: Final = 15.0
MAX_SHOWN: Final = 1024 * 1024

_PAGE: Final = Path(__file__).parent / "page"
_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_JSON: Final[HeaderList] = ((b"content-type", b"application/json"),)
_LINES: Final[HeaderList] = ((b"content-type", b"application/x-ndjson"), (b"x-accel-buffering", b"no"))
_PLAIN: Final[HeaderList] = ((b"content-type", b"text/plain; charset=utf-8"),)

Asked: TypeAlias = Mapping[str, Any]
Operation: TypeAlias = Callable[[Asked], Awaitable[Any]]

_encode = msgspec.json.Encoder(enc_hook=str).encode


class InspectorApp:
    """An ASGI application. Every operation needs its `token`, which is random unless given."""

    def __init__(self, inspector: Inspector, *, token: str | None = None) -> None:
        self.inspector = inspector
        self._access = AccessCheck(token)
        self._starting: asyncio.Task[None] | None = None
        self._headers: HeaderList = page_headers(None)
        self._operations: dict[str, Operation] = {
            "state": self._state,
            "connect": self._connect,
            "definition": self._definition,
            "call": self._call,
            "again": self._again,
            "arguments": self._arguments,
            "cancel": self._cancel,
            "result": self._result,
            "complete": self._complete,
            "answer": self._answer,
            "subscribe": self._subscribe,
            "level": self._level,
            "roots": self._roots,
            "message": self._message,
            "command": self._command,
            "forget": self._forget,
            "entry": self._entry,
            "saved": self._saved,
            "save": self._save,
            "unsave": self._unsave,
            "tasks": self._tasks,
            "task": self._task,
            "cancelTask": self._cancel_task,
            "sendAgain": self._send_again,
            "skill": self._skill,
            "skillFile": self._skill_file,
            "viewMessages": self._view_messages,
            "viewSettings": self._view_settings,
            "viewReport": self._view_report,
            "viewMessage": self._view_message,
            "closeView": self._close_view,
        }

    def show_views(self, port: int) -> None:
        """Show views, whose pages are served on this port."""
        self.inspector.views.pages.port = port
        self._headers = page_headers(self.inspector.views.pages.origin)

    @property
    def token(self) -> str:
        return self._access.token

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: SendMessage) -> None:
        await receive()
        # Not awaited: the page opens while the server starts, and shows how that goes.
        self._starting = asyncio.get_running_loop().create_task(self.inspector.connect(self.inspector.revision))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._starting.cancel()
        await asyncio.wait({self._starting})
        await self.inspector.close()
        await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None:
        self.inspector.events.end()

    def give_up(self) -> None:
        """Do nothing: the page has no calls that it could come back for."""

    # --- one request ---

    async def _http(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            local, remote = scope.get("server"), scope.get("client")
            self._access.check_source(headers, local and local[0], remote and remote[0])
            path, method = scope["path"], scope["method"]
            if path == CALLBACK and method == "GET":
                await self._came_back(headers["host"], scope.get("query_string", b"").decode("latin-1"), send)
                return
            if not path.startswith("/api/"):
                await self._file(path, method, send)
                return
            self._access.check_token(headers)
            if path == "/api/events" and method == "GET":
                query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
                await self._events(query.get("page", [""])[0], receive, send)
            elif path == "/api/part" and method == "GET":
                await self._part(parse_qs(scope.get("query_string", b"").decode("latin-1")), send)
            elif path == "/api/export" and method == "GET":
                await respond(send, 200, await self.inspector.export(), (*_JSON, *self._headers))
            else:
                await self._operate(path.removeprefix("/api/"), method, headers, receive, send)
        except HttpRefusal as refused:
            await respond(send, refused.status, refused.body, (*refused.type, *refused.headers, *self._headers))

    async def _file(self, path: str, method: str, send: SendMessage) -> None:
        if method not in ("GET", "HEAD"):
            raise HttpRefusal(405, "Send a GET", ((b"allow", b"GET, HEAD"),))
        # The name is looked up among the files of the page, so no path leads to any other file.
        files = {file.name: file for file in _PAGE.iterdir() if file.suffix in _TYPES}
        file = files.get("index.html" if path == "/" else path.removeprefix("/"))
        if file is None:
            raise HttpRefusal(404, "There is no such page")
        await respond(send, 200, file.read_bytes(), ((b"content-type", _TYPES[file.suffix]), *self._headers))

    async def _came_back(self, host: str, query: str, send: SendMessage) -> None:
        """Process the answer of an authorization server, which a browser brings.

        Its `state` has to be the one we sent.
        """
        taken = self.inspector.input_requests.signed_in(f"http://{host}{CALLBACK}?{query}")
        text = "Signed in. Go back to the inspector." if taken else "This sign-in is not open any more."
        await respond(send, 200 if taken else 404, text.encode(), (*_PLAIN, *self._headers))

    async def _operate(
        self, name: str, method: str, headers: Mapping[str, str], receive: Receive, send: SendMessage
    ) -> None:
        operation = self._operations.get(name)
        if name == "openView":
            # The origin of this page, which alone may show the frame and speak with it. Its host is checked above.
            operation = partial(self._open_view, f"http://{headers['host']}")
        if operation is None:
            raise HttpRefusal(404, "There is no such operation")
        if method != "POST" or headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise HttpRefusal(415, "Send a POST with application/json")
        body = await read_body(headers, receive, MAX_BODY, BODY_SECONDS)
        try:
            asked = msgspec.json.decode(body, type=dict[str, Any])
            answer, status = await operation(asked), 200
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, KeyError, TypeError):
            answer, status = {"error": "That is not what this operation takes"}, 400
        except (ToolwireError, BadAnswer, LookupError, ValueError) as error:
            answer, status = {"error": str(error)}, 422
        await respond(send, status, _encode(answer), (*_JSON, *self._headers))

    async def _events(self, page: str, receive: Receive, send: SendMessage) -> None:
        """Send a snapshot, then every event as a JSON line, until the page closes."""
        events = self.inspector.events
        reader = events.open(page)
        leaving = asyncio.ensure_future(_gone(receive))
        taking: asyncio.Future[bytes | None] | None = None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*_LINES, *self._headers]})
            first = _encode({"type": "snapshot", **self.inspector.snapshot()}) + b"\n"
            await send({"type": "http.response.body", "body": first, "more_body": True})
            while True:
                taking = taking or asyncio.ensure_future(reader.read())
                first_of: set[asyncio.Future[Any]] = {taking, leaving}
                await asyncio.wait(first_of, timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    return
                lines = taking.result() if taking.done() else b"\n"
                if lines is None:
                    await send({"type": "http.response.body", "body": b""})
                    return
                if taking.done():
                    taking = None
                await send({"type": "http.response.body", "body": lines, "more_body": True})
        finally:
            events.close(reader)
            self.inspector.views.watch_page(page)
            for waiting in (leaving, taking):
                if waiting is not None:
                    waiting.cancel()

    async def _part(self, query: Mapping[str, list[str]], send: SendMessage) -> None:
        """Send a message, or a part of a result, that was cut."""
        body: bytes | None = None
        if "message" in query:
            number = query["message"][0]
            entry = self.inspector.log.find(int(number)) if number.isdecimal() else None
            body = None if entry is None else entry.text
        elif "call" in query:
            call = self.inspector.calls.find(query["call"][0])
            if call is not None and call.result is not None:
                part = at_pointer(msgspec.json.decode(call.result), query.get("pointer", [""])[0])
                if part is not MISSING:
                    body = part.encode("utf-8", "replace") if isinstance(part, str) else _encode(part)
        if body is None:
            raise HttpRefusal(404, "It is no longer kept")
        await respond(send, 200, body, (*_PLAIN, *self._headers))

    # --- operations ---

    @property
    def _client(self) -> Client:
        return self.inspector.client

    async def _state(self, asked: Asked) -> Any:
        return self.inspector.snapshot()

    async def _connect(self, asked: Asked) -> Any:
        """Connect anew, with a revision, credentials or a timeout that the page changed."""
        self.inspector.configure(asked)
        await self.inspector.connect(asked.get("revision", self.inspector.revision))
        return self.inspector.snapshot()

    async def _definition(self, asked: Asked) -> Any:
        found = self.inspector.catalogue.find(str(asked["kind"]), str(asked["key"]))
        if found is None:
            raise LookupError("The server does not list it any more")
        excerpt = Excerpt(found)
        view = asked["kind"] == "tools" and self.inspector.views.pages.port is not None and has_view(found)
        return {"definition": excerpt.value, "cut": excerpt.cut, "size": len(_encode(found)), "view": view}

    async def _call(self, asked: Asked) -> Any:
        extension = asked.get("extension")
        return self._started(str(asked["method"]), dict(asked["params"]), None if extension is None else str(extension))

    async def _again(self, asked: Asked) -> Any:
        """Make a call once more, with the parameters that were sent."""
        call = self._find_call(asked)
        return self._started(call.method, msgspec.json.decode(call.params), call.extension)

    async def _arguments(self, asked: Asked) -> Any:
        """Return the parameters of a call; None when they are too large for a form."""
        call = self._find_call(asked)
        return {"params": msgspec.json.decode(call.params) if len(call.params) <= MAX_SHOWN else None}

    def _find_call(self, asked: Asked) -> PageCall:
        call = self.inspector.calls.find(str(asked["call"]))
        if call is None:
            raise LookupError("The call is no longer kept")
        return call

    def _started(self, method: str, params: dict[str, Any], extension: str | None = None) -> Any:
        tool = self.inspector.catalogue.find("tools", str(params["name"])) if method == "tools/call" else None
        return {"call": self.inspector.calls.start(self._client, method, params, tool or {}, extension).describe()}

    async def _cancel(self, asked: Asked) -> Any:
        return {"cancelled": self.inspector.calls.cancel(str(asked["call"]))}

    async def _result(self, asked: Asked) -> Any:
        call = self.inspector.calls.find(str(asked["call"]))
        if call is None or call.result is None:
            raise LookupError("The result is no longer kept")
        excerpt = Excerpt(msgspec.json.decode(call.result))
        return {"result": excerpt.value, "cut": excerpt.cut}

    async def _complete(self, asked: Asked) -> Any:
        reference: Any = (
            t.PromptReference(name=str(asked["prompt"]))
            if "prompt" in asked
            else t.ResourceTemplateReference(uri=str(asked["template"]))
        )
        context = {str(name): str(value) for name, value in dict(asked.get("context") or {}).items()}
        found = await self._client.complete(reference, (str(asked["argument"]), str(asked["value"])), context or None)
        return {"values": [value[:500] for value in found.values[:100]]}

    async def _answer(self, asked: Asked) -> Any:
        return {"taken": self.inspector.input_requests.answer(str(asked["question"]), dict(asked["answer"]))}

    async def _subscribe(self, asked: Asked) -> Any:
        await self.inspector.subscribe(str(asked["uri"]), asked.get("on") is True)
        return {}

    async def _level(self, asked: Asked) -> Any:
        await self._client.set_level(asked["level"])
        return {}

    async def _roots(self, asked: Asked) -> Any:
        await self.inspector.set_roots([str(root) for root in asked["roots"]][:100])
        return {}

    async def _message(self, asked: Asked) -> Any:
        return self._shown_message(self.inspector.log, asked)

    def _shown_message(self, log: WireLog, asked: Asked) -> Any:
        entry = log.find(int(asked["number"]))
        if entry is None:
            raise LookupError("The message is no longer kept")
        text = entry.text[:MAX_SHOWN].decode("utf-8", "replace")
        return {**entry.summary(), "text": text, "cut": len(entry.text) > MAX_SHOWN, "http": log.exchange_of(entry)}

    async def _command(self, asked: Asked) -> Any:
        entry = self.inspector.log.find(int(asked["number"]))
        if entry is None:
            raise LookupError("The message is no longer kept")
        inspector = self.inspector
        revision = inspector.connection().get("revision")
        return {
            "text": as_command(
                entry.text,
                revision=revision,
                url=inspector.url,
                command=inspector.command,
                headers=inspector.credentials.names,
            )
        }

    async def _forget(self, asked: Asked) -> Any:
        self.inspector.log.forget()
        return {}

    async def _skill(self, asked: Asked) -> Any:
        """Load a skill and verify it, because the user pressed the button."""
        dynamic = asked.get("dynamic") is True
        return await self.inspector.skills.load(self._client, str(asked["uri"]), dynamic=dynamic)

    async def _skill_file(self, asked: Asked) -> Any:
        return await self.inspector.skills.read(str(asked["uri"]), str(asked["path"]))

    async def _open_view(self, host: str, asked: Asked) -> Any:
        """Open the view of a call, in the page whose origin is `host`."""
        return await self.inspector.views.open(asked, host)

    async def _view_messages(self, asked: Asked) -> Any:
        """Take messages of a view, and return those that wait for it."""
        view = self.inspector.views.find(str(asked["view"]))
        if view is None:
            return {"messages": [], "closed": True}
        view.receive([str(each) for each in asked.get("messages", ())])
        return {"messages": view.pop_messages(), "closed": not view.is_open}

    async def _view_settings(self, asked: Asked) -> Any:
        settings = msgspec.convert(asked["settings"], ViewSettings)
        view = self.inspector.views.find(str(asked["view"]))
        if view is not None:
            view.change(settings)
        return {}

    async def _view_report(self, asked: Asked) -> Any:
        self.inspector.views.report(asked)
        return {}

    async def _view_message(self, asked: Asked) -> Any:
        """Return one message of the bridge of a view."""
        return self._shown_message(self.inspector.views.log(str(asked["view"])), asked)

    async def _close_view(self, asked: Asked) -> Any:
        view = self.inspector.views.find(str(asked["view"]))
        if view is not None:
            await view.close("The page closed it")
        return {}

    async def _entry(self, asked: Asked) -> Any:
        return {"text": self.inspector.entry()}

    async def _saved(self, asked: Asked) -> Any:
        """List the saved requests of this server."""
        return {"requests": await self.inspector.saved.all()}

    async def _save(self, asked: Asked) -> Any:
        await self.inspector.saved.add(dict(asked))
        return await self._tell_saved()

    async def _unsave(self, asked: Asked) -> Any:
        await self.inspector.saved.remove(dict(asked))
        return await self._tell_saved()

    async def _tasks(self, asked: Asked) -> Any:
        """List the tasks of the fleet."""
        return await self.inspector.fleet.describe(str(asked["which"]))

    async def _task(self, asked: Asked) -> Any:
        return await self.inspector.fleet.task(str(asked["id"]), with_values=asked.get("arguments") is True)

    async def _cancel_task(self, asked: Asked) -> Any:
        return await self.inspector.fleet.cancel(str(asked["id"]))

    async def _send_again(self, asked: Asked) -> Any:
        return await self.inspector.fleet.send_again(str(asked["id"]))

    async def _tell_saved(self) -> Any:
        """Tell every page that is open, not only the one that saved."""
        requests = await self.inspector.saved.all()
        self.inspector.events.tell("saved", requests=requests)
        return {"requests": requests}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
