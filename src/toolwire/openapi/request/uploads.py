"""Uploads to an API: small base64 arguments, or resources of this server.

A model cannot write a file. So it names a resource, such as the answer of another call, and the bytes never pass
through it. An address of anything else is refused: this server fetches nothing because a model says so.
"""

from __future__ import annotations

import binascii
from typing import Any, Final

from toolwire.openapi.calling import Prepare
from toolwire.openapi.model import ToolDefinition
from toolwire.openapi.request.request_bodies import BodyUpload
from toolwire.protocol.errors import ProtocolError, ToolError
from toolwire.server.call import Call

#: How many characters of base64 an argument may have, and how many bytes all files of a call.
MAX_BASE64: Final = 1_400_000
MAX_UPLOAD: Final = 16 * 1024 * 1024


def uploads_of(definition: ToolDefinition) -> Prepare | None:
    """Return what makes bytes of the arguments of a tool; None where it takes none."""
    names = tuple(each.name for each in definition.arguments if each.is_upload)
    if not names:
        return None

    async def prepare(call: Call, arguments: dict[str, Any]) -> dict[str, Any]:
        made = dict(arguments)
        total = 0
        for name in names:
            value = made.get(name)
            if value is None:
                continue
            uploads: list[BodyUpload] = []
            for each in value if isinstance(value, list) else [value]:
                uploads.append(await read_upload(call, name, each))
                total += len(uploads[-1].content)
                if total > MAX_UPLOAD:
                    raise ToolError(f"The files have {total:,} bytes together, and {MAX_UPLOAD:,} are the most")
            made[name] = uploads if isinstance(value, list) else uploads[0]
        return made

    return prepare


async def read_upload(call: Call, name: str, value: Any) -> BodyUpload:
    """Return the bytes that an argument stands for; raise `ToolError` without any."""
    if isinstance(value, dict) and isinstance(value.get("uri"), str):
        return await _read_resource(call, name, value["uri"])
    if isinstance(value, str):
        return _decode_base64(name, value)
    raise ToolError(f"The argument {name!r} is base64, or an object with the uri of a resource of this server")


def _decode_base64(name: str, value: str) -> BodyUpload:
    media_type = None
    if value.startswith("data:"):
        # RFC 2397. Clients write files into arguments in this form.
        head, _, value = value.partition(",")
        if not head.endswith(";base64"):
            raise ToolError(f"The argument {name!r} is a data URI that is not base64")
        media_type = head.removeprefix("data:").removesuffix(";base64").partition(";")[0] or None
    if len(value) > MAX_BASE64:
        raise ToolError(
            f"The argument {name!r} has {len(value):,} characters of base64, and {MAX_BASE64:,} are the most: "
            'give {"uri": ...} of a resource of this server instead'
        )
    try:
        return BodyUpload(binascii.a2b_base64(value.encode("ascii"), strict_mode=True), media_type)
    except (binascii.Error, UnicodeEncodeError):
        raise ToolError(
            f'The argument {name!r} is neither base64 nor {{"uri": ...}} of a resource of this server'
        ) from None


async def _read_resource(call: Call, name: str, uri: str) -> BodyUpload:
    try:
        # The caller of the tool needs the permission to read it.
        contents = await call.host.read_for(call, uri, False)
    except ProtocolError:
        raise ToolError(f"The argument {name!r} names no resource of this server that you can read") from None
    if len(contents) != 1:
        raise ToolError(f"The argument {name!r} names a resource of {len(contents)} parts, and one is taken")
    found = contents[0]
    data = found.blob if isinstance(found.blob, bytes) else str(found.text).encode(errors="replace")
    media_type = found.mime_type if isinstance(found.mime_type, str) else None
    last = uri.rstrip("/").rpartition("/")[2]
    return BodyUpload(data, media_type, last if last.isascii() and "." in last and len(last) <= 100 else None)
