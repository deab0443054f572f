"""`Gateway`: a server in front of other servers."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, cast

from msgspec import Struct, structs

from toolwire.client.http_target import HttpTarget
from toolwire.client.targets import CommandTarget, TargetLike, TargetOptions, resolve
from toolwire.gateway.availability import State
from toolwire.gateway.back_connections import IDLE_SECONDS, MAX_CONVERSATIONS, ConnectionBounds
from toolwire.gateway.back_health import (
    QUEUE,
    QUEUE_SECONDS,
    Breaker,
    BreakerState,
    Health,
    UpstreamLimits,
)
from toolwire.gateway.file_types import given
from toolwire.gateway.front import Entry, Fronts, GatewaySettings, IncludedApi
from toolwire.gateway.list_follower import LIST_SECONDS, FollowSettings
from toolwire.gateway.names import MAX_NAME
from toolwire.gateway.sent_request import allowed_headers
from toolwire.gateway.shared_lists import ListsOwner, SharedLists
from toolwire.gateway.upstream import Upstream
from toolwire.gateway.upstream_credentials import UpstreamCredentials
from toolwire.gateway.upstream_options import TIMEOUT_SECONDS, UpstreamOptions, UpstreamRules, check_numbers
from toolwire.protocol.apps import UI_EXTENSION
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import REVISIONS
from toolwire.server.catalog import Catalog, Mount
from toolwire.server.described_api import DescribedApi
from toolwire.server.limits import Limits
from toolwire.server.policy.concurrency import Slots
from toolwire.server.server import Server
from toolwire.server.settings import Settings
from toolwire.server.shaping import Quarantined, Shape, ShapedMount, ToolPins
from toolwire.wire.threads import call_on
from toolwire.wire.tracebacks import TracebackLog

if TYPE_CHECKING:
    from toolwire.auth.vault.kinds import Kind
    from toolwire.client.target import Target
    from toolwire.gateway.account_relay import CallerPlaces
    from toolwire.gateway.config.file_content import Source
    from toolwire.gateway.configuration_status import FollowedConfiguration, Reloaded
    from toolwire.server.policy import Policy

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: How long the name of a server may be: names of tools need room behind it.
MAX_BACK_NAME: Final = 32
#: How many characters of the instructions of one server, and of all servers together, are handed on.
MAX_INSTRUCTIONS: Final = 4_000
MAX_ALL_INSTRUCTIONS: Final = 32_000
#: The entries of one page, unless the operator sets a number: many clients read the first page alone.
ONE_PAGE: Final = 1_000_000_000

#: The options with which an API can be added. Some of them have no effect on it.
_OPTIONS_WITH_API: Final = frozenset(
    {
        *("prefix", "policy", "shape", "forward_headers"),
        *("timeout", "list_timeout", "breaker", "queue", "queue_seconds", "max_processes", "idle_seconds"),
    }
)


class Back(Struct, frozen=True):
    """A server behind a gateway, as an operator sees it."""

    name: str
    state: State
    error: str | None
    """Why it is away; None while it is there."""
    revision: str | None
    """The revision that is spoken with it; None before it was reached."""
    transport: str
    """`http`, `stdio`, `memory` for a server in this process, or `openapi` for an API."""
    last_change: float | None
    """When its components changed last, in seconds since 1970; None before they were known."""
    tools: int
    prompts: int
    resources: int
    hidden: tuple[str, ...]
    """The names of its tools and prompts that a server before it has, so that nobody can use them."""
    withheld: tuple[str, ...] = ()
    """Its extensions that another server has, too, so that nothing says which of them a request is for."""
    breaker: BreakerState = "closed"
    """`open` while no call is let through, `half-open` while some are let through to see whether it works."""
    connections: int = 0
    """The connections to it; if it is a command, its processes."""
    waiting: int = 0
    """The calls that wait until others have ended (`max_calls=`, `max_processes=`)."""
    credentials: tuple[str, ...] = ()
    """The kinds of its credentials: that of calls, and that of lists."""
    urls: Mapping[str, str | None] = {}
    """Its addresses, if it has several, each with the reason why it is not used; None for those that work."""
    faults: tuple[str, ...] = ()
    """What does not fit in its shape: the name of a tool that it does not have, a pattern that matches nothing."""
    quarantined: tuple[Quarantined, ...] = ()
    """Its tools that wait for the approval of a person, because they are new or have changed."""
    left_out: Mapping[str, str] = {}
    """Why components of it cannot be offered, by their names."""


class Coming(NamedTuple):
    """A server that was prepared, and is not offered yet."""

    entry: Upstream
    replaced_credentials: Mapping[str, Kind]

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def is_circular(self) -> bool:
        """Return whether its lists lead back to the gateway."""
        return self.entry.lists.is_circular

    async def until_settled(self) -> None:
        """Wait until its lists are known, or its time for that is over."""
        await self.entry.lifecycle.wait_until_settled()


class ComingApi(NamedTuple):
    """An API that was prepared, and is not offered yet."""

    entry: IncludedApi
    is_circular: bool = False

    @property
    def name(self) -> str:
        return self.entry.name

    async def until_settled(self) -> None:
        """Return at once: everything is known of an API whose description was read."""


class Gateway(Server):
    """A server in front of other servers: one address, one list, one policy, one audit log.

    While a server behind it is away, its components are missing in lists. `stale=True` keeps the last ones that are
    known in lists. `strict=True`: a list in which components are missing is an error. `ping=False` refuses `ping` on
    2026-07-28, which has none, also to hosts that show views. `options` are those of `Server`. A list comes in one page
    unless `page_size` sets a number of entries.
    """

    _marks_upstreams: bool = True
    """Whether lists say which upstream a component belongs to."""

    def __init__(
        self, name: str, *, strict: bool = False, stale: bool = False, ping: bool = True, **options: Any
    ) -> None:
        self._reported_names: frozenset[str] = frozenset()
        self._reported_extensions: frozenset[str] = frozenset()
        self._is_review_planned = False
        self._credentials = UpstreamCredentials(self)
        self.watchers: list[Callable[[], None]] = []
        """Called when a server behind this one came, went, or changed."""
        self.on_stderr: Callable[[str], None] | None = None
        """Gets each line of an upstream's standard error, after the name of the upstream."""
        self.configuration: FollowedConfiguration | None = None
        """The file that this gateway was made from, and that `reload` reads again; None for one without a file."""
        limits = options.get("limits")
        if options.get("page_size") is None and (limits is None or limits.page == Limits().page):
            options["page_size"] = ONE_PAGE
        super().__init__(name, **options)
        rules = UpstreamRules(keeps_stale_lists=stale, answers_pings=ping)
        settings = GatewaySettings(**structs.asdict(self.settings), is_strict=strict, rules=rules)
        self.kernel.settings, self.catalog.is_strict = settings, strict
        parts = (super().apply_settings, self._review_upstreams_soon, self._forget_credentials)
        self.fronts: Fronts = Fronts(self, settings, *parts)
        """What the gateway serves."""

    def apply_settings(self, settings: Settings) -> None:
        """Serve a front that has other settings. They are `settings` of the gateway, with other values."""
        assert isinstance(settings, GatewaySettings)
        self.fronts.swap(self.fronts.front.with_settings(settings.kept_after(self.fronts.front.settings)))

    def add(
        self,
        name: Any,
        target: TargetLike | DescribedApi | None = None,
        *,
        prefix: str | None = None,
        timeout: float | None = TIMEOUT_SECONDS,
        revision: str | None = None,
        list_timeout: float = LIST_SECONDS,
        trust: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        inherit_env: bool | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        credentials: Kind | None = None,
        list_credentials: Kind | None = None,
        credential_variable: str | None = None,
        forward_headers: Iterable[str] = (),
        breaker: Breaker | bool = True,
        health: Health | None = None,
        max_calls: int | None = None,
        max_calls_per_caller: int | None = None,
        queue: int = QUEUE,
        queue_seconds: float = QUEUE_SECONDS,
        policy: Policy | None = None,
        isolation: Literal["conversation", "shared", "principal"] | None = None,
        max_processes: int | None = None,
        idle_seconds: float | None = None,
        urls: Sequence[str] | None = None,
        views: bool = True,
        lazy: bool = False,
        auth: Any = None,
        shape: Shape | None = None,
    ) -> Self:
        """Put a server behind this one, also while this one runs.

        `target` is what a `Client` connects to, or an API that `toolwire.openapi.openapi()` read, which takes `prefix`,
        `policy` and `shape`. Without a target, `add` adds a component of this server itself, as that of every server
        does. `env`, `cwd` and `inherit_env` are for a program, which is a command or a file; `headers`, `auth`, `tls`
        and `proxy` are for an address.

        * `prefix`: What the names of its tools and prompts start with; its name and `_` by default, and "" for none.
        * `timeout`: How many seconds a call may take, with its rounds and a second attempt.
        * `revision`: The one revision to speak with it, instead of the newest that both know and, for legacy clients,
          2025-11-25.
        * `list_timeout`: How many seconds lists wait for it.
        * `trust`: Whether what it calls public is public; otherwise clients are told that nobody but them may keep it.
        * `env`: Environment variables of the program.
        * `cwd`: The directory in which the program runs.
        * `inherit_env`: Whether the program gets the whole environment of the gateway, instead of the few variables
          that are harmless.
        * `headers`: HTTP headers of every request to the address.
        * `tls`: Certificates for the connections to the address.
        * `proxy`: The address of an HTTP proxy on the way.
        * `credentials`: Whose account acts at the server. A program has processes of its own for each account.
        * `list_credentials`: The account of the gateway that reads lists for all callers; without it, each caller's own
          account does.
        * `credential_variable`: The environment variable in which a program finds the secret of `credentials`.
        * `forward_headers`: The HTTP headers of a client's request that go on to the server, beside those of a trace.
        * `breaker`: When calls to it fail at once, because it does not work; false for never.
        * `health`: When health checks are sent to it without calls; never by default.
        * `max_calls`: How many calls run there at once; no bound by default.
        * `max_calls_per_caller`: How many calls of one caller run there at once; no bound by default.
        * `queue`: How many calls wait until others have ended, where there is a bound. The next one is refused.
        * `queue_seconds`: How many seconds a call waits until others have ended.
        * `policy`: The policy for all calls of the server.
        * `isolation`: Who shares a connection to a server before 2026-07-28, which is a process if the server is a
          program: `"conversation"`, the default, for one of each client session; `"shared"` for a pool of all clients,
          for a server that keeps nothing for its clients and asks nothing; `"principal"` for processes of its own for
          each principal, also of a modern program (the default where each caller has an account).
        * `max_processes`: How many processes of a program, or other connections, there are for callers; 256 by default,
          1 if shared. The one that was used longest ago ends.
        * `idle_seconds`: After how many seconds without a call a process, or another connection of a caller, ends; 600
          by default.
        * `urls`: The addresses of the server, if it has several, in the order of preference, behind the one that is
          named first. The first one that works is used.
        * `views`: Whether its views come through, and its tools that are for views alone.
        * `lazy`: Whether it starts with its first call, and stops after `idle_seconds` without one. Its lists of the
          last run come from the stores of the gateway meanwhile.
        * `auth`: What a `Client` takes as `auth` for an address, in place of `credentials`.
        * `shape`: Which of its components come through, and in which form.
        """
        values = locals()  # Each option is a parameter: `scripts/gateway_file.py` writes them.
        if target is None and not urls:
            return super().add(name)
        if isinstance(name, str) and name in self.fronts.front.entries:
            raise ServerError(f"There is a server {name!r} behind {self.name!r} already")
        options = UpstreamOptions(**{each: values[each] for each in UpstreamOptions.__struct_fields__})
        self.fronts.swap(self.fronts.front.with_entries(self._make_entry(name, target, options)))
        return self

    def _make_entry(self, name: Any, target: TargetLike | DescribedApi | None, options: UpstreamOptions) -> Entry:
        """Make an entry of a front. An upstream connects from now on."""
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MAX_BACK_NAME:
            raise ServerError(f"A server behind a gateway has a name of 1 to {MAX_BACK_NAME} printable characters")
        if isinstance(target, DescribedApi):
            return self._make_api(name, target, options)
        return self._make_upstream(name, target, options)

    def _make_upstream(self, name: str, target: TargetLike | None, options: UpstreamOptions) -> Upstream:
        if options.revision is not None and options.revision not in REVISIONS:
            known = ", ".join(REVISIONS)
            raise ServerError(f"The server {name!r} cannot have the revision {options.revision!r}; use one of {known}")
        try:
            place = _find_place(target, options)
        except (TypeError, ValueError) as error:
            raise ServerError(f"The server {name!r} cannot be added: {error}") from None
        if isinstance(place, CommandTarget):
            is_quotable = options.credentials is None or not options.credentials.is_per_user
            place.on_stderr = partial(self._pass_stderr, name, TracebackLog(log, name) if is_quotable else None)
        prefix = _prefix(name, options)
        if len(prefix) > MAX_BACK_NAME + 1:
            raise ServerError(f"The prefix of {name!r} has more than {MAX_BACK_NAME + 1} characters")
        allowed = allowed_headers(name, options.forward_headers)
        if options.shape is not None:
            _check_lengths(name, prefix, options.shape)
        check_numbers(name, options)
        protection = _make_protection(name, options)
        if isinstance(place, HttpTarget):
            place = place.with_places(max(MAX_CONVERSATIONS, options.max_calls or 0))
        credentials, list_credentials = options.credentials, options.list_credentials
        _check_isolation(name, options.isolation, place, credentials)
        signing: CallerPlaces | None = None
        if options.isolation == "principal" and credentials is None:
            from toolwire.gateway.account_relay import PrincipalProcesses

            signing = PrincipalProcesses(place)
        make_lists: Callable[[ListsOwner, FollowSettings], SharedLists] = SharedLists
        if options.lazy:
            if credentials is not None or list_credentials is not None:
                text = (
                    f"lazy= of {name!r} has no effect with credentials: it starts with the first call of each account"
                )
                raise ServerError(text)
            # Here, because most upstreams start with the gateway.
            from toolwire.gateway.lazy_lists import LazyLists

            make_lists = partial(LazyLists, place.address, options.idle_seconds or IDLE_SECONDS)
        if credentials is not None or list_credentials is not None:
            if options.auth is not None:
                raise ServerError(f"{name!r} has auth= or credentials=, not both")
            # Here, because most gateways have no credentials.
            from toolwire.gateway.back_credentials import signed_place

            self._credentials.take_credentials(
                name
            )  # Those of a server of this name that was taken away, and has calls left.
            self._credentials.note(name)
            variable = options.credential_variable
            place, signing = signed_place(self.vault, name, place, credentials, list_credentials, variable)
            if signing is not None and list_credentials is None:
                from toolwire.gateway.account_lists import AccountLists

                make_lists = partial(AccountLists, signing)
        upstream = Upstream(
            name,
            place,
            timeout=options.timeout,
            revision=options.revision,
            room=MAX_NAME - len(prefix),
            list_timeout=options.list_timeout,
            find_rules=lambda: self.fronts.front.settings.rules,
            trusts=options.trust,
            credentials=signing,
            protection=protection,
            policy=options.policy,
            bounds=_make_bounds(options, self.limits.share),
            views=options.views,
            credential=_kind_of_credential(options),
            forwards=allowed,
            make_lists=make_lists,
        )
        self.fronts.connect(upstream, prefix, options.shape, is_marked=self._marks_upstreams)
        return upstream

    def _make_api(self, name: str, api: DescribedApi, options: UpstreamOptions) -> IncludedApi:
        if given(options).keys() - _OPTIONS_WITH_API or any(options.forward_headers):
            raise ServerError(f"{name!r} is an API, which takes prefix=, policy= and shape=: give openapi() the rest")
        prefix, shape = _prefix(name, options), options.shape
        if options.policy is not None:
            shape = structs.replace(shape or Shape(), policy=options.policy)
        if shape is not None:
            _check_lengths(name, prefix, shape)
        self.included_apis.check(api)
        return IncludedApi(name, api, prefix, shape)

    def put(self, back: Upstream, prefix: str, shape: Shape | None = None) -> None:
        """Put a server behind this one that is made already."""
        self.fronts.connect(back, prefix, shape, is_marked=self._marks_upstreams)
        self.fronts.swap(self.fronts.front.with_entries(back))

    def remove(self, name: Any) -> Self:
        """Take a server away, also while this one runs; its connections close when its calls have ended.

        What is not the name of a server is a component of this server itself.
        """
        if not isinstance(name, str) or name not in self.fronts.front.entries:
            return self._remove_own(name)
        self.fronts.swap(self.fronts.front.without(name))
        return self

    def _forget_credentials(self, name: str) -> None:
        """Take the credentials of a server that is gone out of the vault, unless another one has its name now."""
        if name not in self.fronts.front.upstreams:
            self._credentials.take_credentials(name)

    async def replace(self, name: str, target: TargetLike | DescribedApi, **options: Any) -> Self:
        """Put a server in the place of the one of this name, also while this one runs. The options are those of `add`.

        The old server is offered until the new one has listed its components, or its time for that is over. Calls,
        questions and tasks end at the server where they began.
        """
        coming = self.prepare(name, target, **options)
        try:
            await coming.until_settled()
        except BaseException:
            self.discard(coming)
            raise
        self.fronts.swap(self.fronts.front.with_entries(coming.entry))
        return self

    def prepare(self, name: str, target: TargetLike | DescribedApi | None, **options: Any) -> Coming | ComingApi:
        """Make a server, and connect to it, but do not offer it yet. The options are those of `add`.

        One of the same name goes on being offered. Swap in a front with the `entry` of the result, or call `discard`.
        """
        kinds = self._credentials.take_credentials(name)
        try:
            entry = self._make_entry(name, target, UpstreamOptions(**options))
        except BaseException:
            self._credentials.restore(name, kinds)
            raise
        if isinstance(entry, IncludedApi):
            self._credentials.restore(name, kinds)
            return ComingApi(entry)
        entry.hold_back()
        if self.loop is None:
            entry.lifecycle.is_settled.set()
        return Coming(entry, kinds)

    def discard(self, coming: Coming | ComingApi) -> None:
        """Take a server away that was prepared, and keep the one of the same name."""
        if isinstance(coming, ComingApi):
            return  # Nobody has seen it.
        self._credentials.take_credentials(coming.name)
        self._credentials.restore(coming.name, coming.replaced_credentials)
        self.fronts.disconnect(coming.entry)

    def arrange(self, names: Iterable[str]) -> None:
        """Put the servers behind this one into an order: the first one keeps a name that two of them have."""
        self.fronts.swap(self.fronts.front.in_order(names))

    async def reload(self, source: Source | None = None) -> Reloaded:
        """Take over what the file of this gateway says now, or another one; return what changed.

        Only the servers whose entries changed are touched. Raise `ServerError`, and change nothing, for a file that is
        wrong.
        """
        if self.configuration is None:
            raise ServerError(f"{self.name!r} was not made from a file: use add(), replace() and remove()")
        return await self.configuration.reload(source)

    def _remove_own(self, component: Any) -> Self:
        try:
            return super().remove(component)
        except ServerError:
            if not isinstance(component, str):
                raise
            known = ", ".join(map(repr, self.fronts.front.entries)) or "none"
            text = f"{self.name!r} has neither a server nor a component {component!r}; its servers: {known}"
            raise ServerError(text) from None

    @property
    def backs(self) -> Mapping[str, Back]:
        """The servers behind this one, in the order in which they were added."""
        hidden = self._hidden()
        found: dict[str, Back] = {}
        for name, entry in self.fronts.front.entries.items():
            mount = self.fronts.find_mount(name)
            if isinstance(entry, IncludedApi):
                kinds = self.included_apis.credentials(entry.api)
                found[name] = _api_back(name, mount.catalog, hidden[name], kinds, mount)
            else:
                found[name] = _back(entry, hidden[name], self._credentials.find_kinds(name), mount)
        return found

    @property
    def pins(self) -> Mapping[str, ToolPins]:
        """The pins of the servers behind this one that have some, by the names of the servers."""
        mounts = ((name, self.fronts.find_mount(name)) for name in self.fronts.front.entries)
        shapes = ((name, mount.shape) for name, mount in mounts if isinstance(mount, ShapedMount))
        return {name: shape.pins for name, shape in shapes if shape.pins is not None}

    @property
    def leaving(self) -> tuple[str, ...]:
        """The servers that were taken away or replaced, and have calls, questions or tasks left."""
        return self.fronts.leaving

    def _hidden(self) -> dict[str, tuple[str, ...]]:
        """Return, for each server, the public names that lead to another server, or may do so soon."""
        found: dict[str, list[str]] = {name: [] for name in self.fronts.front.entries}
        for name in found:
            mount = self.fronts.find_mount(name)
            for kind in ("tools", "prompts"):
                shown = self.catalog.all(kind)
                found[name].extend(
                    public
                    for public, component in mount.merged(kind, None, ())
                    if ((listed := shown.get(public)) is None or mount not in listed.way)
                    # The components of single clients are in no list of all.
                    and not any(each.catalog.is_overlay for each in component.way)
                )
        return {name: tuple(names) for name, names in found.items()}

    def _review_upstreams_soon(self) -> None:
        """Look at the servers behind this one once, however many of them changed at the same time."""
        if self.loop is None or self._is_review_planned:
            return
        self._is_review_planned = True
        call_on(self.loop, self.loop.call_soon, self._review_upstreams)

    def _review_upstreams(self) -> None:
        """Take note that a server behind this one changed: its names, its instructions, its state."""
        self._is_review_planned = False
        # The catalogue says by itself that it leaves out the names of the search.
        hidden = frozenset(each for names in self._hidden().values() for each in names) - self.catalog.reserved_tools
        for each in sorted(hidden - self._reported_names):
            log.warning(
                "two servers have %r, or may have it: the one with the longest prefix is used, else the one that was "
                "added first; give one another prefix",
                self._without_credentials(each),
            )
        self._reported_names = hidden
        self._warn_of_withheld()
        blocks: list[tuple[Upstream, str]] = []
        room = MAX_ALL_INSTRUCTIONS
        upstreams = self.fronts.front.upstreams
        for name, remote in upstreams.items():
            text = (remote.remote_instructions or "")[: min(MAX_INSTRUCTIONS, room)]
            room -= len(text)
            if text:
                blocks.append((remote, f"{name}: {text}"))
        self.kernel.offer.tell_further_instructions(blocks)
        if any(remote.availability.last_change is None for remote in upstreams.values()):
            # Clients are told once what there is, and this server may have any of them.
            self.kernel.offer.add_families(("tools", "resources", "prompts"))
        self.tell_watchers()

    def _pass_stderr(self, name: str, tracebacks: TracebackLog | None, line: str) -> None:
        """Log a line of an upstream: a traceback as a warning, any other line for debugging.

        Without `tracebacks`, each line is for debugging.
        """
        if tracebacks is None or not tracebacks.add(line):
            log.debug("%s: %s", name, line)
        if self.on_stderr is not None:
            self.on_stderr(f"{name}: {line}")

    def _without_credentials(self, text: str) -> str:
        """Mask the credentials for all upstreams in a text that some of them wrote."""
        for upstream in self.fronts.front.upstreams.values():
            text = upstream.back_connections.log.texts.hide(text)
        return text

    def tell_watchers(self) -> None:
        """Tell those who watch the servers behind this one, or its configuration, that something changed."""
        for watcher in tuple(self.watchers):
            watcher()

    def _warn_of_withheld(self) -> None:
        """Say once which extensions are not offered, and why."""
        withheld = self.catalog.withheld_extensions()
        for identifier in sorted(withheld.keys() - self._reported_extensions):
            names = " and ".join(repr(owner.name) for owner in withheld[identifier])
            shown = self._without_credentials(identifier)
            if identifier in self.catalog.all_extensions():
                log.warning("the extension %s of %s is not offered: %r has it itself", shown, names, self.name)
            else:
                log.warning(
                    "%s have the extension %s, which is not offered: nothing says which of them a request is for",
                    names,
                    shown,
                )
        self._reported_extensions = frozenset(withheld)


