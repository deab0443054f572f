"""Legacy sessions over HTTP: POST, GET and DELETE of 2025-03-26, 2025-06-18 and 2025-11-25.

A session is its id: whoever holds the key can serve a request of it. A process keeps something of a session only while
one of its calls runs or one of its streams is open here. What one process has to know of another's goes over the bus:
answers to the process that asked, everything else to all of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.protocol import types as t
from toolwire.protocol.capability_bits import from_bits, to_bits
from toolwire.protocol.changes import Change
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    OutcomeUnknown,
    ProtocolError,
    Timeout,
    Unreachable,
)
from toolwire.protocol.http import DUPLICATE, VERSION
from toolwire.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
)
from toolwire.protocol.lifecycle import Incoming, Offer, ServerLifecycle
from toolwire.protocol.peer import Notice
from toolwire.protocol.revisions import LEGACY, shape
from toolwire.protocol.sealing import Sealer, encode_base64url
from toolwire.stores import PositionLost, StoreFull, Stores
from toolwire.wire.bus_link import Link
from toolwire.wire.event_log import EventLog, Resume, parse_event_id, stream_name
from toolwire.wire.first_step import watched
from toolwire.wire.get_stream import KEPT_AFTER_LINGER, GetStream, Listener
from toolwire.wire.http_limits import HttpLimits
from toolwire.wire.http_reply import JSON_TYPE, HeaderList, Receive, SendMessage, refused, respond
from toolwire.wire.post_stream import PostStream
from toolwire.wire.session import Handler, Pending
from toolwire.wire.session_records import Record, Records
from toolwire.wire.session_token import ID_BYTES, SessionToken, SessionTokens, principal_digest

log = logging.getLogger("toolwire.http")
