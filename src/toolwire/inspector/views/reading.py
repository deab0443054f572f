"""Read the page of a view, and derive text, policy, permissions and remarks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from toolwire.apps.content_security_policy import PERMISSIONS, HostPolicy
from toolwire.apps.profiles import HostProfile
from toolwire.client import Client
from toolwire.inspector.views.pages import own_origin
from toolwire.protocol.apps import APP_MIME_TYPE, SCHEME, ui_of
from toolwire.protocol.errors import ToolwireError

#: How many bytes the page of a view may have.
MAX_PAGE_BYTES: Final = 16 * 1024 * 1024


class ViewUnreadable(ToolwireError):
    """A view cannot be shown. The text says why, for people."""


class ViewSource(Struct, frozen=True, kw_only=True):
    """A view as it was read, under the rules of one host."""

    uri: str
    text: str
    policy: HostPolicy
    permissions: dict[str, str]
    """The permissions that the view asks for, each with its name in Permissions-Policy."""
    prefers_border: bool | None
    remarks: list[str]
    blank: str | None
    """Why the host shows nothing; None where it shows the view."""


async def read_view(
    client: Client,
    tool: Mapping[str, Any],
    listed: Mapping[str, Any] | None,
    profile: HostProfile,
    *,
    endpoint: str | None,
    own_ports: tuple[int | None, ...],
) -> ViewSource:
    """Read the view of a tool.

    `listed` is the entry of the view in the list of resources, where it has one. `endpoint` is the public address of
    the server, where it is known, and `own_ports` are those of the inspector.
    """
    meta = tool.get("_meta")
    uri = profile.address(meta)
    if uri is None:
        named = ui_of(meta).get("resourceUri")
        if isinstance(named, str):
            raise ViewUnreadable(f"The address of a view starts with {SCHEME}, unlike {named[:200]!r}")
        raise ViewUnreadable(f"{profile.label} finds no view: only ChatGPT looks at openai/outputTemplate")
    contents = _item(await client.request("resources/read", {"uri": uri}), uri)
    if not profile.shows(contents.get("mimeType")):
        raise ViewUnreadable(
            f"{uri} has the MIME type {str(contents.get('mimeType'))[:100]!r}, and a view has {APP_MIME_TYPE!r}"
        )
    own, in_list = contents.get("_meta"), None if listed is None else listed.get("_meta")
    # Clause "UI Resource Format" of the draft: the content item wins, and the list entry is for those without.
    ui = ui_of(own) or ui_of(in_list)
    policy = profile.policy(profile.csp_of(ui, own or in_list), refuse=own_origin(own_ports))
    return ViewSource(
        uri=uri,
        text=_text(contents, uri),
        policy=policy,
        permissions={name: PERMISSIONS[name] for name in PERMISSIONS if name in _mapping(ui.get("permissions"))},
        prefers_border=ui.get("prefersBorder") if isinstance(ui.get("prefersBorder"), bool) else None,
        remarks=[
            *_one_place(ui_of(own), ui_of(in_list), listed),
            *_unknown_domain(profile, ui, endpoint),
            *_note_open_frames(policy),
        ],
        blank=profile.refuses(ui, endpoint),
    )


def _item(result: Mapping[str, Any], uri: str) -> Mapping[str, Any]:
    contents = result.get("contents")
    items = [each for each in contents if isinstance(each, Mapping)] if isinstance(contents, list) else []
    # Clause "UI Resource Format": the address is compared as it is written.
    found = next((each for each in items if each.get("uri") == uri), items[0] if len(items) == 1 else None)
    if found is None:
        raise ViewUnreadable(f"The server answered resources/read of {uri} with no contents of that address")
    return found


def _text(contents: Mapping[str, Any], uri: str) -> str:
    text, blob = contents.get("text"), contents.get("blob")
    if isinstance(blob, str) and not isinstance(text, str):
        try:
            text = base64.b64decode(blob, validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            raise ViewUnreadable(f"{uri} has a blob that is not base64 of UTF-8") from None
    if not isinstance(text, str):
        raise ViewUnreadable(f"{uri} has neither a text nor a blob")
    if len(text.encode("utf-8", "replace")) > MAX_PAGE_BYTES:
        raise ViewUnreadable(f"{uri} has more than {MAX_PAGE_BYTES} bytes")
    return text


def _one_place(read: Mapping[str, Any], in_list: Mapping[str, Any], listed: Mapping[str, Any] | None) -> list[str]:
    """Warn that `_meta.ui` is in one place alone.

    Hosts that look at the other place show a blank view.
    """
    if listed is None or read == in_list:
        return []
    if not read or not in_list:
        place = "the answer to resources/read" if read else "the list of resources"
        return [f"_meta.ui stands only in {place}, and some hosts look at the other place"]
    return ["_meta.ui differs between the list of resources and the answer to resources/read"]


def _unknown_domain(profile: HostProfile, ui: Mapping[str, Any], endpoint: str | None) -> list[str]:
    if not profile.checks_domain or ui.get("domain") is None or endpoint is not None:
        return []
    return [f"{profile.label} compares _meta.ui.domain with the public address of the server, which is not known here"]


def _note_open_frames(policy: HostPolicy) -> list[str]:
    """Say that a view with declared frames can send data to any address."""
    origins = policy.granted.get("frameDomains")
    if not origins:
        return []
    return [
        f"The view may show pages of {', '.join(origins)[:300]} (frameDomains). These pages, and those that it writes"
        " itself, can send what they get to any address"
    ]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