def _check_lengths(name: str, prefix: str, shape: Shape) -> None:
    """Refuse names that are too long for the vendors of models, together with the prefix."""
    wished = [each.rename for each in shape.tools.values()] + [each.rename for each in shape.prompts.values()]
    for long in (prefix + each for each in wished if each is not None):
        if len(long) > MAX_NAME:
            raise ServerError(
                f"The shape of {name!r} makes the name {long!r}, which has more than {MAX_NAME} characters"
            )


def _back(remote: Upstream, hidden: tuple[str, ...], credentials: tuple[str, ...], mount: Mount) -> Back:
    connection = remote.back_connections.shared.connection
    catalog = remote.catalog
    return Back(
        remote.name,
        remote.availability.state,
        remote.availability.error,
        None if connection is None else connection.revision,
        remote.back_connections.target.transport,
        remote.availability.last_change,
        len(catalog.all("tools")),
        len(catalog.all("prompts")),
        len(catalog.all("resources")) + len(catalog.all("templates")),
        hidden,
        tuple(
            sorted(remote.relay.withheld if remote.components.shows_views else remote.relay.withheld - {UI_EXTENSION})
        ),
        remote.guard.state,
        remote.back_connections.count,
        remote.guard.waiting + remote.back_connections.waiting,
        credentials,
        {} if remote.back_connections.urls is None else remote.back_connections.urls.errors,
        tuple(each.text for each in mount.faults) if isinstance(mount, ShapedMount) else (),
        tuple(mount.quarantined) if isinstance(mount, ShapedMount) else (),
        {name: why for each in (catalog, *catalog.family()) for name, why in each.left_out.items()},
    )


