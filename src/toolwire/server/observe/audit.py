"""Records every call of a server in an audit log: who, what, with which arguments, how it ended, how long it took."""

from __future__ import annotations

import asyncio
import hashlib
import time
from functools import reduce
from typing import Any, Final, NamedTuple, Protocol

from msgspec import UNSET, Raw

from toolwire.audit.log import AuditLog, now
from toolwire.auth.principal import Principal
from toolwire.protocol import types as t
from toolwire.protocol.errors import CallRefused, ServerError
from toolwire.redaction import MASK, Redaction
from toolwire.server.call import Call
from toolwire.server.call_target import CallTarget, target_of
from toolwire.server.catalog import Catalog, Found
from toolwire.server.components import Component
from toolwire.server.kernel import Kernel
from toolwire.server.metrics import Metrics
from toolwire.server.middleware import Operation
from toolwire.server.observe.outcome import Outcome, of_error, of_result
from toolwire.wire.threads import start_daemon

_MAX_MERGED: Final = 1024
_MAX_TEXT: Final = 200


class ObservedServer(Protocol):
    """The server, as far as its observers need it."""

    name: str
    version: str
    catalog: Catalog
    metrics: Metrics | None
    kernel: Kernel


def observe_calls(server: ObservedServer, log: AuditLog) -> None:
    """Record the calls of a server from now on, and end the log when the server ends."""
    if not isinstance(log, AuditLog):
        raise ServerError(f"audit= takes an AuditLog, not {type(log).__name__}")
    server.kernel.audit = log
    server.kernel.observe(AuditObserver(log, server))


def change_log(server: ObservedServer, log: AuditLog | None) -> None:
    """Record the calls of a running server in another log from now on; None records no call any more."""
    kernel = server.kernel
    before = kernel.audit
    for observer in kernel.observers:
        if isinstance(observer, AuditObserver):
            kernel.observe_no_more(observer)
    kernel.audit = None
    if log is not None:
        observe_calls(server, log)
    if before is not None:
        # In a thread, because the target of the log may not answer. Its last lines are those of calls that end now.
        start_daemon("audit log", before.close)


