"""`completion/complete`: finds what suggests values for an argument, or says that there is no such argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError
from toolwire.server.call import Call
from toolwire.server.call_target import target_of
from toolwire.server.catalog import Catalog, Found
from toolwire.server.completion import matching
from toolwire.server.components import Resource
from toolwire.server.failures import Failures


class Completions:
    """The suggestions of a server for the arguments of what a caller sees."""

    def __init__(self, catalog: Catalog, failures: Failures) -> None:
        self._catalog = catalog
        self._failures = failures

    async def complete(self, call: Call) -> Any:
        params: t.CompleteRequestParams = call.params
        reference, argument = params.ref, params.argument.name
        is_prompt = isinstance(reference, t.PromptReference)
        name = reference.name if is_prompt else reference.uri  # type: ignore[union-attr]
        # The component comes first: only the servers on the way to it suggest anything.
        target = target_of(call)
        found = None if target is None else target.found
        if found is None:
            # 1.9.4: an unknown prompt, template or argument is an error.
            raise ProtocolError(
                INVALID_PARAMS, f"Unknown {'prompt' if is_prompt else 'resource template'}: {name[:200]}"
            )
        kind = "ref/prompt" if is_prompt else "ref/resource"
        suggesting = self._catalog.completion(kind, name, argument, found.way)
        if suggesting is None:
            choices = _choices(found, name, argument)
            return t.CompleteResult(completion=matching(choices, params.argument.value))
        completion, owner = suggesting
        call.owner = owner
        context = {} if params.context is UNSET or params.context.arguments is UNSET else params.context.arguments
        what = f"the completion of {argument[:200]}"
        try:
            suggested = completion.complete(call, params.argument.value, context)
            return t.CompleteResult(completion=await self._failures.in_time(call, suggested, what, guarded=True))
        except Exception as error:
            return await self._failures.answer(call, error, what)


def _choices(found: Found[Any], name: str, argument: str) -> Sequence[str]:
    """What the type of an argument allows, where nobody suggests anything."""
    component = found.component
    if isinstance(component, Resource):
        return ()  # It has no arguments, and clients ask all the same.
    if argument not in component.completable:
        raise ProtocolError(INVALID_PARAMS, f"{name[:200]} has no argument {argument[:200]!r}")
    choices: Sequence[str] = component.choices.get(argument, ())
    return choices