def _api_back(name: str, catalog: Catalog, hidden: tuple[str, ...], credentials: tuple[str, ...], mount: Mount) -> Back:
    """Return an API as an operator sees it. It is asked for nothing before somebody calls it."""
    return Back(
        name,
        "ready",
        None,
        None,
        "openapi",
        None,
        len(catalog.listed("tools")),
        0,
        0,
        hidden,
        credentials=credentials,
        faults=tuple(each.text for each in mount.faults) if isinstance(mount, ShapedMount) else (),
        quarantined=tuple(mount.quarantined) if isinstance(mount, ShapedMount) else (),
    )


def _prefix(name: str, options: UpstreamOptions) -> str:
    return f"{name}_" if options.prefix is None else options.prefix


def _find_place(target: TargetLike | None, options: UpstreamOptions) -> Target:
    """Return the place of a server. Raise `ValueError` or `TypeError` for what is none."""
    found = TargetOptions(**{name: getattr(options, name) for name in TargetOptions.__struct_fields__})
    if not options.urls:
        return resolve(cast("TargetLike", target), found)
    from toolwire.gateway.back_urls import SeveralUrls

    first = [] if target is None else [target]
    if isinstance(options.urls, str) or not all(isinstance(each, str) for each in (*first, *options.urls)):
        raise ValueError("urls= are the addresses of one server, as a list of texts")
    found.only("headers", "auth", "tls", "proxy", kind="a server that is reached by URL")
    urls = [*cast("list[str]", first), *options.urls]
    return SeveralUrls(urls, headers=found.headers, auth=found.auth, tls=found.tls, proxy=found.proxy)


