"""The operations of an API that become tools, and why the remaining ones do not.

Only chosen operations are turned into definitions when an API is loaded. The remaining ones are read when the list of
all operations is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import chain
from typing import Final

from msgspec import Struct

from toolwire.openapi.definition.names import collision
from toolwire.openapi.definition.selection import OperationSelection
from toolwire.openapi.definition.tool_definitions import ToolDefiner, checked_name, merged_settings
from toolwire.openapi.description.operations import operations_of, root_servers
from toolwire.openapi.lock_file.lock import place_of
from toolwire.openapi.lock_file.locked_operations import LockedTools
from toolwire.openapi.model import (
    ApiDescription,
    DescriptionError,
    LeftOutOperation,
    OperationObject,
    OperationSettings,
    ServerObject,
    ToolDefinition,
)
from toolwire.printable import printable

log: logging.Logger = logging.getLogger("toolwire.openapi")

_LOGGED: Final = 10


class OperationRow(Struct, frozen=True):
    """One operation of an API, with its tool's name or why it has none."""

    method: str
    path: str
    operation: str | None
    """The `operationId`."""
    tool: str | None
    """The name that its tool has, or would have if it were chosen."""
    reason: str | None
    """Why it cannot become a tool; None where it can."""


class ApiOperations:
    """The operations of one description, and the definitions of those that are chosen.

    * `defaults`: settings of the whole API, which stand below those of an operation.
    * `decisions`: settings of a person, by the id of the operation or by method and path (`GET /pets`).
    * `locked`: the tools of a lock file. They are the choice, unless `selection` chooses among them.
    * `decided_by`: the options of the command line that say the decisions, for error texts, by the same labels. None:
      `operations=` says them.
    """

    def __init__(
        self,
        description: ApiDescription,
        definer: ToolDefiner,
        *,
        selection: OperationSelection | None,
        defaults: OperationSettings,
        decisions: Mapping[str, OperationSettings],
        locked: LockedTools | None = None,
        decided_by: Mapping[str, str] | None = None,
    ) -> None:
        self._decided_by = decided_by
        self._definer = definer
        self._selection = selection
        self._defaults = defaults
        self._decisions = decisions
        self._locked = locked
        self._defined: dict[str, ToolDefinition | LeftOutOperation] = {}
        self._root_servers = root_servers(description)
        self.all: list[OperationObject | LeftOutOperation] = operations_of(description)
        """Every operation, in the order of the document."""
        self.readable: list[OperationObject] = [each for each in self.all if isinstance(each, OperationObject)]
        """The operations that can be called by code, chosen or not."""
        self._check_labels()
        if locked is not None:
            locked.find_all(self.all)
        self.chosen: tuple[ToolDefinition, ...] = tuple(self._choose())
        """The definitions of the tools, in the order of the document."""

    @property
    def rows(self) -> list[OperationRow]:
        """Return every operation, chosen or not, in the order of the document."""
        defined = [(each, self._definition(each)) for each in self.all]
        names: dict[str, list[OperationObject]] = {}
        for _, made in defined:
            if isinstance(made, ToolDefinition):
                names.setdefault(made.name, []).append(made.operation)
        return [_row(each, made, names) for each, made in defined]

    def find(self, label: str) -> OperationObject:
        """Find an operation by its id, or by method and path.

        Raises `DescriptionError` where there is none.
        """
        found = next((each for each in self.readable if label in (each.label, _place(each))), None)
        if found is None:
            raise DescriptionError(f"the API has no operation {label[:100]!r}{self._meant(label)}")
        return found

    def selected(self, selection: OperationSelection) -> list[ToolDefinition]:
        """Return the definitions of other operations that a person chose. Raise `DescriptionError` for wrong ones."""
        found = [each for each in self.readable if selection.chooses(each) and self._is_locked(each)]
        self._check_matched(selection)
        return [self.definition(each) for each in found]

    def definition(self, operation: OperationObject) -> ToolDefinition:
        """Return the definition of an operation, chosen or not.

        Raises `DescriptionError` where it can have none.
        """
        made = self._definition(operation)
        if isinstance(made, LeftOutOperation):
            raise DescriptionError(f"{operation.label} cannot become a tool: {made.reason}")
        return made

    def settings(self, operation: OperationObject) -> OperationSettings:
        """Return the decisions of a person about one operation, without those about the whole API."""
        for label in (operation.label, _place(operation)):
            if (found := self._decisions.get(label)) is not None:
                return found
        return OperationSettings()

    @property
    def servers(self) -> Iterable[ServerObject]:
        """Return the servers of the API, of paths and of operations, perhaps with duplicates."""
        return chain(self._root_servers, *(each.servers for each in self.readable))

    # --- choosing ---

    def _choose(self) -> Iterable[ToolDefinition]:
        chosen = [each for each in self.readable if self._is_chosen(each)]
        self._check_matched(self._selection)
        left_out: list[str] = []
        names: dict[str, OperationObject] = {}
        for operation in chosen:
            made = self._definition(operation)
            if isinstance(made, LeftOutOperation):
                if self._is_named(operation) or self._has_values(operation):
                    raise DescriptionError(f"{operation.label} cannot become a tool: {made.reason}")
                left_out.append(f"{operation.label}: {made.reason}")
                continue
            if (other := names.get(made.name)) is not None:
                raise DescriptionError(collision(made.name, (other, operation)))
            names[made.name] = operation
            self._check_arguments(made)
            yield made
        for line in left_out[:_LOGGED]:
            log.warning("an operation that is chosen becomes no tool: %s", printable(line))
        if len(left_out) > _LOGGED:
            log.warning("%d more operations that are chosen become no tools", len(left_out) - _LOGGED)

    def _is_chosen(self, operation: OperationObject) -> bool:
        if not self._is_locked(operation):
            return False
        return self._selection is None or self._selection.chooses(operation)

    def _is_locked(self, operation: OperationObject) -> bool:
        """Return whether an operation may be served: with a lock file, only locked ones."""
        return self._locked is None or self._locked.find(operation) is not None

    def _is_named(self, operation: OperationObject) -> bool:
        """Return whether a person chose this operation itself, and not only its group."""
        return self._locked is not None or (self._selection is not None and self._selection.names(operation))

    def _has_values(self, operation: OperationObject) -> bool:
        """Return whether a person decided values of this operation, which must not be missing unseen."""
        settings = self.settings(operation)
        return settings.enabled is not False and bool(settings.fixed or settings.ask)

    def _check_arguments(self, made: ToolDefinition) -> None:
        """Raise `DescriptionError` where a person named an argument that the operation does not have."""
        if self._decided_by is not None or self._locked is not None:
            return  # A lock file has the names of all arguments, also of those that are gone.
        known = {place_of(each).partition(" (")[0] for each in made.arguments}
        for place in self.settings(made.operation).arguments or ():
            if place not in known:
                raise DescriptionError(
                    f"{made.operation.label}: arguments has {place[:100]!r}, which is not an argument; there are: "
                    f"{', '.join(sorted(known)[:10]) or 'none'}"
                )

    def _check_matched(self, selection: OperationSelection | None) -> None:
        unmatched = [] if selection is None else selection.unmatched
        if unmatched:
            label, text = unmatched[0]
            raise DescriptionError(f"{label} matches no operation of the API{self._meant(text)}")

    def _check_labels(self) -> None:
        known = {label for each in self.readable for label in (each.label, _place(each))}
        for label, settings in self._decisions.items():
            if label not in known:
                option = "operations=" if self._decided_by is None else self._decided_by[label]
                raise DescriptionError(
                    f"{option} has {label[:100]!r}, which is not an operation of the API{self._meant(label)}"
                )
            if settings.name is not None:
                checked_name(settings.name, self.find(label))

    def _meant(self, label: str) -> str:
        known = [label for each in self.all for label in (each.operation_id, _place(each)) if label is not None]
        close = get_close_matches(label, known, 1)
        return f"; did you mean {close[0]!r}?" if close else ": `toolwire openapi list` names all of them"

    # --- defining ---

    def _definition(self, operation: OperationObject | LeftOutOperation) -> ToolDefinition | LeftOutOperation:
        if isinstance(operation, LeftOutOperation):
            return operation
        place = _place(operation)
        made = self._defined.get(place)
        if made is None:
            made = self._defined[place] = self._define(operation)
        return made

    def _define(self, operation: OperationObject) -> ToolDefinition | LeftOutOperation:
        settings = merged_settings(self._defaults, self.settings(operation))
        if self._locked is None or self._locked.find(operation) is None:
            return self._definer.define(operation, settings)
        made = self._definer.define(operation, self._locked.settings(operation, settings))
        return made if isinstance(made, LeftOutOperation) else self._locked.as_locked(made)


def _row(
    operation: OperationObject | LeftOutOperation,
    made: ToolDefinition | LeftOutOperation,
    names: Mapping[str, list[OperationObject]],
) -> OperationRow:
    tool, reason = None, None
    if isinstance(made, LeftOutOperation):
        reason = made.reason
    elif len(names[made.name]) > 1:
        reason = collision(made.name, names[made.name])
    else:
        tool = made.name
    return OperationRow(operation.method, operation.path, operation.operation_id, tool, reason)


def _place(operation: OperationObject | LeftOutOperation) -> str:
    return f"{operation.method} {operation.path}"
