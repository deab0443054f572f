"""Stores of other distributions, found by the scheme of their address."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from types import FunctionType
from typing import Any, Final

from toolwire.protocol.errors import ServerError
from toolwire.stores.memory import KV, Bus, Log
from toolwire.stores.queue import Queue
from toolwire.stores.stores import Stores

#: The group of entry points: the name is the scheme, the object is called with the address and the limits.
GROUP: Final = "toolwire.stores"

_PROTOCOLS: Final[dict[str, type]] = {"kv": KV, "log": Log, "bus": Bus, "queue": Queue}


def open_installed(scheme: str, address: str, limits: Mapping[str, int], known: Iterable[str]) -> Stores:
    """Make the stores of an installed distribution. Raise `ServerError`, which repeats nothing of the address.

    `known` are the schemes of Toolwire itself, for the error about an unknown one.
    """
    installed = entry_points(group=GROUP)
    found = tuple(entry for entry in installed if entry.name == scheme)
    if not found:
        schemes = ", ".join(f"{each}://" for each in (*known, *sorted({entry.name for entry in installed})))
        raise ServerError(
            f"No store has addresses that begin with {scheme}://. Use one of {schemes}, or the path of a SQLite file"
        )
    if len(found) > 1:
        raise ServerError(
            f"Several installed stores have addresses that begin with {scheme}://: "
            f"{', '.join(map(_show_entry, found))}. Uninstall all but one"
        )
    return _make_stores(f"The store of {scheme}:// ({_show_entry(found[0])})", found[0], address, limits)


def _show_entry(entry: EntryPoint) -> str:
    return f"{entry.value} of {entry.dist.name}" if entry.dist is not None else entry.value


def _make_stores(label: str, entry: EntryPoint, address: str, limits: Mapping[str, int]) -> Stores:
    try:
        make: Callable[..., Any] = entry.load()
    except Exception as error:
        raise ServerError(f"{label} cannot be loaded: {error}") from error
    if not callable(make):
        raise ServerError(f"{label} is not a class or a function")
    if not _accepts(make, address, limits):
        given = f" and the limits {', '.join(limits)}" if limits else ""
        raise ServerError(f"{label} cannot be called with an address{given}")
    stores = make(address, **limits)
    if not isinstance(stores, Stores):
        raise ServerError(f"{label} makes an object that is not a toolwire.stores.Stores")
    _require_methods(label, stores)
    return stores


def _accepts(make: Callable[..., Any], address: str, limits: Mapping[str, int]) -> bool:
    try:
        inspect.signature(make).bind(address, **limits)
    except TypeError:
        return False
    except ValueError:
        return True  # A class of C has no signature to look at.
    return True


def _require_methods(label: str, stores: Stores) -> None:
    """Raise `ServerError` where a part of the stores lacks a method of its protocol."""
    for name, protocol in _PROTOCOLS.items():
        part = getattr(stores, name, None)
        methods = [each for each, value in vars(protocol).items() if isinstance(value, FunctionType) and each[0] != "_"]
        missing = [each for each in methods if not callable(getattr(part, each, None))]
        if missing:
            raise ServerError(f"{label} has no {protocol.__name__} in its {name}: {', '.join(missing)} missing")
