"""An HTTP application on one event loop: modern exchanges, legacy sessions and stateless legacy requests.

A request that is refused is refused before anything is created for it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from toolwire.http.app_settings import AppSettings, HasSettings
from toolwire.http.authentication import ADDRESS, HttpGate
from toolwire.http.body import Upload, read_body, whole_body
from toolwire.http.callers import Callers
from toolwire.http.exchange import ExchangeOutlet, WaitingExchanges
from toolwire.http.legacy.get_stream import GetStream
from toolwire.http.legacy.http_sse_2024 import MESSAGES_PATH, STREAM_PATH, SseHost, SseTransport
from toolwire.http.legacy.sessions import SessionHost, Sessions
from toolwire.http.legacy.stateless import Stateless
from toolwire.http.origin_check import Guard
from toolwire.http.readiness import Readiness
from toolwire.http.request_checks import check_media, headers_of, path_of, preflight
from toolwire.http.responses import JSON_TYPE, TEXT_TYPE, HttpRefusal, Page, respond
from toolwire.http.unsent_answers import PIECE_BYTES, PacedSend, UnsentAnswers
from toolwire.http.uvicorn_end import Uvicorn, UvicornWatch, find_uvicorn
from toolwire.http.watch_first_await import watched
from toolwire.http1.asgi_types import DIRECT, Direct, HeaderList, Receive, Scope, SendMessage
from toolwire.protocol.errors import INTERNAL_ERROR, InsufficientScope, ProtocolError, counted
from toolwire.protocol.http import (
    DUPLICATE,
    SESSION,
    VERSION,
    Acknowledged,
    Rejection,
    classify,
    is_modern_post,
    status_of,
)
from toolwire.protocol.jsonrpc import encode_answer, encode_error
from toolwire.protocol.lifecycle import Declare, Incoming, Offer, ServerLifecycle
from toolwire.protocol.revisions import MODERN
from toolwire.stores import StoreFailed, StoreFull
from toolwire.wire.answer import encode_failure, encode_stopped
from toolwire.wire.session import notify_without_session
from toolwire.wire.shares import Caller, Shares, Taken, is_distinct

log: logging.Logger = logging.getLogger("toolwire.http")


class AppHost(SessionHost, SseHost, Protocol):
    """The server behind the application."""

    def header_paths_for(self, principal: Any) -> Callable[[str], Mapping[str, tuple[str, ...]]]:
        """Return a function that says which parameters of a tool travel as headers, for one principal."""

    @property
    def is_strict(self) -> bool:
        """Return whether the server is not ready while components of servers behind it are missing."""

    @property
    def remark(self) -> str:
        """Return what `/readyz` says besides "ok"."""

    def missing(self) -> Sequence[str]:
        """Return the servers behind this one whose components are missing."""

    def left_out(self) -> Sequence[str]:
        """Return the components of servers behind this one that cannot be offered."""

    def offer_alone_to(self, principal: Any) -> Offer:
        """Return what is offered to a caller whose requests have no session."""

    def declare_to(self, principal: Any) -> Declare:
        """Return what leaves out of the answer to `initialize` what a caller may not know."""

    async def start(self) -> None: ...

    def drain(self) -> None:
        """End the streams that have no end of their own."""

    async def stop(self) -> None: ...


class Application(HasSettings, Protocol):
    """The application, as far as it is the same on every event loop."""

    callers: Callers
    guard: Guard
    offers_sse: bool
    pages: Mapping[str, Page]
    path: str
    stateless: bool
    uvicorn: Uvicorn | None

    @property
    def find_host(self) -> Callable[[], AppHost]: ...


class AppRuntime:
    """An application on one event loop: its sessions and streams, and the requests that it answers.

    It starts with the first request, or with a lifespan event, and may start again after it was stopped.
    """

    def __init__(self, application: Application, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._application = application
        self.settings: AppSettings = application.settings
        self._path = application.path
        self._guard = application.guard
        self._callers = application.callers
        self._passed: tuple[str | None, str | None, str, Any] | None = None
        limits = application.settings.limits
        self._exchanges = Shares(limits.exchanges, limits.share, "requests in work")
        self._uploads = Shares(limits.uploads, limits.share, "bytes on their way")
        self.unsent: UnsentAnswers = UnsentAnswers(limits.share)
        """The bytes of large answers that their clients have not read."""
        # A session may have several streams, but most sessions have one or none.
        self._gets = Shares(limits.sessions, limits.share, "streams open", seconds=5)
        self._listening: set[ExchangeOutlet] = set()
        self._hinted = False
        self.started: asyncio.Future[None] | None = None
        """The start, while the application runs or is about to."""
        self.is_ready: bool = False
        """Whether the server has started, so that a request has nothing to wait for."""
        # The exchanges that wait, apart from listen streams, which no share limits here.
        self._waiting = WaitingExchanges(loop, self._exchanges)
        self._waiting_streams = WaitingExchanges(loop, Shares(sys.maxsize, 1.0, "streams"))
        self._draining = False
        self._readiness = Readiness(lambda: self.host.stores)
        self._watch: UvicornWatch | None = None
        self.is_led: bool = False
        """Whether lifespan events say when to stop."""
        self.sessions: Sessions | None = None
        self.sse: SseTransport | None = None
        self._use(application.find_host())

    def _use(self, host: AppHost) -> None:
        """Serve requests with what the server has on this loop. It has something new after each end."""
        self.host: AppHost = host
        # One for all exchanges, because a modern request leaves no state behind (META-6).
        self._lifecycle = ServerLifecycle(host.offer)
        self._lifecycle.era = "modern"
        self._stateless = None
        if self._application.stateless:
            self._stateless = Stateless(
                host.offer_alone_to, host.handler, self, host.admit, host.declare_to, self._exchanges, self.unsent
            )

    # --- starting and stopping ---

    async def ensure_started(self) -> None:
        """Start, unless that was done; return when the application runs."""
        if self.started is None:
            self._draining = False
            self.started = asyncio.ensure_future(self._start())
        started = self.started
        try:
            await asyncio.shield(started)
        except BaseException:
            # Where the start itself did not fail, only this request was cancelled.
            failed = started.done() and (started.cancelled() or started.exception() is not None)
            if failed and self.started is started:
                self.started = None  # The next request tries again.
            raise

    async def _start(self) -> None:
        self._use(self._application.find_host())
        await self.host.start()
        try:
            if self._stateless is None:
                self.sessions = Sessions(self.host, self, self._exchanges, self.unsent)
                await self.sessions.open()
            if self._application.offers_sse:
                self.sse = SseTransport(self.host, self, self._exchanges, self.unsent)
                await self.sse.open()
        except BaseException:
            await self.host.stop()
            raise
        self._watch_host()
        self.is_ready = True

    def _watch_host(self) -> None:
        """Watch for the end of uvicorn. Other hosts are not watched: those that are known cancel open requests."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        server = self._application.uvicorn or find_uvicorn()
        if server is not None:
            self._watch = UvicornWatch(server, self.drain, None if self.is_led else self.stop)

    def drain(self) -> None:
        """Report that the application is not ready, and end the streams that have no end of their own."""
        self._draining = True
        self.host.drain()
        self._end_legacy_streams()

    def _end_legacy_streams(self) -> None:
        if self.sessions is not None:
            self.sessions.drain()
        if self.sse is not None:
            self.sse.drain()

    def end_streams(self) -> None:
        """End the streams that have no end of their own. Their clients can open them again."""
        self._end_legacy_streams()
        for outlet in tuple(self._listening):
            outlet.break_off()

    def give_up(self) -> None:
        """Answer the calls that still run with an error, and cancel them."""
        self._waiting.give_up()
        if self._stateless is not None:
            self._stateless.give_up()
        if self.sessions is not None:
            self.sessions.calls.give_up()

    async def stop(self) -> None:
        """End sessions and streams, and leave the server's lifespan."""
        self._draining = True
        if self.started is not None and self.started.done():
            self.started, self.is_ready = None, False
            self.is_led = False
            if self._watch is not None:
                self._watch.stop()
                self._watch = None
            self.drain()
            sessions, self.sessions, sse, self.sse = self.sessions, None, self.sse, None
            if sessions is not None:
                await sessions.close()
            if sse is not None:
                await sse.close()
            await self.host.stop()

    def discard(self) -> None:
        """Let go of the other processes, because the loop ended before the application was stopped."""
        if self.sessions is not None:
            self.sessions.discard()

    # --- one request ---

    async def http(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        headers = headers_of(scope)
        extra = self._readable(scope, headers) if "origin" in headers else ()
        try:
            if scope["method"] == "POST" and self._is_endpoint(scope):
                self._check_source(scope, headers)
                settings = self.settings
                if settings.gate is not None:
                    await self._admit(settings.gate, scope, headers)
                await self._post(settings, scope, headers, receive, send, extra)
                return
            stream = await self._route(scope, headers, receive, send, extra)
        except HttpRefusal as refusal:
            await respond(send, refusal.status, refusal.body, (*refusal.type, *refusal.headers, *extra))
            return
        except InsufficientScope as error:
            await self._forbid(error, scope, headers, send, extra)
            return
        except Taken as error:
            await self._turn_away(error, scope, headers, send, extra)
            return
        except (StoreFailed, StoreFull) as error:
            log.error("a request could not be served: %s", error)
            body = encode_error(None, INTERNAL_ERROR, "The server cannot serve this now; try again later")
            await respond(send, 503, body, (*JSON_TYPE, *_RETRY_LATER, *extra))
            return
        if stream is not None:
            # Outside of the block above, so that a long stream does not keep alive what was needed to open it.
            caller = self._caller(scope, headers)
            del headers
            try:
                await stream.serve(receive, PacedSend(send, self.unsent, caller), extra)
            finally:
                self._gets.give_back(caller)

    def _is_endpoint(self, scope: Scope) -> bool:
        root: str = scope.get("root_path", "")
        if not root and scope["path"] == self._path:
            return True
        path = path_of(scope)
        # Accept the path with and without a slash at the end, and the bare mount point: a redirect would lose the body.
        return path.rstrip("/") == self._path.rstrip("/") or (root != "" and path in ("", "/"))

    async def _forbid(
        self, error: InsufficientScope, scope: Scope, headers: Mapping[str, str], send: SendMessage, extra: HeaderList
    ) -> None:
        """Answer 403 and name the scopes that suffice (2025-11-25 basic/authorization, insufficient scope)."""
        body = encode_error(error.request_id, error.code, error.message, error.data)
        gate = self.settings.gate
        challenge = () if gate is None else (gate.insufficient(scope, headers, error.scopes),)
        await respond(send, 403, body, (*JSON_TYPE, *challenge, *extra))

    async def _turn_away(
        self, error: Taken, scope: Scope, headers: Mapping[str, str], send: SendMessage, extra: HeaderList
    ) -> None:
        """Refuse a request for which there is no room: 429 when its caller uses too much, 503 when others do."""
        if error.own and not self._hinted and not is_distinct(scope.get(_PRINCIPAL)) and "x-forwarded-for" in headers:
            self._hinted = True
            log.warning(
                "the address %s has used up the share of one caller, and forwards requests: if it is a proxy,"
                " name it in trusted_proxies=",
                self._callers.address(scope, headers),
            )
        body = encode_error(error.request_id, error.code, error.message, error.data)
        later = (b"retry-after", b"%d" % error.seconds)
        await respond(send, 429 if error.own else 503, body, (*JSON_TYPE, later, *extra))

    async def _admit(self, gate: HttpGate, scope: Scope, headers: dict[str, str]) -> None:
        """Let a request in, and leave its principal in the scope; raise `HttpRefusal`."""
        scope[ADDRESS] = self._callers.address(scope, headers)
        scope[_PRINCIPAL] = await gate.admit(scope, headers)

    async def _admit_again(self, scope: Scope) -> tuple[AppSettings, dict[str, str]]:
        """Let a request in by the settings of now; return them, and its headers.

        They changed since it was let in, and nothing was begun for it.
        """
        while True:
            settings, headers = self.settings, headers_of(scope)
            scope.pop(_PRINCIPAL, None)
            if settings.gate is not None:
                await self._admit(settings.gate, scope, headers)
            if settings is self.settings:
                return settings, headers

    async def _admit_same(self, scope: Scope, before: Any) -> tuple[Any, dict[str, str]]:
        """Let a request of the principal `before` in again; return its principal and headers. Raise `HttpRefusal`."""
        _, headers = await self._admit_again(scope)
        principal = scope.get(_PRINCIPAL)
        if self.host.principal_key(principal) != self.host.principal_key(before):
            raise HttpRefusal(403, "This is another caller")
        return principal, headers

    def _caller(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        return self._callers.of(scope.get(_PRINCIPAL), scope, headers)

    async def _route(
        self, scope: Scope, headers: dict[str, str], receive: Receive, send: SendMessage, extra: HeaderList
    ) -> GetStream | None:
        """Answer a request that is no call, or return the stream that answers it."""
        path = path_of(scope)
        method, settings = scope["method"], self.settings
        gate = settings.gate
        if path in ("/livez", "/readyz") and method in ("GET", "HEAD"):
            trouble, detail = ("", "ok") if path == "/livez" else await self._condition()
            await respond(send, 503 if trouble else 200, (trouble or detail).encode(), TEXT_TYPE)
            return None
        if path in self._application.pages and method in ("GET", "HEAD"):
            self._check_source(scope, headers)
            page = self._application.pages[path]
            if gate is not None and not page.decides:
                await self._admit(gate, scope, headers)
            await respond(send, *await page.answer(headers))
            return None
        if self._application.offers_sse and path in (STREAM_PATH, MESSAGES_PATH):
            await self._route_sse(path, scope, headers, receive, send, extra)
            return None
        if gate is not None and await self._served_by(gate, path, scope, headers, receive, send):
            return None
        if not self._is_endpoint(scope):
            raise HttpRefusal(404, f"There is no endpoint here; it is at {scope.get('root_path', '')}{self._path}")
        self._check_source(scope, headers)
        if method == "OPTIONS" and extra:
            await respond(send, 204, b"", (*extra, *preflight(headers, settings.key_headers)))
            return None
        if gate is not None:
            await self._admit(gate, scope, headers)
        return await self._other_method(gate, scope, headers, send, extra)

    async def _served_by(
        self, gate: HttpGate, path: str, scope: Scope, headers: Mapping[str, str], receive: Receive, send: SendMessage
    ) -> bool:
        """Let the gate answer a request for one of its own pages; return False when it is for none of them."""
        if gate.is_for_browsers(path):
            self._check_source(scope, headers)
        scope[ADDRESS] = self._callers.address(scope, headers)
        upload = Upload(receive, self._uploads, self._caller(scope, headers))
        try:
            return await gate.serve(path, scope, headers, upload.receive, send)
        finally:
            upload.release()

    async def _condition(self) -> tuple[str, str]:
        """Return why this process is not ready, which is empty when it is, and what else is worth knowing."""
        if self._draining:
            return "stopping", ""
        if not await self._readiness.is_ready():
            return "the store cannot be used", ""
        missing = self.host.missing()
        if missing:
            # They are reached when the application has started.
            await self.ensure_started()
            missing = self.host.missing()
        remark = self.host.remark
        if left_out := self.host.left_out():
            named = ", ".join(repr(each) for each in left_out[:10]) if self.settings.gate is None else ""
            remark = ", ".join(filter(None, (remark, named or counted(len(left_out), "component")))) + " left out"
        if not missing:
            return "", f"ok, {remark}" if remark else "ok"
        # Anybody may ask, but not everybody may know the names.
        names = ", ".join(missing) if self.settings.gate is None else counted(len(missing), "server")
        told = ", ".join(filter(None, (f"{names} missing", remark)))
        return (told, "") if self.host.is_strict else ("", f"ok, {told}")

    async def _other_method(
        self, gate: HttpGate | None, scope: Scope, headers: Mapping[str, str], send: SendMessage, extra: HeaderList
    ) -> GetStream | None:
        """Serve GET and DELETE, which belong to legacy sessions (2026-07-28 has neither)."""
        method = scope["method"]
        only_post = self._stateless or headers.get(VERSION) == MODERN
        if only_post or method not in ("GET", "DELETE"):
            allowed = b"POST" if only_post else b"GET, POST, DELETE"
            raise HttpRefusal(405, "Send a POST", ((b"allow", allowed),))
        await self.ensure_started()
        assert self.sessions is not None
        if method == "GET":
            self._check_open()
            caller = self._caller(scope, headers)
            self._gets.take(caller)
            try:
                stream = await self.sessions.get(scope.get(_PRINCIPAL), headers)
                if gate is not self.settings.gate:
                    stream.linger()
                return stream
            except BaseException:
                self._gets.give_back(caller)
                raise
        await self.sessions.delete(scope.get(_PRINCIPAL), headers, send, extra)
        return None

    async def _route_sse(
        self,
        path: str,
        scope: Scope,
        headers: dict[str, str],
        receive: Receive,
        send: SendMessage,
        extra: HeaderList,
    ) -> None:
        self._check_source(scope, headers)
        method, allowed = scope["method"], "GET" if path == STREAM_PATH else "POST"
        if method == "OPTIONS" and extra:
            await respond(send, 204, b"", (*extra, *preflight(headers, self.settings.key_headers)))
            return
        if method != allowed:
            raise HttpRefusal(405, f"Send a {allowed}", ((b"allow", allowed.encode()),))
        settings = self.settings
        if settings.gate is not None:
            await self._admit(settings.gate, scope, headers)
        await self.ensure_started()
        assert self.sse is not None
        if path == STREAM_PATH:
            self._check_open()
            if settings is not self.settings:
                settings, headers = await self._admit_again(scope)
            caller = self._caller(scope, headers)
            paced = PacedSend(send, self.unsent, caller)
            await self.sse.stream(scope, scope.get(_PRINCIPAL), caller, headers, receive, paced, extra)
        else:
            check_media(headers)
            upload = Upload(receive, self._uploads, self._caller(scope, headers))
            try:
                body = await read_body(headers, upload.receive, settings.limits.body, settings.limits.upload)
                if settings is not self.settings:
                    settings, headers = await self._admit_again(scope)
                await self.sse.post(scope, scope.get(_PRINCIPAL), body, send, extra)
            finally:
                upload.release()

    def _check_open(self) -> None:
        """Refuse a new stream while the server stops, because the stream would have to end at once."""
        if self._draining:
            raise HttpRefusal(503, "The server is stopping", _RETRY_LATER)

    def _check_source(self, scope: Scope, headers: Mapping[str, str]) -> None:
        host, server = headers.get("host"), scope.get("server")
        asked = (host, headers.get("origin"), scope.get("scheme", "http"), server)
        if asked == self._passed:
            return  # Nearly all requests come from the same source as the one before.
        if host is not None and DUPLICATE in host:
            raise HttpRefusal(400, "One Host header, please")
        refusal = self._guard.check(*asked[:3], server[0] if server else None)
        if refusal is not None:
            try:
                raise refusal
            finally:
                del refusal  # Its traceback has this frame: a cycle that keeps the request in memory.
        self._passed = asked

    async def _post(
        self,
        settings: AppSettings,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        send: SendMessage,
        extra: HeaderList,
    ) -> None:
        only_stream = check_media(headers)
        direct: Direct | None = scope.get(DIRECT)
        if not self.is_ready:
            await self.ensure_started()
        caller = self._caller(scope, headers)
        upload: Upload | None = None
        outlet: ExchangeOutlet | None = None
        try:
            body = whole_body(direct, settings.limits.body)
            if body is None:
                upload = Upload(receive, self._uploads, caller)
                body = await read_body(headers, upload.receive, settings.limits.body, settings.limits.upload)
            if settings is not self.settings:
                settings, headers = await self._admit_again(scope)
                caller = self._caller(scope, headers)
            principal = scope.get(_PRINCIPAL)
            # From here to the call nothing is awaited, so that one front decides about the caller and serves the call.
            if not self._is_modern(headers, body):
                paced = PacedSend(send, self.unsent, caller)
                await self._post_legacy(settings, scope, caller, headers, body, receive, paced, extra)
                return
            paths = self.host.header_paths_for(principal)
            verdict = classify(headers, body, self._lifecycle, paths, max_depth=settings.limits.depth)
            if isinstance(verdict, Incoming):
                verdict.headers, verdict.principal, verdict.caller = headers, principal, caller
                listens = verdict.method == _LISTEN
                if not listens:
                    self._exchanges.check(caller)
                    self.unsent.check(caller)
                waiting = self._waiting_streams if listens else self._waiting
                revision, unsent = verdict.revision, self.unsent
                outlet = ExchangeOutlet(
                    receive, send, revision, extra, direct, only_stream, waiting, caller, unsent, verdict.id
                )
                await (self._listen if listens else self._exchange)(settings, verdict, outlet)
            elif isinstance(verdict, Rejection):
                await respond(send, verdict.status, verdict.body, (*JSON_TYPE, *extra))
            elif isinstance(verdict, Acknowledged):
                if verdict.notice is not None:
                    notify_without_session(self.host.handler, verdict.notice)
                await respond(send, 202, b"", extra)
        finally:
            if outlet is not None and (outlet.is_unsettled or direct is None):
                outlet.settle()
            if upload is not None:
                upload.release()

    async def _post_legacy(
        self,
        settings: AppSettings,
        scope: Scope,
        caller: Caller,
        headers: Mapping[str, str],
        body: bytes,
        receive: Receive,
        send: PacedSend,
        extra: HeaderList,
    ) -> None:
        principal = scope.get(_PRINCIPAL)
        if self._stateless is None:
            assert self.sessions is not None
            # The calls of a batch share the scope, from which the first one takes the principal.
            again = partial(self._admit_same, scope, principal)
            await self.sessions.post(settings, again, principal, caller, headers, body, receive, send, extra)
            return
        await self._stateless.post(principal, caller, headers, body, receive, send, extra)

    def _is_modern(self, headers: Mapping[str, str], body: bytes) -> bool:
        if not is_modern_post(headers, body):
            return False
        # A client that sends a session id has a session, and that session reports what is wrong with its version. But
        # 2026-07-28 has no sessions, so with that version the session id is ignored.
        return SESSION not in headers or self.sessions is None or headers.get(VERSION, MODERN) == MODERN

    async def _listen(self, settings: AppSettings, incoming: Incoming, outlet: ExchangeOutlet) -> None:
        self._listening.add(outlet)
        try:
            await self._exchange(settings, incoming, outlet)
        finally:
            self._listening.discard(outlet)

    async def _exchange(self, settings: AppSettings, incoming: Incoming, outlet: ExchangeOutlet) -> None:
        status = 200
        try:
            handled = self.host.handler.handle(incoming, outlet)
            result = await watched(handled, outlet.waits)  # type: ignore[arg-type]
            body = encode_answer(incoming.id, result, settings.limits.result)
            result = None
        except BaseException as raised:
            if isinstance(raised, InsufficientScope | Taken) and not outlet.begun:
                await outlet.abandon()
                raised.request_id = incoming.id
                raise
            failure = encode_failure(incoming, raised, settings.limits.result)
            if failure is None:
                if await outlet.was_left():
                    return
                if not self._draining:
                    raise
                failure = encode_stopped(incoming.id)  # The host that stops has cancelled its requests.
            body = failure
            if isinstance(raised, ProtocolError):
                status = status_of(raised.code, handled=True)
        if len(body) > PIECE_BYTES:
            body = outlet.hold(incoming.id, body)
        if not outlet.answer(status, body):
            await outlet.finish(status, body)

    # --- browsers ---

    def _readable(self, scope: Scope, headers: Mapping[str, str]) -> HeaderList:
        """Return the headers that let a page read an answer. Every page whose origin may call may read."""
        origin, server = headers["origin"], scope.get("server")
        local_address = server[0] if server else None
        if self._guard.check(headers.get("host"), origin, scope.get("scheme", "http"), local_address) is not None:
            return ()
        return (
            (b"access-control-allow-origin", origin.encode("latin-1", "replace")),
            (b"access-control-expose-headers", b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"),
            (b"vary", b"Origin"),
        )


# Listen streams are open for hours and have a limit of their own.
_LISTEN: Final = "subscriptions/listen"
_RETRY_LATER: Final[HeaderList] = ((b"retry-after", b"1"),)
# The key of the principal in the scope of a request.
_PRINCIPAL: Final = "toolwire.principal"