class AuditObserver:
    """The observer that writes a line when a call has ended, in whichever way."""

    def __init__(self, log: AuditLog, server: ObservedServer) -> None:
        self._log = log
        self._server = server
        self._merged: dict[tuple[tuple[Redaction, ...], tuple[tuple[str, str], ...]], Redaction] = {}
        self._masks: tuple[int, Redaction | None] = (-1, None)
        log.describe(server=server.name, version=server.version)

    async def __call__(self, call: Call, call_next: Operation) -> Any:
        target = target_of(call)
        if target is None:
            return await call_next(call)
        if self._log.required and not self._log.ready:
            text = "Calls cannot be recorded at the moment, so none are made. Try again in 10 seconds."
            return self._server.kernel.failures.refused(call, CallRefused(text, reason="audit", retry_after=10.0))
        # The record begins before the handler runs, because the handler may change its arguments.
        entry = self._begun(call, target)
        started = time.perf_counter()
        try:
            result = await call_next(call)
        except BaseException as error:
            self._ended(call, entry, started, of_error(call, error))
            raise
        outcome = of_result(call, result)
        if outcome.word == "task":
            task = call.task_elsewhere or call.task_run
            if task is not None:  # A middleware may have answered with a task that nobody here knows.
                entry["task"] = task.id
            self._ended(call, entry, started, outcome)
            if task is not None:
                # The request is answered, but the task goes on. The end of the task gets its own line.
                task.when_over(lambda worker: self._task_ended(call, dict(entry), started, worker))
            return result
        self._ended(call, entry, started, outcome)
        return result

    def _task_ended(self, call: Call, entry: dict[str, Any], started: float, worker: asyncio.Future[Any]) -> None:
        entry["time"] = now()
        try:
            answer = worker.result()
        except BaseException as error:
            answer = error
        ending = of_error if isinstance(answer, BaseException) else of_result
        self._ended(call, entry, started, ending(call, answer))

    def _ended(self, call: Call, entry: dict[str, Any], started: float, outcome: Outcome) -> None:
        entry["ms"] = round((time.perf_counter() - started) * 1000, 3)
        entry["outcome"] = outcome.word
        if outcome.code is not None:
            entry["code"] = outcome.code
        if "back" in entry:
            entry["decision"] = "allowed" if call.refusal is None else "refused"
        if call.refusal is not None:
            entry["reason"] = call.refusal
        if call.api_requests is not None:
            entry["api"] = call.api_requests
        if call.error_id is not None:
            entry["errorId"] = call.error_id
        if call.trace is not None:
            entry["trace"] = call.trace
        self._log.record(entry)

    def _begun(self, call: Call, target: CallTarget) -> dict[str, Any]:
        request = call.request
        if (found := target.found) is None:
            masked = self._masks_of_all(call, target).text
            name, arguments = _shown_unknown(request.params, target)
        else:
            redaction = self._redaction(call, target, found)
            masked = redaction.text
            name, arguments = target.name, self._arguments(request.params, target, redaction)
            if target.variables and any(redaction.hides(each, value) for each, value in target.variables.items()):
                # The address contains a value that must be hidden, so the record shows the pattern of the template.
                name = found.component.key
                arguments = {**arguments, "uri": name}
            if request.method == "resources/read" and redaction.hides("uri", request.params.uri):
                # The name and the variables of a template are parts of the address.
                name = found.component.key if target.variables else MASK
                arguments = dict.fromkeys(arguments, MASK)
        entry: dict[str, Any] = {
            "time": now(),
            "who": who(request.principal),
            "method": request.method,
            "name": masked(name),
            "arguments": arguments,
            "revision": request.revision,
            "request": request.id if isinstance(request.id, int) else request.id[:_MAX_TEXT],
        }
        if (back := target.back) is not None:
            entry["back"] = back
            if (credential := target.credential) is not None:
                entry["credential"] = credential
        if request.client is not UNSET:
            entry["client"] = masked(f"{request.client.name} {request.client.version}"[:_MAX_TEXT])
        if (session := call.session_id) is not None:
            entry["session"] = session_tag(session)
        return entry

    def _arguments(self, params: Any, target: CallTarget, redaction: Redaction) -> Any:
        raw = getattr(params, "arguments", UNSET)
        size = len(raw) if isinstance(raw, Raw) else 0
        try:
            return self._log.shown(lambda: target.arguments, size, redaction)
        except CallRefused:
            return {"unreadable": size}

    def _redaction(self, call: Call, target: CallTarget, found: Found[Any]) -> Redaction:
        """Return the redaction of a call: that of the log, of policies, of the component, and of mounted servers."""
        own = self._log.redaction
        enforcer = self._server.kernel.enforcer
        component: Component | None = found.component
        renamed = found.component.renamed_arguments
        theirs = [] if enforcer is None else [enforcer.redaction(call, target)]
        while component is not None:
            theirs.append(component.secret_arguments)
            component = component.original
        logs = (mount.catalog.owner.kernel.audit for mount in found.way)
        theirs += [log.redaction for log in logs if log is not None]
        parts = tuple(each for each in theirs if each is not None)
        if not parts and not renamed:
            return own
        merged = self._merged.get((parts, renamed))
        if merged is None:
            # A plain dict, not `Expiring`: each call looks here, and when it is full it is cheap to begin anew.
            if len(self._merged) >= _MAX_MERGED:
                self._merged.clear()
            merged = reduce(Redaction.__or__, (*parts, Redaction(renamed=renamed)), own)
            self._merged[parts, renamed] = merged
        return merged

    def _masks_of_all(self, call: Call, target: CallTarget) -> _Masks:
        """Return every mask here and in mounted servers, for a call that finds no component.

        The caller may have meant any component, also one that is hidden from it.
        """
        catalog, enforcer = self._server.catalog, self._server.kernel.enforcer
        # Read the version before the components: another thread may change them meanwhile.
        version = catalog.version
        if self._masks[0] != version:
            self._masks = (version, _masks_of_policies(catalog))
        logs = (each.owner.kernel.audit for each in catalog.family())
        parts = [self._log.redaction, *(log.redaction for log in logs if log is not None)]
        if enforcer is not None and (own := enforcer.redaction(call, target)) is not None:
            parts.append(own)
        return _Masks(parts, self._masks[1])


class _Masks(NamedTuple):
    """The masks of several policies and logs."""

    always: list[Redaction]
    policies: Redaction | None
    """The masks of components and mounted servers; None where they depend on the caller."""

    def text(self, text: str) -> str:
        """Return the text with the matches masked. Where masks are unknown, all of it is."""
        if self.policies is None:
            return MASK
        for each in (*self.always, self.policies):
            text = each.text(text)
        return text


def _masks_of_policies(catalog: Catalog) -> Redaction | None:
    """Return the masks of components and mounted servers; None where they depend on callers."""
    # Imported here because most calls find their component.
    from toolwire.server.policy.enforcement import masks_of_all

    patterns = masks_of_all(catalog)
    return None if patterns is None else Redaction(patterns=patterns)


def _shown_unknown(params: Any, target: CallTarget) -> tuple[str, Any]:
    """Return the name and the arguments of a call that finds no component.

    Nothing says which arguments are secret, nor which parts of an address.
    """
    if isinstance(params, t.ReadResourceRequestParams):
        return MASK, {"uri": MASK}
    if isinstance(params, t.CompleteRequestParams):
        is_prompt = isinstance(params.ref, t.PromptReference)
        return target.name if is_prompt else MASK, {"omitted": len(params.argument.value)}
    raw = getattr(params, "arguments", UNSET)
    return target.name, {"omitted": len(raw)} if isinstance(raw, Raw) else {}


def who(principal: Principal | None) -> dict[str, Any] | None:
    """Return the known identity of the caller, without claims, which may contain anything."""
    if principal is None:
        return None
    subject = getattr(principal, "subject", None)
    if subject is None:
        return {"subject": str(principal)[:_MAX_TEXT]}
    found = {"subject": subject} | {each: getattr(principal, each, None) for each in ("provider", "username")}
    return {key: str(value)[:_MAX_TEXT] for key, value in found.items() if value}


def session_tag(session: str) -> str:
    """Return a text that tells sessions apart. Nobody can use it to enter a session."""
    return hashlib.sha256(session.encode()).hexdigest()[:12]
