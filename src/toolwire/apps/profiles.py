"""Known hosts of views: what they declare, and how they differ from the specification."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from toolwire._version import __version__
from toolwire.apps.bridge import WIRE_VERSION, DisplayMode
from toolwire.apps.content_security_policy import HostPolicy, Origin, host_policy
from toolwire.apps.served import CLAUDE_DOMAIN, claude_domain
from toolwire.apps.styles import STYLES
from toolwire.protocol import types as t
from toolwire.protocol.apps import OPENAI_KEY, SCHEME, is_app_type, view_address

Theme: TypeAlias = Literal["light", "dark"]
ProfileName: TypeAlias = Literal["claude", "chatgpt"]

#: The MIME type of the first views in ChatGPT.
_SKYBRIDGE: Final = "text/html+skybridge"
#: The key of the policy of a view that ChatGPT had before `_meta.ui.csp`, and its members under their new names.
_WIDGET_CSP: Final = "openai/widgetCSP"
_WIDGET_MEMBERS: Final = {
    "connect_domains": "connectDomains",
    "resource_domains": "resourceDomains",
    "frame_domains": "frameDomains",
}
NO_INSETS: Final = {"top": 0, "right": 0, "bottom": 0, "left": 0}
_HASHED: Final = re.compile(rf"[0-9a-f]{{32}}\.{re.escape(CLAUDE_DOMAIN)}")


class HostProfile(Struct, frozen=True, kw_only=True):
    """The differences of one host from the specification, as far as they are known."""

    name: str
    label: str = ""
    """The name of the host for people."""
    about: str = ""
    """The differences to the specification, in a sentence for people."""
    hides_until_ready: bool = False
    """Whether the frame stays hidden until `ui/notifications/initialized`."""
    display_modes: tuple[DisplayMode, ...] = ("inline", "fullscreen", "pip")
    ignored_csp: frozenset[str] = frozenset()
    """The members of `_meta.ui.csp` that the host does not honour."""
    checks_domain: bool = False
    """Whether a `domain` that is not the one of Claude leaves the view blank."""
    has_openai: bool = False
    """Whether the view has `window.openai`, and the older keys of ChatGPT are read."""

    def address(self, meta: Any) -> str | None:
        """Return the address of a tool's view, from its `_meta`, as this host finds it."""
        found = view_address(meta)
        alias = meta.get(OPENAI_KEY) if self.has_openai and isinstance(meta, Mapping) else None
        return alias if found is None and isinstance(alias, str) and alias.startswith(SCHEME) else found

    def shows(self, mime_type: Any) -> bool:
        """Return whether this host shows contents of this type."""
        return is_app_type(mime_type) or (self.has_openai and mime_type == _SKYBRIDGE)

    def csp_of(self, ui: Mapping[str, Any], meta: Any) -> Any:
        """Return the origins that this host reads from the `_meta` of a view.

        `ui` is the member `ui` of it.
        """
        older = meta.get(_WIDGET_CSP) if self.has_openai and isinstance(meta, Mapping) else None
        if "csp" in ui or not isinstance(older, Mapping):
            return ui.get("csp")
        return {name: older[key] for key, name in _WIDGET_MEMBERS.items() if key in older}

    def policy(self, csp: Any, *, refuse: Callable[[Origin], str | None] | None = None) -> HostPolicy:
        """Return the policy that this host gives a view with this `csp`.

        `refuse` is that of `host_policy`.
        """
        if not isinstance(csp, Mapping):
            return host_policy(csp)
        honoured = {name: value for name, value in csp.items() if name not in self.ignored_csp}
        made = host_policy(honoured, refuse=refuse)
        ignored = [(name, f"{self.name} ignores it") for name in csp if name in self.ignored_csp]
        return made._replace(refused=[*made.refused, *ignored])

    def refuses(self, ui: Mapping[str, Any], endpoint: str | None) -> str | None:
        """Return why the host does not show a view with this `_meta.ui`, or None."""
        domain = ui.get("domain")
        if not self.checks_domain or domain is None:
            return None
        if not isinstance(domain, str) or _HASHED.fullmatch(domain) is None:
            return f"{self.name} shows no view whose domain is not HASH.{CLAUDE_DOMAIN}, such as {str(domain)[:100]!r}"
        if endpoint is not None and domain != claude_domain(endpoint):
            return f"{self.name} shows no view of {endpoint} with the domain {domain}: use {claude_domain(endpoint)}"
        return None


