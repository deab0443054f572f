"""The context of a view that a user can switch: theme, size, language, and more."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from toolwire.apps.bridge import DisplayMode
from toolwire.apps.profiles import Theme

#: The most pixels that a side of a view may have.
MAX_PIXELS: Final = 20_000

_Pixels: TypeAlias = Annotated[float, Meta(ge=1, le=MAX_PIXELS)]
_Name: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_+/-]{1,64}$")]


class Dimensions(Struct, rename="camel", omit_defaults=True, frozen=True):
    """The box of a view: a side is fixed (`width`), or bounded (`max_width`), or free."""

    width: _Pixels | None = None
    height: _Pixels | None = None
    max_width: _Pixels | None = None
    max_height: _Pixels | None = None


class ViewSettings(Struct, rename="camel", kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The part of a view's context that the page decides."""

    theme: Theme = "light"
    locale: _Name = "en-US"
    time_zone: _Name = "UTC"
    platform: Literal["web", "desktop", "mobile"] = "web"
    touch: bool = False
    display_mode: DisplayMode = "inline"
    container_dimensions: Dimensions = msgspec.field(default_factory=Dimensions)

    def to_wire(self) -> dict[str, Any]:
        """Return the members of `hostContext` that these settings decide."""
        return {
            "theme": self.theme,
            "locale": self.locale,
            "timeZone": self.time_zone,
            "platform": self.platform,
            "deviceCapabilities": {"touch": self.touch, "hover": not self.touch},
            "displayMode": self.display_mode,
            "containerDimensions": msgspec.to_builtins(self.container_dimensions),
        }

    def changed_from(self, before: ViewSettings) -> dict[str, Any]:
        """Return the members of `hostContext` that have changed."""
        old = before.to_wire()
        return {name: value for name, value in self.to_wire().items() if value != old[name]}
