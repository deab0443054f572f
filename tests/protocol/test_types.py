"""The wire types: their names on the wire, what they accept, and the codec that loses nothing."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from tests.cases import cases

from toolwire import types as public
from toolwire.protocol import types
from toolwire.protocol.revisions import LEGACY, MODERN, REVISIONS
from toolwire.protocol.types import (
    Annotations,
    AudioContent,
    CallToolRequestParams,
    CallToolResult,
    EmbeddedResource,
    Icon,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    Tool,
    UnknownContent,
    decode,
    encode,
    has_capability,
    is_reserved_meta_key,
    is_valid_meta_key,
    severity,
)


def fast(value: Any) -> Any:
    """What the plain encoder sends."""
    return json.loads(msgspec.json.encode(value))


# --- Names and values ------------------------------------------------------------------------------------------------


@pytest.mark.covers("J17")
def test_icon() -> None:
    icon = Icon("data:image/png;base64,AA==", mime_type="image/png", sizes=["48x48", "any"], theme="dark")
    assert fast(icon) == {
        "src": "data:image/png;base64,AA==",
        "mimeType": "image/png",
        "sizes": ["48x48", "any"],
        "theme": "dark",
    }
    assert decode(Icon, encode(icon)) == icon


@pytest.mark.covers("J28")
def test_exact_names() -> None:
    result = CallToolResult(content=[ImageContent(b"x", "image/png")], structured_content={"a": 1}, is_error=True)
    assert set(fast(result)) == {"resultType", "content", "structuredContent", "isError"}
    assert set(fast(result)["content"][0]) == {"type", "data", "mimeType"}


@pytest.mark.covers("J33")
@cases(
    ("block", "tag"),
    [
        (TextContent("hello"), "text"),
        (ImageContent(b"x", "image/png"), "image"),
        (AudioContent(b"x", "audio/wav"), "audio"),
        (EmbeddedResource(ResourceContents("a://b", text="x")), "resource"),
        (ResourceLink("a://b", "b"), "resource_link"),
    ],
)
def test_content_kinds_carry_annotations_and_meta(block: Any, tag: str) -> None:
    assert block.type == tag
    assert set(fast(block)) & {"annotations", "_meta"} == set()
    block = msgspec.structs.replace(block, annotations=Annotations(audience=["user"], priority=1), meta={"k": 1})
    assert fast(block)["type"] == tag
    assert fast(block)["annotations"] == {"audience": ["user"], "priority": 1}
    assert fast(block)["_meta"] == {"k": 1}
    assert decode(types.ContentBlock, encode(block)) == block


@pytest.mark.covers("J34")
@pytest.mark.parametrize("kind", [ImageContent, AudioContent])
def test_bytes_are_base64_on_the_wire(kind: Any) -> None:
    block = kind(b"\x00\xff\x10", "x/y")
    assert fast(block) == {"type": kind.type, "data": "AP8Q", "mimeType": "x/y"}
    assert decode(kind, encode(block)).data == b"\x00\xff\x10"


@pytest.mark.covers("J35")
def test_resource_link() -> None:
    link = ResourceLink("a://b", "b", description="d", mime_type="x/y", size=7, title="B")
    assert fast(link) == {
        "type": "resource_link",
        "uri": "a://b",
        "name": "b",
        "description": "d",
        "mimeType": "x/y",
        "size": 7,
        "title": "B",
    }


@pytest.mark.covers("J65")
def test_unset_members_never_reach_the_wire() -> None:
    assert fast(Tool("t", {"type": "object"})) == {"name": "t", "inputSchema": {"type": "object"}}
    assert fast(types.Implementation("n", "1")) == {"name": "n", "version": "1"}
    assert fast(types.ListToolsResult(tools=[])) == {"resultType": "complete", "tools": []}


@pytest.mark.covers("RPC-4")
def test_required_constants_are_always_written() -> None:
    assert fast(types.EmptyResult()) == {"resultType": "complete"}
    assert fast(types.InputRequiredResult(request_state="s")) == {"resultType": "input_required", "requestState": "s"}
    assert fast(types.PromptReference("p")) == {"type": "ref/prompt", "name": "p"}
    assert fast(types.ListRootsRequest()) == {"method": "roots/list"}


@pytest.mark.covers("RPC-8")
def test_a_missing_result_type_means_complete() -> None:
    assert decode(CallToolResult, b'{"content":[]}').result_type == "complete"
    assert msgspec.json.decode(b'{"content":[]}', type=CallToolResult).result_type == "complete"


def test_null_is_a_value_and_absence_is_not() -> None:
    assert fast(CallToolResult(content=[], structured_content=None))["structuredContent"] is None
    assert "structuredContent" not in fast(CallToolResult(content=[]))
    assert decode(CallToolResult, b'{"content":[],"structuredContent":null}').structured_content is None
    assert decode(CallToolResult, b'{"content":[]}').structured_content is UNSET


def test_a_null_time_to_live_is_written() -> None:
    task = types.Task(task_id="1", status="working", created_at="a", last_updated_at="b", ttl=None)
    assert fast(task)["ttl"] is None
    detailed = types.DetailedTaskResult(task_id="1", status="working", created_at="a", last_updated_at="b", ttl_ms=None)
    assert fast(detailed)["ttlMs"] is None
    assert fast(detailed)["resultType"] == "complete"


def test_ids_and_tokens_keep_their_json_type() -> None:
    for token in (1, "1", 0, ""):
        params = decode(CallToolRequestParams, json.dumps({"name": "t", "_meta": {"progressToken": token}}).encode())
        assert params.meta is not UNSET
        assert json.loads(encode(params))["_meta"] == {"progressToken": token}
    for wrong in (True, None, 1.5, [1]):
        with pytest.raises(msgspec.ValidationError):
            decode(types.CancelledNotificationParams, json.dumps({"requestId": wrong}).encode())


def test_pre_encoded_parts_are_written_as_they_are() -> None:
    result = CallToolResult(content=[], structured_content=Raw(b"[1, 2]"), meta=Raw(b'{"k": 1}'))
    tool = Tool("t", Raw(b'{"type": "object"}'))  # type: ignore[arg-type]
    expected = {"resultType": "complete", "content": [], "structuredContent": [1, 2], "_meta": {"k": 1}}
    assert fast(result) == json.loads(encode(result)) == result.to_dict() == expected
    assert fast(tool) == tool.to_dict() == {"name": "t", "inputSchema": {"type": "object"}}


def test_decoded_meta_is_a_dict() -> None:
    data = b'{"content":[],"_meta":{"k":1}}'
    assert decode(CallToolResult, data).meta == msgspec.json.decode(data, type=CallToolResult).meta == {"k": 1}


def test_arguments_and_answers_stay_raw() -> None:
    data = b'{"name":"t","arguments":{"a": 1},"inputResponses":{"k":{"action":"accept"}},"requestState":"s"}'
    params = msgspec.json.decode(data, type=CallToolRequestParams)
    assert isinstance(params.arguments, Raw)
    assert bytes(params.arguments) == b'{"a": 1}'
    assert isinstance(params.input_responses, dict)
    assert bytes(params.input_responses["k"]) == b'{"action":"accept"}'


@pytest.mark.covers("1.8.2")
def test_levels_are_ordered() -> None:
    assert types.LEVELS == ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    assert [severity(level) for level in types.LEVELS] == list(range(8))
    assert severity("debug") < severity("warning") < severity("emergency")
    with pytest.raises(ValueError, match="unknown logging level 'loud'"):
        severity("loud")  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError):
        decode(types.SetLevelRequestParams, b'{"level":"loud"}')


@pytest.mark.covers("T-20")
def test_annotations_of_an_embedded_resource_are_read_in_both_places() -> None:
    inside = b'{"type":"resource","resource":{"uri":"a://b","text":"x","annotations":{"priority":1}}}'
    outside = b'{"type":"resource","resource":{"uri":"a://b","text":"x"},"annotations":{"priority":1}}'
    for data in (inside, outside):
        assert decode(EmbeddedResource, data).find_annotations() == Annotations(priority=1)
    assert EmbeddedResource(ResourceContents("a://b", text="x")).find_annotations() is UNSET


@pytest.mark.covers("1.16.2.3", "2.2.16", "T-26", "T-40")
@cases(
    ("field", "options"),
    [
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, [("a", "A")]),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}, [("a", "A"), ("b", "B")]),
        ({"type": "string", "enum": ["a"]}, [("a", "a")]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, [("a", "A")]),
        ({"type": "array", "items": {"oneOf": [{"const": "a", "title": "A"}]}}, [("a", "A")]),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}}, [("a", "a")]),
        ({"type": "string", "pattern": "a+"}, None),
        ({"type": "boolean"}, None),
    ],
)
def test_choices_of_a_form_field(field: dict[str, Any], options: list[tuple[str, str]] | None) -> None:
    found = decode(types.PrimitiveSchemaDefinition, json.dumps(field).encode()).options()
    assert options == (None if found is None else [(option.const, option.title) for option in found])


@pytest.mark.covers("T-37")
def test_answers_may_be_fractional() -> None:
    result = decode(types.ElicitResult, b'{"action":"accept","content":{"score":95.5}}')
    assert result.content == {"score": 95.5}


# --- Capabilities ----------------------------------------------------------------------------------------------------


@pytest.mark.covers("T-4")
def test_an_empty_capability_object_counts_as_present() -> None:
    declared: dict[str, Any] = {"tools": {}, "resources": {"subscribe": False, "listChanged": True}, "logging": None}
    assert has_capability(declared, "tools")
    assert has_capability(declared, "resources.listChanged")
    assert not has_capability(declared, "resources.subscribe")
    assert not has_capability(declared, "tools.listChanged")
    assert not has_capability(declared, "prompts")
    assert not has_capability(declared, "logging")
    assert not has_capability({"tools": "odd"}, "tools.listChanged")


def test_extension_identifiers_have_dots_of_their_own() -> None:
    declared: dict[str, Any] = {"extensions": {types.TASKS_EXTENSION: {}}}
    assert has_capability(declared, f"extensions.{types.TASKS_EXTENSION}")
    assert not has_capability(declared, "extensions.com.example/other")


@pytest.mark.covers("T-21", "1.16.1.1")
def test_elicitation_modes() -> None:
    assert has_capability({"elicitation": {}}, "elicitation.form")
    assert not has_capability({"elicitation": {}}, "elicitation.url")
    assert not has_capability({"elicitation": {"url": {}}}, "elicitation.form")
    assert has_capability({"elicitation": {"url": {}}}, "elicitation.url")
    assert has_capability({"elicitation": {"url": {}, "form": {}}}, "elicitation.form")
    assert not has_capability({}, "elicitation.form")


# --- Names in `_meta` ------------------------------------------------------------------------------------------------


@cases("key", ["", "name", "a", "A-b_c.9", "com.example/", "com.example/name", "a-b.c9/x", "progressToken"])
def test_valid_meta_keys(key: str) -> None:
    assert all(is_valid_meta_key(key, revision) for revision in REVISIONS)


@cases("key", ["-a", "a-", ".a", "a b", "/name", "9com/x", "com-/x", "com..x/y", "com./y", "a/b/c", "name\n", "é"])
def test_invalid_meta_keys(key: str) -> None:
    assert not is_valid_meta_key(key, "2025-06-18")
    assert not is_valid_meta_key(key, "2025-11-25")
    assert not is_valid_meta_key(key, MODERN)
    # No rule existed yet.
    assert is_valid_meta_key(key, "2024-11-05")
    assert is_valid_meta_key(key, "2025-03-26")


@pytest.mark.covers("2.1.21", "T-48")
@cases(
    ("key", "in_2025_06", "from_2025_11"),
    [
        ("mcp.dev/x", True, False),
        ("tools.mcp.com/x", True, True),
        ("modelcontextprotocol.io/x", True, False),
        ("api.modelcontextprotocol.org/x", True, True),
        ("io.modelcontextprotocol/x", False, True),
        ("com.mcp.tools/x", True, True),
        ("dev.MCP/x", False, True),
        ("com.example.mcp/x", False, False),
        ("com.example/x", False, False),
        ("mcp/x", False, False),
        ("progressToken", False, False),
        ("not a key", False, False),
    ],
)
def test_reserved_prefixes_follow_the_revision(key: str, in_2025_06: bool, from_2025_11: bool) -> None:
    assert is_reserved_meta_key(key, "2025-06-18") == in_2025_06
    assert is_reserved_meta_key(key, "2025-11-25") == from_2025_11
    assert is_reserved_meta_key(key, MODERN) == from_2025_11
    assert not is_reserved_meta_key(key, "2024-11-05")


@given(st.text(max_size=40))
def test_meta_key_validators_never_fail(key: str) -> None:
    for revision in REVISIONS:
        if is_reserved_meta_key(key, revision):
            assert is_valid_meta_key(key, revision)


@pytest.mark.covers("META-10")
def test_all_of_request_meta_can_be_had() -> None:
    params = b'{"_meta":{"progressToken":1,"com.example/x":[1],"traceparent":"00-a-b-01"}}'
    assert types.request_meta(params) == {"progressToken": 1, "com.example/x": [1], "traceparent": "00-a-b-01"}
    assert types.request_meta(b"{}") == {}
    meta = decode(types.RequestParams, params).meta
    assert isinstance(meta, types.RequestMeta)
    assert (meta.progress_token, meta.traceparent, meta.extra) == (1, "00-a-b-01", {"com.example/x": [1]})


# --- The codec that loses nothing ------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
# Names that no wire type uses.
unknown_members = st.dictionaries(st.text(max_size=6).map(lambda name: f"x-{name}"), json_values, max_size=3)
text_blocks = st.builds(lambda extra, text: {**extra, "type": "text", "text": text}, unknown_members, st.text())
image_blocks = unknown_members.map(lambda extra: {**extra, "type": "image", "data": "AP8Q", "mimeType": "image/png"})
strange_blocks = unknown_members.map(lambda extra: {**extra, "type": "hologram"})
blocks = text_blocks | image_blocks | strange_blocks


@given(unknown_members, st.lists(blocks, max_size=4), json_values)
def test_any_result_survives(extra: dict[str, Any], content: list[Any], structured: Any) -> None:
    message = {**extra, "resultType": "complete", "content": content, "structuredContent": structured}
    decoded = decode(CallToolResult, json.dumps(message).encode())
    assert json.loads(encode(decoded)) == message
    assert decoded.to_dict() == message


@given(unknown_members, unknown_members, st.lists(blocks, max_size=3) | blocks)
def test_any_sampling_request_survives(extra: dict[str, Any], meta: dict[str, Any], content: Any) -> None:
    request = {
        "method": "sampling/createMessage",
        "params": {**extra, "messages": [{"role": "user", "content": content, "_meta": meta}], "maxTokens": 1},
    }
    message = {"resultType": "input_required", "inputRequests": {"k": request}}
    decoded = decode(types.InputRequiredResult, json.dumps(message).encode())
    assert json.loads(encode(decoded)) == message


@given(st.binary(max_size=60))
@example(b'"\x80"')
@example(b'{"content":[],"vendor":"\x80"}')
def test_decoding_fails_in_one_way_only(data: bytes) -> None:
    try:
        decoded = decode(CallToolResult, data)
    except msgspec.DecodeError:
        return
    assert isinstance(json.loads(data), dict) and isinstance(decoded, CallToolResult)


def test_unknown_members_are_kept_apart() -> None:
    result = decode(CallToolResult, b'{"content":[{"type":"text","text":"x","hue":1}],"vendor":{"a":[1]}}')
    assert result.extra == {"vendor": {"a": [1]}}
    assert isinstance(result.content[0], TextContent)
    assert result.content[0].extra == {"hue": 1}
    assert json.loads(encode(result))["vendor"] == {"a": [1]}
    # The fast encoder knows nothing of them.
    assert "vendor" not in fast(result)


def test_a_block_of_unknown_type_does_not_fail_the_message() -> None:
    data = b'{"content":[{"type":"text","text":"x"},{"type":"hologram","depth":3,"deep":{"type":"text"}}]}'
    text, strange = decode(CallToolResult, data).content
    assert text == TextContent("x")
    assert isinstance(strange, UnknownContent)
    assert strange.type == "hologram"
    assert strange.to_dict() == {"type": "hologram", "depth": 3, "deep": {"type": "text"}}


def test_an_unknown_block_is_found_inside_a_tool_result() -> None:
    inner = {"type": "tool_result", "toolUseId": "u", "content": [{"type": "hologram"}]}
    message = {"role": "user", "content": inner}
    decoded = decode(types.SamplingMessage, json.dumps(message).encode())
    assert isinstance(decoded.content, types.ToolResultContent)
    assert isinstance(decoded.content.content[0], UnknownContent)
    assert json.loads(encode(decoded)) == message


@cases(
    "data",
    [
        b'{"content":[{"type":"hologram"},{"type":"text"}]}',  # a known block that lacks its text
        b'{"content":[{"type":"hologram"}],"isError":"yes"}',
        b'{"content":[{"type":7}]}',
        b'{"content":[{}]}',
        b'{"content":["hologram"]}',
        b'{"content":{"type":"hologram"}}',
        b"[]",
    ],
)
def test_what_is_wrong_stays_wrong(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(CallToolResult, data)


@cases("text", ["@@@", "AP8", "AP8Q=", "a b"])
def test_invalid_base64_is_a_validation_error(text: str) -> None:
    message = {"content": [{"type": "image", "data": text, "mimeType": "image/png"}]}
    with pytest.raises(msgspec.ValidationError, match="base64"):
        decode(CallToolResult, json.dumps(message).encode())


def test_huge_integers_are_a_decode_error_at_worst() -> None:
    data = b'{"_meta":{"progressToken":' + b"9" * 10_000 + b"}}"
    with pytest.raises(msgspec.DecodeError):
        decode(types.RequestParams, data)


def test_text_and_raw_input_are_accepted() -> None:
    assert decode(TextContent, '{"type":"text","text":"ü"}') == TextContent("ü")
    assert decode(TextContent, Raw(b'{"type":"text","text":"x"}')) == TextContent("x")
    assert decode(TextContent, b'{"text":"x"}') == TextContent("x")


# --- The public face -------------------------------------------------------------------------------------------------


def test_every_public_name_is_exported() -> None:
    topics = [import_module(f"{types.__name__}.{each.name}") for each in iter_modules(types.__path__)]
    defined = {
        name
        for topic in topics
        for name, value in vars(topic).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == topic.__name__
    }
    assert "CallToolResult" in defined
    assert defined <= set(types.__all__)


def test_the_public_module_has_types_and_revisions() -> None:
    assert set(types.__all__) <= set(public.__all__)
    assert all(getattr(public, name) is getattr(types, name) for name in types.__all__)
    assert (*LEGACY, MODERN) == public.REVISIONS
    assert public.is_supported("2025-11-25")
    assert public.supports("2025-11-25", "tasks")


def test_positional_use() -> None:
    assert TextContent("hello").text == "hello"
    assert Tool("echo", {"type": "object"}).name == "echo"
    assert types.Prompt("p").name == "p"
    assert types.PromptArgument("a").name == "a"
    assert types.Resource("a://b", "b").uri == "a://b"
    assert types.ResourceTemplate("a://{b}", "b").uri_template == "a://{b}"
    assert types.PromptMessage("user", TextContent("x")).role == "user"
    assert types.Implementation("n", "1").version == "1"
    assert types.Root("file:///x", "x").name == "x"


def made_by_keyword() -> list[str]:
    """Params and results: revisions add members to them in any place, so their order is no promise."""
    return [name for name in types.__all__ if name.endswith(("Params", "Result"))]


@cases("name", made_by_keyword())
def test_params_and_results_are_made_by_keyword(name: str) -> None:
    parameters = inspect.signature(getattr(types, name)).parameters.values()
    assert {each.kind for each in parameters} <= {inspect.Parameter.KEYWORD_ONLY}
