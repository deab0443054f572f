"""The state of the configuration of a gateway, and what a reload changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from toolwire.gateway.config.file_content import Source
    from toolwire.gateway.config.reading import GatewayFile


class Reloaded(Struct, frozen=True):
    """The changes that a reload made."""

    added: tuple[str, ...] = ()
    """The servers that are new."""
    changed: tuple[str, ...] = ()
    """The servers whose entries changed, and that were replaced."""
    removed: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """The other keys that changed, and are in force."""
    restart: tuple[str, ...] = ()
    """The keys that differ from those in force, and are in force after a restart."""

    def __str__(self) -> str:
        parts = [f"{name}: {', '.join(keys)}" for name in self.__struct_fields__ if (keys := getattr(self, name))]
        return "; ".join(parts).replace("restart: ", "needs a restart: ") or "nothing changed"


class ConfigurationStatus(Struct, frozen=True):
    """The state of a configuration, as an operator sees it."""

    file: str | None
    """The path of the file; None for a configuration that a program made."""
    loaded: float
    """When the configuration in force was loaded, in seconds since 1970."""
    reloads: int
    """How often the configuration changed since the start."""
    error: str | None
    """Why the file as it is now is not in force, with line and key; None if it is."""
    restart: tuple[str, ...]
    """The keys of the file that are in force after a restart."""


class FollowedConfiguration(Protocol):
    """The configuration of a gateway that was made from a file (see `toolwire.gateway.config.configuration`)."""

    @property
    def file(self) -> GatewayFile:
        """The file that is in force."""

    @property
    def status(self) -> ConfigurationStatus: ...

    async def reload(self, source: Source | None = None) -> Reloaded:
        """Take over what a file says now, and return what changed."""

    def follow_file(self) -> None:
        """Have the gateway watch its file for as long as it runs."""

    def look(self) -> None:
        """Load the file again now, whether it changed or not."""
