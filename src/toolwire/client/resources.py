"""The resources, prompts and completions of a server, and subscriptions to their changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from toolwire.client.connection import OnProgress
from toolwire.client.errors import ResourceNotFound, is_resource_not_found
from toolwire.client.listen import Subscription, subscribe, unsubscribe
from toolwire.client.listing import Lists
from toolwire.client.requests import encode_arguments, reader
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.shaping import shape

# Tasks are an extension, whose member the type knows.
_FILTERS: Final = frozenset(t.SubscriptionFilter.__struct_encode_fields__) - {"taskIds"}

Reference = t.PromptReference | t.ResourceTemplateReference

_read_contents = reader(t.ReadResourceResult)
_read_prompt = reader(t.GetPromptResult)
_read_completion = reader(t.CompleteResult)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else encode_arguments(value).decode()


def _extension_filters(extensions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members as plain JSON. Raise `ValueError` for one that the protocol has."""
    taken = [name for name in extensions if name in _FILTERS]
    if taken:
        raise ValueError(f"{taken[0]} belongs to the protocol, not to an extension: listen() has an argument for it")
    filters: dict[str, Any] = msgspec.json.decode(encode_arguments(dict(extensions)))
    return filters


class Reading(Lists):
    """The part of a client that reads resources, prompts and completions."""

    _subscribed: dict[str, None]

    # --- resources ---

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[t.ResourceContents]:
        """Return the contents of a resource: usually one, several for something like a directory.

        Raise `ResourceNotFound` when the server has no resource at this URI.
        """
        params = t.ReadResourceRequestParams(uri=uri)
        try:
            result = await self._ask(
                "resources/read",
                params,
                _read_contents,
                timeout=timeout,
                on_progress=on_progress,
                meta=meta,
                headers=headers,
            )
        except ProtocolError as error:
            if not is_resource_not_found(error):
                raise
            raise ResourceNotFound(error.message, error.data, code=error.code) from None
        return result.contents

    async def subscribe(self, uri: str, *, timeout: float | None = None) -> None:
        """Subscribe to updates of a resource, before 2026-07-28. They arrive at `listen(resources=[...])`."""
        clock = self._clock(timeout)
        connection = await self._connector.usable(clock)
        if uri not in self._subscribed:
            await subscribe(connection, uri, clock.limit("resources/subscribe"))
            self._subscribed[uri] = None

    async def unsubscribe(self, uri: str, *, timeout: float | None = None) -> None:
        clock = self._clock(timeout)
        connection = await self._connector.usable(clock)
        if uri not in self._subscribed and uri in connection.subscribed:
            return  # It is one of `listen()`, which ends it.
        self._subscribed.pop(uri, None)
        await unsubscribe(connection, uri, clock.limit("resources/unsubscribe"))

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources_list: bool = False,
        resources: Sequence[str] = (),
        extensions: Mapping[str, Any] | None = None,
    ) -> Subscription:
        """Listen for changes, on every revision: `async for change in client.listen(tools=True): ...`.

        `extensions` are members that extensions add to the filter: `{"notesChanged": True}`. Before 2026-07-28 nobody
        can ask for them, and all notifications of extensions that the server sends count. Enter it with `async with` to
        be sure that it is open before you go on.
        """
        if isinstance(resources, str):
            raise TypeError("resources= is a list of URIs")
        if not (tools or prompts or resources_list or resources or extensions):
            raise ValueError(
                "listen() needs something to listen for: tools=, prompts=, resources_list=, resources= or extensions="
            )
        wanted = t.SubscriptionFilter(
            tools_list_changed=tools or UNSET,
            prompts_list_changed=prompts or UNSET,
            resources_list_changed=resources_list or UNSET,
            resource_subscriptions=list(resources) or UNSET,
        )
        filters = _extension_filters(extensions or {})
        wanted.task_ids = filters.pop("taskIds", UNSET)
        wanted.extra.update(filters)
        return self._subscription(wanted)

    def _subscription(self, wanted: t.SubscriptionFilter) -> Subscription:
        return Subscription(self._connector, wanted, self._timeout)

    # --- prompts and completion ---

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> t.GetPromptResult:
        """Return the messages of a prompt. Arguments are sent as strings; other values are written as JSON."""
        texts = UNSET if arguments is None else {key: _as_text(value) for key, value in arguments.items()}
        params = t.GetPromptRequestParams(
            name=name, arguments=UNSET if texts is UNSET else Raw(encode_arguments(texts))
        )
        return await self._ask(
            "prompts/get", params, _read_prompt, timeout=timeout, on_progress=on_progress, meta=meta, headers=headers
        )

    async def complete(
        self,
        ref: Reference,
        argument: tuple[str, str],
        context: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> t.Completion:
        """Return suggestions for an argument (name and what was typed so far) of a prompt or resource template.

        `context` has the arguments that were chosen before; servers before 2025-06-18 do not get it.
        """
        clock = self._clock(timeout)
        connection = await self._connector.usable(clock)
        params = t.CompleteRequestParams(
            ref=ref,
            argument=t.CompletionArgument(*argument),
            context=UNSET if context is None else t.CompletionContext(dict(context)),
        )
        result = await self._ask(
            "completion/complete", shape(params, connection.revision), _read_completion, clock=clock
        )
        return result.completion