def _make_protection(name: str, options: UpstreamOptions) -> UpstreamLimits:
    if options.breaker is False and options.health is not None:
        raise ServerError(f"{name!r} has health= without a breaker, which acts on it")
    breaker = Breaker() if options.breaker is True else options.breaker or None
    of_caller, of_all = options.max_calls_per_caller, options.max_calls
    waiting = (options.queue, options.queue_seconds)
    # The limit of one caller comes first, so that the calls of one caller do not fill the common queue.
    slots = () if of_caller is None else (Slots(of_caller, *waiting, "caller"),)
    return UpstreamLimits(breaker, options.health, slots if of_all is None else (*slots, Slots(of_all, *waiting)))


def _kind_of_credential(options: UpstreamOptions) -> str | None:
    """Return the kind of the credential with which calls are made; None where there is none."""
    if options.credentials is not None:
        return type(options.credentials).__name__
    return None if options.auth is None else "auth"


def _make_bounds(options: UpstreamOptions, caller_share: float) -> ConnectionBounds:
    return ConnectionBounds(
        most=options.max_processes,
        idle_seconds=options.idle_seconds,
        queue=0 if options.max_processes is None else options.queue,
        wait=options.queue_seconds,
        of_caller=options.max_calls_per_caller or 0,
        turn_queue=options.queue,
        is_shared=options.isolation == "shared",
        caller_share=caller_share,
    )


def _check_isolation(name: str, isolation: str | None, place: Target, credentials: Kind | None) -> None:
    if isolation not in (None, "conversation", "shared", "principal"):
        text = f"upstream {name!r}: isolation must be 'conversation', 'shared' or 'principal' (got {isolation!r})"
        raise ServerError(text)
    if isolation == "principal" and place.transport != "stdio":
        raise ServerError(f"isolation= of {name!r} is for a command, which has processes")
    if isolation == "shared" and credentials is not None and credentials.is_per_user:
        raise ServerError(f"The accounts of callers of {name!r} cannot be shared: isolation= is 'principal' there")
