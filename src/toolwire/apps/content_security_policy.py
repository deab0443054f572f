"""Origins that a view may reach, and the headers made of them: Content-Security-Policy and Connection-Allowlist.

A server writes the origins, and a host makes a header of them. So each origin is parsed, and the policy is made of the
parts that were found. No text of a server stands in a policy as it came. "Clause" in the comments names a section of
specification/2026-01-26/apps.mdx of modelcontextprotocol/ext-apps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from toolwire.protocol.errors import ServerError
from toolwire.schemas.wording import nearest

#: How many origins one list may have. A policy is a header, and servers and proxies bound those.
MAX_ORIGINS: Final = 100
_MAX_HOST: Final = 253

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ORIGIN: Final = re.compile(
    rf"(?P<scheme>[a-z]+)://(?P<wildcard>\*\.)?(?P<host>{_LABEL}(?:\.{_LABEL})*)(?::(?P<port>[0-9]{{1,5}}))?",
    re.ASCII | re.IGNORECASE,
)
_NUMBERS: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_LOCAL: Final = frozenset({"localhost", "127.0.0.1"})


class Origin(NamedTuple):
    """An origin, or all origins of the subdomains of a host."""

    scheme: str
    host: str
    port: int | None
    is_wildcard: bool

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{'*.' if self.is_wildcard else ''}{self.host}{port}"


def parse_origin(text: Any) -> Origin:
    """Parse `https://api.shop.example`, `https://*.shop.example:8443` or `http://localhost:3000`.

    Raise `ValueError` for anything else, with the reason.
    """
    if not isinstance(text, str):
        raise ValueError("an origin is a text")
    if len(text) > _MAX_HOST + 20:
        raise ValueError("it is too long")
    found = _ORIGIN.fullmatch(text)
    if found is None:
        raise ValueError(_mistake(text))
    scheme, host, wildcard = found["scheme"].lower(), found["host"].lower(), found["wildcard"] is not None
    port = None if found["port"] is None else int(found["port"])
    if len(host) > _MAX_HOST:
        raise ValueError("its host is too long")
    if port is not None and not 1 <= port <= 65535:
        raise ValueError("a port is 1 to 65535")
    labels = host.split(".")
    is_address = _NUMBERS.fullmatch(labels[-1]) is not None
    if is_address and not _is_ipv4(labels):
        raise ValueError("its host is a number that browsers read as another address")
    if wildcard and (is_address or len(labels) < 2):
        raise ValueError("a wildcard stands before a domain of at least two names, as in https://*.shop.example")
    if scheme == "http" and host not in _LOCAL:
        raise ValueError("http is for localhost alone: use https")
    if scheme not in ("https", "wss", "http"):
        raise ValueError("its scheme is https or wss")
    return Origin(scheme, host, port, wildcard)


def _is_ipv4(labels: list[str]) -> bool:
    return len(labels) == 4 and all(each.isdecimal() and str(int(each)) == each and int(each) < 256 for each in labels)


def _mistake(text: str) -> str:
    """Return why a text is not an origin.

    The text itself is not repeated: it may be meant to break the message.
    """
    if not text.isascii():
        return "write the host in ASCII: an international name starts with xn--"
    if "://" not in text:
        return "it has no scheme: write https:// before the host"
    if "@" in text:
        return "an origin has no user name and no password"
    if re.search(r"""[\s'";,\\\x00-\x1f]""", text):
        return "it has a character that a policy gives another meaning"
    if text.count("/") > 2 or "?" in text or "#" in text:
        return "an origin ends with its host or its port: leave out the slash and everything after it"
    return "it is not https://host or https://host:port"


#: The names of the lists on the wire, by the names that they have in `Csp`.
_WIRE_NAMES: Final = {
    "connect": "connectDomains",
    "resource": "resourceDomains",
    "frame": "frameDomains",
    "base_uri": "baseUriDomains",
    "link": "linkTrustedDomains",
}


class Csp(Struct, frozen=True, kw_only=True):
    """The origins that a view may reach: `Csp(connect=["https://api.shop.example"])`.

    Each origin is `https://host`, `https://host:port` or `https://*.domain`; `wss://` is for web sockets, and `http://`
    for localhost alone.
    """

    connect: Sequence[str] = ()
    """Origins that scripts of the view send requests to (`connect-src`)."""
    resource: Sequence[str] = ()
    """Origins that scripts, styles, images, fonts and media come from."""
    frame: Sequence[str] = ()
    """Origins of pages inside the view (`frame-src`)."""
    base_uri: Sequence[str] = ()
    """Origins that `<base href>` may name (`base-uri`)."""
    link: Sequence[str] = ()
    """Origins that some hosts open links to without asking."""

    def __post_init__(self) -> None:
        for name in _WIRE_NAMES:
            given = getattr(self, name)
            if isinstance(given, str | bytes) or not isinstance(given, Sequence):
                raise ServerError(f"{name}= of Csp is a list of origins, not {type(given).__name__}")
            if len(given) > MAX_ORIGINS:
                raise ServerError(f"{name}= of Csp has more than {MAX_ORIGINS} origins")
            checked = []
            for each in given:
                try:
                    checked.append(str(parse_origin(each)))
                except ValueError as error:
                    raise ServerError(f"{name}= of Csp cannot have {str(each)[:100]!r}: {error}") from None
            msgspec.structs.force_setattr(self, name, tuple(dict.fromkeys(checked)))

    @classmethod
    def of(cls, given: Csp | Mapping[str, Any]) -> Csp:
        """Make a `Csp` of a mapping with the names of the wire."""
        if isinstance(given, Csp):
            return given
        if not isinstance(given, Mapping):
            raise ServerError(f"csp= is a Csp, not {type(given).__name__}")
        names = {wire: name for name, wire in _WIRE_NAMES.items()}
        for key in given:
            if key not in names:
                meant = nearest(str(key), names)
                told = f"did you mean {meant!r}?" if meant else f"there are {', '.join(names)}"
                raise ServerError(f"csp= has no member {str(key)[:100]!r}; {told}")
        return cls(**{names[key]: value for key, value in given.items()})

    def to_wire(self) -> dict[str, list[str]]:
        """Return `_meta.ui.csp`."""
        return {wire: list(getattr(self, name)) for name, wire in _WIRE_NAMES.items() if getattr(self, name)}


class HostPolicy(NamedTuple):
    """The policy of one view, as a host enforces it."""

    header: str
    """The value of `Content-Security-Policy`."""
    refused: list[tuple[str, str]]
    """The members of `_meta.ui.csp` that are left out, each with the reason."""
    granted: dict[str, list[str]]
    """The origins that hold, under the names of the wire, for `hostCapabilities.sandbox.csp`."""
    connections: str
    """The value of `Connection-Allowlist`: the same origins, for what no Content-Security-Policy governs."""


def host_policy(csp: Any, *, refuse: Callable[[Origin], str | None] | None = None) -> HostPolicy:
    """Return the Content-Security-Policy for a view that declares this `_meta.ui.csp`.

    The value may be anything. What is not an origin is left out, with the reason. What is left out can only make the
    policy stricter. `refuse` says why the host does not grant an origin; None where it does.
    """
    refused: list[tuple[str, str]] = []
    granted: dict[str, list[str]] = {}
    declared = csp if isinstance(csp, Mapping) else {}
    if csp is not None and not isinstance(csp, Mapping):
        refused.append(("csp", "it is not an object"))
    for name, wire in _WIRE_NAMES.items():
        given = declared.get(wire)
        if name == "link" or given is None:
            continue  # Links are no part of a policy.
        if not isinstance(given, list):
            refused.append((wire, "it is not a list"))
            continue
        if len(given) > MAX_ORIGINS:
            refused.append((wire, f"it has more than {MAX_ORIGINS} origins"))
        for each in given[:MAX_ORIGINS]:
            try:
                origin = parse_origin(each)
                reason = None if refuse is None else refuse(origin)
            except ValueError as error:
                reason = str(error)
            if reason is not None:
                refused.append((f"{wire}: {str(each)[:100]!r}", reason))
            elif str(origin) not in (kept := granted.setdefault(wire, [])):
                kept.append(str(origin))
    resources = granted.get("resourceDomains", [])
    # Clause "Host Behavior" of the resource: the defaults, and what each list adds to them.
    directives: dict[str, list[str]] = {
        "default-src": ["'none'"],
        "script-src": ["'self'", "'unsafe-inline'", *resources],
        "style-src": ["'self'", "'unsafe-inline'", *resources],
        "img-src": ["'self'", "data:", *resources],
        "media-src": ["'self'", "data:", *resources],
        "font-src": resources or ["'none'"],
        "connect-src": granted.get("connectDomains") or ["'none'"],
        "frame-src": granted.get("frameDomains") or ["'none'"],
        "object-src": ["'none'"],
        "base-uri": granted.get("baseUriDomains") or ["'self'"],
        # A form that is sent is a way out that `connect-src` does not close. A host may restrict further.
        "form-action": ["'none'"],
        # So is WebRTC. No browser of today has this directive: decision 0087 says what our hosts do instead.
        "webrtc": ["'block'"],
    }
    header = "; ".join(f"{name} {' '.join(sources)}" for name, sources in directives.items())
    return HostPolicy(header, refused, granted, _list_connections(granted))


def _list_connections(granted: Mapping[str, Sequence[str]]) -> str:
    """Return the value of `Connection-Allowlist` for the origins that a view is granted."""
    reached = [each for name in ("connectDomains", "resourceDomains", "frameDomains") for each in granted.get(name, [])]
    # A web socket is compared by the scheme of its handshake.
    patterns = dict.fromkeys(f'"{each.replace("wss://", "https://")}"' for each in reached)
    # Redirects are left to the Content-Security-Policy, which compares each address on the way.
    return f"({' '.join(['response-origin', *patterns])}); redirects=allow"


#: The permissions of a view on the wire, each with its name in Permissions-Policy.
PERMISSIONS: Final = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}


def permissions_to_wire(names: str | Sequence[str] | Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return `_meta.ui.permissions`; raise `ServerError` for a permission that there is not."""
    wire: dict[str, dict[str, Any]] = {}
    for name in [names] if isinstance(names, str) else names:
        known = {_letters(each): each for each in PERMISSIONS}
        found = known.get(_letters(str(name)))
        if found is None:
            raise ServerError(f"permissions= has no {str(name)[:100]!r}; there are {', '.join(PERMISSIONS)}")
        wire[found] = {}
    return wire


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def allow_attribute(permissions: Any) -> str:
    """Return the `allow` attribute of the frame of a view. Unknown permissions are left out."""
    named = permissions if isinstance(permissions, Mapping) else {}
    return "; ".join(feature for name, feature in PERMISSIONS.items() if isinstance(named.get(name), Mapping))
