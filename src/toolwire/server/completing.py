"""`completion/complete`: finds what suggests values for an argument, or says that there is no such argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError
from toolwire.server.access import Access, View
from toolwire.server.catalog import Catalog
from toolwire.server.context import Context
from toolwire.server.failures import Failures


class Completions:
    """What a server suggests to a caller, of what that caller sees."""

    def __init__(self, catalog: Catalog, access: Access, failures: Failures) -> None:
        self._catalog = catalog
        self._access = access
        self._failures = failures

    async def complete(self, ctx: Context) -> Any:
        params: t.CompleteRequestParams = ctx.params
        reference = params.ref
        is_prompt = isinstance(reference, t.PromptReference)
        name = reference.name if is_prompt else reference.uri  # type: ignore[union-attr]
        kind = "ref/prompt" if is_prompt else "ref/resource"
        found = self._catalog.completion(kind, name, params.argument.name)
        view = self._access.view(ctx._request, ctx._outlet)
        if found is None or (view is not None and self._access.is_hidden(is_prompt, name, view)):
            self._check_completable(is_prompt, name, params.argument.name, view)
            return t.CompleteResult(completion=t.Completion(values=[], total=0, has_more=False))
        completion, owner = found
        ctx._owner = owner
        context = {} if params.context is UNSET or params.context.arguments is UNSET else params.context.arguments
        what = f"the completion of {params.argument.name[:200]}"
        try:
            suggested = completion.complete(ctx, params.argument.value, context)
            return t.CompleteResult(completion=await self._failures.in_time(ctx, suggested, what))
        except Exception as error:
            return await self._failures.answer(ctx, error, what)

    def _check_completable(self, is_prompt: bool, name: str, argument: str, view: View | None) -> None:
        """1.9.4: an unknown prompt, template or argument is an error; a known one without suggestions is not."""
        sees = None if view is None else view.sees
        if is_prompt:
            prompt = self._catalog.prompt(name, sees)
            if prompt is None:
                raise ProtocolError(INVALID_PARAMS, f"Unknown prompt: {name[:200]}")
            names: Sequence[str] = [each.name for each in prompt.component.arguments]
        else:
            templates = self._catalog.all("templates", view)
            if name not in templates:
                if self._catalog.resource(name, sees) is not None:
                    return
                raise ProtocolError(INVALID_PARAMS, f"Unknown resource template: {name[:200]}")
            names = templates[name].component.template.variables
        if argument not in names:
            raise ProtocolError(INVALID_PARAMS, f"{name[:200]} has no argument {argument[:200]!r}")
