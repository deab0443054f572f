"""Arguments in another form: the way from the arguments of a caller to those of the mounted server, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import UNSET

from toolwire.protocol.errors import ServerError
from toolwire.server.shaping.schemas import with_note
from toolwire.server.shaping.shapes import ArgumentShape


class ArgumentMistake(ServerError):
    """A mistake in the shape of one argument."""

    def __init__(self, text: str, argument: str) -> None:
        super().__init__(text)
        self.argument: str = argument


class Arguments:
    """The arguments of one tool or prompt, under the names of the mounted server, and their shapes."""

    def __init__(self, names: Iterable[str], shapes: Mapping[str, ArgumentShape]) -> None:
        """Raise `ArgumentMistake` for a shape of an argument that does not exist, and for a name that two have."""
        known = list(names)
        for name in shapes:
            if name not in known:
                raise ArgumentMistake(f"it has no argument {name!r}{nearest(name, known)}", name)
        self._shapes = shapes
        self._public: dict[str, str] = {}
        """The names that callers use, with those of the mounted server."""
        self.fixed: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        for name in known:
            shape = shapes.get(name, _AS_IT_IS)
            if shape.fixed is not UNSET:
                self.fixed[name] = shape.fixed
            elif shape.default is not UNSET:
                # Nobody can give a hidden argument, so that its default is what every call gets.
                (self.fixed if shape.hidden else self.defaults)[name] = shape.default
            if not shape.is_withheld:
                public = shape.rename or name
                if public in self._public:
                    raise ArgumentMistake(f"two of its arguments would be {public!r}", name)
                self._public[public] = name
        self._names: dict[str, str] = {name: public for public, name in self._public.items()}

    def public_argument(self, name: str) -> str | None:
        """Return the name that callers use for an argument; None for one that they cannot give."""
        return self._names.get(name)

    @property
    def public_names(self) -> list[str]:
        return list(self._public)

    def is_required(self, name: str) -> bool:
        """Return whether a required argument is still required from a caller."""
        return name not in self.fixed and name not in self.defaults

    def described(self, name: str, schema: Any) -> Any:
        """Return the schema of an argument as callers see it."""
        shape = self._shapes.get(name)
        return schema if shape is None else with_note(schema, shape.description, shape.default)

    def description(self, name: str) -> str | None:
        """Return the description that replaces the one of the mounted server."""
        shape = self._shapes.get(name)
        return None if shape is None else shape.description

    def unknown(self, given: Iterable[str]) -> list[str]:
        """Return the names of arguments that callers cannot give."""
        return [name for name in given if name not in self._public]

    def to_original(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for the mounted server. Those that a caller cannot give are left out."""
        named = {self._public[name]: value for name, value in given.items() if name in self._public}
        return {**self.defaults, **named, **self.fixed}

    def from_original(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as a caller gives them."""
        return {self._names[name]: value for name, value in arguments.items() if name in self._names}


_AS_IT_IS = ArgumentShape()


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the words that point to the nearest known name; empty where none is near."""
    close = get_close_matches(name, list(known), 1)
    return f": did you mean {close[0]!r}?" if close else ""
