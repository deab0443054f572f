"""Switches on what watches a server: spans, metrics, the audit log. Imported only where one of them is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolwire.audit import AuditLog
from toolwire.protocol.errors import ServerError
from toolwire.server.metrics import Metrics
from toolwire.server.observe.audit import ObservedServer, observe_calls
from toolwire.server.observe.back_metrics import BackMetrics
from toolwire.server.observe.fleet_metrics import FleetMetrics

if TYPE_CHECKING:
    from toolwire.http.asgi import HttpApp


def observe(server: ObservedServer, *, tracing: Any, metrics: Metrics | bool | None, audit: AuditLog | None) -> None:
    """Switch observers on, from the outside in, so that a record can name the trace it belongs to."""
    if tracing:
        from toolwire.server.observe.tracing import Tracing

        observer = Tracing(tracing)
        server.kernel.observe(observer)
        server.kernel.hop_observers.append(observer.hop)
    if metrics:
        server.metrics = Metrics() if metrics is True else metrics
        if not isinstance(server.metrics, Metrics):
            raise ServerError(f"metrics= takes True or a Metrics, not {type(metrics).__name__}")
        _measure(server, server.metrics)
    if audit is not None:
        observe_calls(server, audit)


def _measure(server: ObservedServer, metrics: Metrics) -> None:
    kernel = server.kernel
    kernel.observe(metrics)
    metrics.name_only(lambda: _public(server))
    metrics.gauge(
        "connections", "Connections that are open.", lambda: {"": sum(len(each.clients) for each in kernel.hubs)}
    )
    metrics.gauge(
        "listen_streams",
        "Streams of subscriptions that are open.",
        lambda: {"": sum(len(each.streams) for each in kernel.hubs)},
    )
    metrics.gauge("tasks", "Tasks that run in this process.", lambda: {"": kernel.tasks_running})
    metrics.gauge("waiting", "Calls that wait for a thread or for a slot.", lambda: _waiting(server))
    FleetMetrics(server).add_to(metrics)
    backs = BackMetrics(server)
    backs.add_to(metrics)
    kernel.hop_observers.append(backs.observe)


def _public(server: ObservedServer) -> Callable[[str, str], bool]:
    """Return a function that says whether a caller without a principal sees a name that a method uses."""
    access, catalog = server.kernel.access, server.catalog
    view = access.view_of(None)
    # A list handler may list other tools for each caller, so the names that it lists are not public.
    if not access.active and not server.kernel.lowlevel.lists:
        return lambda method, name: True

    def names(*kinds: str) -> set[str]:
        return {name for kind in kinds for name in catalog.all(kind, view)}

    seen = {
        "tools/call": names("tools"),
        "prompts/get": names("prompts"),
        "resources/read": names("resources", "templates"),
        "completion/complete": names("prompts", "templates", "resources"),
    }
    return lambda method, name: name in seen.get(method, ())


def _waiting(server: ObservedServer) -> dict[str, float]:
    enforcer = server.kernel.enforcer
    slots = 0 if enforcer is None else enforcer.gates.waiting
    return {"thread": sum(each.work.workers.waiting for each in server.kernel.runtimes.live), "slot": slots}


def measure_sessions(metrics: Metrics, application: HttpApp) -> None:
    """Count the legacy sessions of an HTTP application."""
    metrics.gauge("http_sessions", "Legacy HTTP sessions that this process opened.", lambda: {"": application.opened})
