"""The wire types of every revision, as one version-free set.

Each struct is the union of what the five revisions know under that name; `toolwire.protocol.shaping.shape` cuts a
value down to what one revision knows. Attributes are snake_case here and camelCase on the wire, `_meta` is the
attribute `meta`, binary members are `bytes` here and base64 on the wire. An absent optional member is `msgspec.UNSET`;
`None` is null, a value of its own (2026-07-28 server/tools: `structuredContent: null` is data).

There are two ways in and out:

* the fast one, plain `msgspec.json`, drops members it does not know;
* `decode` and `encode` of `toolwire.protocol.open_codec` keep them, at every level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET as UNSET
from msgspec import Raw as Raw
from msgspec import UnsetType as UnsetType

from toolwire.protocol.open_codec import UnknownContent as UnknownContent
from toolwire.protocol.open_codec import Wire as Wire
from toolwire.protocol.open_codec import decode as decode
from toolwire.protocol.open_codec import encode as encode
from toolwire.protocol.open_codec import request_meta as request_meta
from toolwire.protocol.types import (
    base,
    capabilities,
    completion,
    content,
    elicitation,
    lifecycle,
    logging,
    meta,
    prompts,
    resources,
    roots,
    rounds,
    sampling,
    scalars,
    skills,
    subscriptions,
    tasks,
    tools,
)
from toolwire.protocol.types.base import *
from toolwire.protocol.types.capabilities import *
from toolwire.protocol.types.completion import *
from toolwire.protocol.types.content import *
from toolwire.protocol.types.elicitation import *
from toolwire.protocol.types.lifecycle import *
from toolwire.protocol.types.logging import *
from toolwire.protocol.types.meta import *
from toolwire.protocol.types.prompts import *
from toolwire.protocol.types.resources import *
from toolwire.protocol.types.roots import *
from toolwire.protocol.types.rounds import *
from toolwire.protocol.types.sampling import *
from toolwire.protocol.types.scalars import *
from toolwire.protocol.types.skills import *
from toolwire.protocol.types.subscriptions import *
from toolwire.protocol.types.tasks import *
from toolwire.protocol.types.tools import *

if not TYPE_CHECKING:
    # mypy follows only a list that is written out; where there is none, what came by `*` or `as` is public.
    __all__ = ["UNSET", "Raw", "UnknownContent", "UnsetType", "Wire", "decode", "encode", "request_meta"]
    for topic in (
        base, capabilities, completion, content, elicitation, lifecycle, logging, meta, prompts, resources, roots,
        rounds, sampling, scalars, skills, subscriptions, tasks, tools,
    ):  # fmt: skip
        __all__ += topic.__all__