#: The specification, and nothing else.
PLAIN: Final = HostProfile(
    name="toolwire", label="Specification", about="A host as the specification of 2026-01-26 has it."
)
#: claude-ai-mcp, issues 40 and 54: frames are blocked, declared or not. laravel/mcp, issue 218: the rule of domains.
#: Issue 61: the frame stays hidden until the handshake is complete.
CLAUDE: Final = HostProfile(
    name="claude",
    label="Claude",
    about="The frame is hidden until ui/notifications/initialized, frameDomains have no effect, and a wrong domain"
    " blanks the view.",
    hides_until_ready=True,
    display_modes=("inline", "fullscreen"),
    ignored_csp=frozenset({"frameDomains"}),
    checks_domain=True,
)
CHATGPT: Final = HostProfile(
    name="chatgpt",
    label="ChatGPT",
    about="The page gets window.openai, and openai/outputTemplate and openai/widgetCSP are read, too.",
    has_openai=True,
)
_PROFILES: Final = {"claude": CLAUDE, "chatgpt": CHATGPT}


def profile_of(name: ProfileName | HostProfile | None) -> HostProfile:
    """Return the profile of a host by its name."""
    if name is None:
        return PLAIN
    if isinstance(name, HostProfile):
        return name
    if name not in _PROFILES:
        raise ValueError(f"profile= is one of {', '.join(_PROFILES)}, not {str(name)[:100]!r}")
    return _PROFILES[name]


class HostSettings(Struct, frozen=True, kw_only=True):
    """The surroundings of a view, which its host tells it as `hostContext`."""

    theme: Theme = "light"
    locale: str = "en-US"
    time_zone: str = "UTC"
    width: int = 720
    """The width of the frame, in pixels."""
    max_height: int = 6000
    """The height up to which the frame follows the view."""
    display_mode: DisplayMode = "inline"
    styles: Mapping[str, str] | None = None
    """The CSS variables of the host; those of `STYLES` where it is None."""
    others: Mapping[str, Any] = {}
    """Further members of `hostContext`."""

    def __post_init__(self) -> None:
        for name, given, allowed in (
            ("theme", self.theme, get_args(Theme)),
            ("display_mode", self.display_mode, get_args(DisplayMode)),
        ):
            if given not in allowed:
                raise ValueError(f"{name}= is one of {', '.join(allowed)}, not {str(given)[:100]!r}")
        if not 1 <= self.width <= 10_000:
            raise ValueError(f"width= is 1 to 10,000 pixels, not {self.width}")

    def context(self, tool: t.Tool, profile: HostProfile) -> dict[str, Any]:
        """Return `hostContext` for a view that shows a call of this tool."""
        return {
            "toolInfo": {"tool": tool.to_dict()},
            "theme": self.theme,
            "styles": {"variables": dict(STYLES if self.styles is None else self.styles)},
            "displayMode": self.display_mode,
            "availableDisplayModes": list(profile.display_modes),
            "containerDimensions": {"width": self.width, "maxHeight": self.max_height},
            "locale": self.locale,
            "timeZone": self.time_zone,
            "userAgent": f"{profile.name}/{__version__}",
            "platform": "web",
            "deviceCapabilities": {"touch": False, "hover": True},
            "safeAreaInsets": dict(NO_INSETS),
            **self.others,
        }


def initialize_result(
    profile: HostProfile, context: Mapping[str, Any], *, csp: Mapping[str, Any], permissions: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the answer to `ui/initialize`. `csp` and `permissions` are what the host granted."""
    blocks: dict[str, Any] = {"text": {}, "image": {}, "audio": {}, "resource": {}, "resourceLink": {}}
    return {
        "protocolVersion": WIRE_VERSION,
        "hostInfo": {"name": profile.name, "version": __version__},
        "hostCapabilities": {
            "openLinks": {},
            "downloadFile": {},
            "serverTools": {},
            "serverResources": {},
            "logging": {},
            "sandbox": {"permissions": dict(permissions), "csp": dict(csp)},
            "updateModelContext": {**blocks, "structuredContent": {}},
            "message": blocks,
        },
        "hostContext": dict(context),
    }


def openai_globals(
    context: Mapping[str, Any], arguments: Mapping[str, Any], result: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values that `window.openai` has when a page starts.

    `result` is empty while the tool runs.
    """
    box = context.get("containerDimensions", {})
    return {
        "theme": context["theme"],
        "locale": context["locale"],
        "displayMode": context["displayMode"],
        "maxHeight": box.get("maxHeight", box.get("height")),
        "safeArea": {"insets": dict(NO_INSETS)},
        "userAgent": {
            "device": {"type": "mobile" if context["platform"] == "mobile" else "desktop"},
            "capabilities": context["deviceCapabilities"],
        },
        "toolInput": dict(arguments),
        "toolOutput": result.get("structuredContent"),
        "toolResponseMetadata": result.get("_meta"),
        "widgetState": None,
    }
