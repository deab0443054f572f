"""Messages in the shape of a revision: what it does not know is left out or rewritten."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from msgspec import UNSET, Raw
from tests.cases import cases
from tests.protocol.revision_samples import (
    FROM_R2,
    FROM_R3,
    FROM_R4,
    R1,
    R2,
    R3,
    R4,
    R5,
    STRUCTS,
    UNTIL_R2,
    UNTIL_R3,
    sample,
    wire,
)

from toolwire.protocol import types
from toolwire.protocol.methods import methods
from toolwire.protocol.revisions import (
    LEGACY,
    MODERN,
    REVISIONS,
)
from toolwire.protocol.shaping import shape

# --- Shape: what it promises ---


@cases("revision", REVISIONS)
def test_shape_never_changes_its_input(revision: str) -> None:
    for struct in STRUCTS:
        value = sample(struct)
        before = types.encode(value)
        try:
            shape(value, revision)
        except ValueError:
            assert struct in (types.ToolUseContent, types.ToolResultContent, types.InputRequiredResult)
        assert types.encode(value) == before, struct


@cases("revision", REVISIONS)
def test_what_fits_already_is_returned_as_it_is(revision: str) -> None:
    for struct in STRUCTS:
        try:
            once = shape(sample(struct), revision)
        except ValueError:
            continue
        assert shape(once, revision) is once, struct


def test_a_plain_result_is_free_on_the_newest_revision() -> None:
    result = types.CallToolResult(content=[types.TextContent("hello")], structured_content={"a": 1})
    assert shape(result, MODERN) is result


@cases("revision", REVISIONS)
def test_raw_values_pass_untouched(revision: str) -> None:
    raw = Raw(b'{"io.modelcontextprotocol/serverInfo":{}}')
    assert shape(raw, revision) is raw
    result = types.CallToolResult(content=[], meta=raw, structured_content=raw)
    assert shape(result, revision).meta is raw


def test_unknown_revision_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown revision '2099-01-01'"):
        shape(types.TextContent("x"), "2099-01-01")


@cases("revision", REVISIONS)
def test_members_nobody_knows_are_kept(revision: str) -> None:
    tool = types.decode(types.Tool, b'{"name":"t","inputSchema":{},"icons":[],"vendor":1}')
    listed = shape(types.ListToolsResult(tools=[tool]), revision)
    assert listed.to_dict()["tools"][0]["vendor"] == 1


# --- Shape: results and messages ---


@pytest.mark.covers("RPC-4", "1.1.3")
def test_result_type_belongs_to_the_modern_era() -> None:
    assert wire(shape(types.EmptyResult(), MODERN)) == {"resultType": "complete"}
    for revision in LEGACY:
        assert wire(shape(types.EmptyResult(), revision)) == {}


@pytest.mark.covers("CCH-1")
def test_cache_hints_are_there_on_the_modern_era_and_absent_before() -> None:
    silent = types.ListToolsResult(tools=[])
    assert wire(shape(silent, MODERN)) == {
        "resultType": "complete",
        "tools": [],
        "ttlMs": 0,
        "cacheScope": "private",
    }
    told = types.ListToolsResult(tools=[], ttl_ms=5, cache_scope="public")
    assert shape(told, MODERN) is told
    for revision in LEGACY:
        assert wire(shape(told, revision)) == {"tools": []}
    assert "ttlMs" not in wire(shape(types.InputRequiredResult(request_state="s"), MODERN))


def test_modern_meta_keys_do_not_reach_older_peers() -> None:
    meta = {types.SERVER_INFO_KEY: {"name": "s", "version": "1"}, "com.example/x": 1}
    result = types.CallToolResult(content=[], meta=meta)
    listening = types.ResourceUpdatedNotificationParams(uri="a://b", meta={types.SUBSCRIPTION_ID_KEY: 1})
    assert wire(shape(result, MODERN))["_meta"] == meta
    for revision in LEGACY:
        assert wire(shape(result, revision))["_meta"] == {"com.example/x": 1}
        assert wire(shape(listening, revision)) == {"uri": "a://b"}


def test_request_meta_keeps_only_what_the_revision_knows() -> None:
    meta = types.RequestMeta(protocol_version=R5, client_capabilities={}, progress_token=7)
    call = types.CallToolRequestParams(name="t", meta=meta)
    assert set(wire(shape(call, R5))["_meta"]) == {
        types.PROTOCOL_VERSION_KEY,
        types.CLIENT_CAPABILITIES_KEY,
        "progressToken",
    }
    empty = types.CallToolRequestParams(name="t", meta=types.RequestMeta(protocol_version=R5))
    for revision in LEGACY:
        assert wire(shape(call, revision)) == {"name": "t", "_meta": {"progressToken": 7}}
        assert wire(shape(empty, revision)) == {"name": "t"}


@pytest.mark.covers("1.6.2", "1.6.6", "2.2.3")
def test_progress_message_starts_with_2025_03_26() -> None:
    params = types.ProgressNotificationParams(progress_token=1, progress=0.5, total=1, message="half")
    assert "message" not in wire(shape(params, R1))
    assert all(wire(shape(params, revision))["message"] == "half" for revision in FROM_R2)


@pytest.mark.covers("1.9.1", "2.2.2")
def test_completion_context_starts_with_2025_06_18() -> None:
    params = types.CompleteRequestParams(
        ref=types.PromptReference("p", title="P"),
        argument=types.CompletionArgument("a", "v"),
        context=types.CompletionContext({"b": "w"}),
    )
    for revision in UNTIL_R2:
        assert wire(shape(params, revision)) == {
            "ref": {"type": "ref/prompt", "name": "p"},
            "argument": {"name": "a", "value": "v"},
        }
    assert all(wire(shape(params, revision))["context"] == {"arguments": {"b": "w"}} for revision in FROM_R3)


TOOL = types.Tool(
    "t",
    {"type": "object"},
    title="Title",
    description="d",
    output_schema={"type": "object"},
    annotations=types.ToolAnnotations(read_only_hint=True),
    icons=[types.Icon("https://x/i.png")],
    execution=types.ToolExecution("optional"),
    meta={"k": 1},
)


# --- Shape: definitions ---


@pytest.mark.covers("2.2.5")
def test_tool_annotations_start_with_2025_03_26() -> None:
    assert "annotations" not in wire(shape(TOOL, R1))
    assert all(wire(shape(TOOL, revision))["annotations"]["readOnlyHint"] for revision in FROM_R2)


@pytest.mark.covers("2.2.7")
def test_tool_title_is_an_annotation_on_2025_03_26() -> None:
    assert wire(shape(TOOL, R2))["annotations"] == {"readOnlyHint": True, "title": "Title"}
    assert "title" not in wire(shape(TOOL, R2))
    assert wire(shape(types.Tool("t", {}, title="T"), R2))["annotations"] == {"title": "T"}
    own = types.Tool("t", {}, title="T", annotations=types.ToolAnnotations(title="Own"))
    assert wire(shape(own, R2))["annotations"] == {"title": "Own"}
    assert "title" not in str(wire(shape(TOOL, R1))).lower()
    for revision in FROM_R3:
        assert wire(shape(TOOL, revision))["title"] == "Title"
        assert "title" not in wire(shape(TOOL, revision))["annotations"]


@pytest.mark.covers("2.2.8", "1.13.2.5")
def test_structured_output_starts_with_2025_06_18() -> None:
    result = types.CallToolResult(content=[types.TextContent('{"a":1}')], structured_content={"a": 1})
    for revision in UNTIL_R2:
        assert "outputSchema" not in wire(shape(TOOL, revision))
        assert wire(shape(result, revision)) == {"content": [{"type": "text", "text": '{"a":1}'}]}
    for revision in FROM_R3:
        assert wire(shape(TOOL, revision))["outputSchema"] == {"type": "object"}
        assert wire(shape(result, revision))["structuredContent"] == {"a": 1}


def test_execution_is_known_to_2025_11_25_only() -> None:
    assert [revision for revision in REVISIONS if "execution" in wire(shape(TOOL, revision))] == [R4]


@pytest.mark.covers("2.2.23")
def test_icons_and_identity_start_with_2025_11_25() -> None:
    card = types.Implementation(
        "n", "1", title="T", description="d", website_url="https://x", icons=[types.Icon("data:,")]
    )
    assert wire(shape(card, R1)) == wire(shape(card, R2)) == {"name": "n", "version": "1"}
    assert wire(shape(card, R3)) == {"name": "n", "version": "1", "title": "T"}
    for revision in FROM_R4:
        assert set(wire(shape(card, revision))) == {"name", "version", "title", "description", "websiteUrl", "icons"}
    for definition in (TOOL, types.Prompt("p", icons=[]), types.Resource("a://b", "b", icons=[])):
        assert [r for r in REVISIONS if "icons" in wire(shape(definition, r))] == list(FROM_R4)


@pytest.mark.covers("2.2.10")
def test_meta_on_definitions_and_blocks_starts_with_2025_06_18() -> None:
    meta = {"k": 1}
    values: list[types.Wire] = [
        TOOL,
        types.Prompt("p", meta=meta),
        types.Resource("a://b", "b", meta=meta),
        types.ResourceTemplate("a://{b}", "b", meta=meta),
        types.ResourceContents("a://b", text="x", meta=meta),
        types.TextContent("x", meta=meta),
        types.EmbeddedResource(types.ResourceContents("a://b", text="x"), meta=meta),
        types.Root("file:///x", meta=meta),
    ]
    for value in values:
        assert [r for r in REVISIONS if "_meta" in wire(shape(value, r))] == list(FROM_R3)


@pytest.mark.covers("1.10.2", "1.10.3", "1.11.2")
def test_listed_definitions_have_the_members_of_their_revision() -> None:
    resource = types.Resource(
        "a://b", "b", title="B", description="d", mime_type="x/y", size=3, icons=[types.Icon("data:,")]
    )
    template = types.ResourceTemplate("a://{b}", "b", title="B", description="d", icons=[types.Icon("data:,")])
    prompt = types.Prompt("p", title="P", arguments=[types.PromptArgument("a", title="A", required=True)])
    for revision in REVISIONS:
        newer = {"title"} if revision == R3 else {"title", "icons"} if revision in FROM_R4 else set()
        resources = shape(types.ListResourcesResult(resources=[resource]), revision)
        assert set(wire(resources)["resources"][0]) == {"uri", "name", "description", "mimeType", "size"} | newer
        templates = shape(types.ListResourceTemplatesResult(resource_templates=[template]), revision)
        assert set(wire(templates)["resourceTemplates"][0]) == {"uriTemplate", "name", "description"} | newer
        listed = wire(shape(types.ListPromptsResult(prompts=[prompt]), revision))["prompts"][0]
        assert ("title" in listed) == ("title" in listed["arguments"][0]) == (revision in FROM_R3)


# --- Shape: content ---


@pytest.mark.covers("2.2.4", "1.11.5")
def test_audio_is_text_on_2024_11_05() -> None:
    audio = types.AudioContent(b"abc", "audio/wav")
    prompt = types.GetPromptResult(messages=[types.PromptMessage("user", audio)])
    result = types.CallToolResult(content=[types.TextContent("x"), audio])
    substitute = wire(shape(prompt, R1))["messages"][0]["content"]
    assert substitute["type"] == "text"
    assert "audio/wav" in substitute["text"]
    assert [block["type"] for block in wire(shape(result, R1))["content"]] == ["text", "text"]
    for revision in FROM_R2:
        assert wire(shape(prompt, revision))["messages"][0]["content"]["type"] == "audio"


@pytest.mark.covers("2.2.6", "1.11.5")
def test_resource_link_is_text_before_2025_06_18() -> None:
    link = types.ResourceLink("a://b", "b", title="Bee", annotations=types.Annotations(priority=1))
    result = types.CallToolResult(content=[link])
    for revision in UNTIL_R2:
        [block] = wire(shape(result, revision))["content"]
        assert block == {"type": "text", "text": "Bee: a://b", "annotations": {"priority": 1}}
        assert wire(shape(types.ResourceLink("a://b", "b"), revision))["text"] == "b: a://b"
    for revision in FROM_R3:
        assert wire(shape(result, revision))["content"][0]["type"] == "resource_link"


@pytest.mark.covers("2.2.9", "1.10.9")
def test_last_modified_starts_with_2025_06_18() -> None:
    notes = types.Annotations(audience=["user"], priority=0.5, last_modified="2025-01-01T00:00:00Z")
    result = types.CallToolResult(content=[types.TextContent("x", annotations=notes)])
    for revision in REVISIONS:
        annotations = wire(shape(result, revision))["content"][0]["annotations"]
        assert ("lastModified" in annotations) == (revision in FROM_R3)
        assert annotations["audience"] == ["user"]


def test_a_block_of_unknown_type_passes() -> None:
    result = types.decode(types.CallToolResult, b'{"content":[{"type":"hologram","x":1}]}')
    for revision in REVISIONS:
        assert wire(shape(result, revision))["content"] == [{"type": "hologram", "x": 1}]


def sampling(content: Any) -> types.CreateMessageRequestParams:
    return types.CreateMessageRequestParams(messages=[types.SamplingMessage("user", content)], max_tokens=9)


# --- Shape: sampling ---


@pytest.mark.covers("1.15.6", "2.2.20", "T-16")
def test_sampling_content_is_one_block_before_2025_11_25() -> None:
    one, two = types.TextContent("a"), types.TextContent("b")
    result = types.CreateMessageResult(role="assistant", content=[one], model="m")
    for revision in UNTIL_R3:
        assert wire(shape(sampling([one]), revision))["messages"][0]["content"] == {"type": "text", "text": "a"}
        assert wire(shape(result, revision))["content"] == {"type": "text", "text": "a"}
        for blocks in ([one, two], []):
            with pytest.raises(ValueError, match="single block"):
                shape(sampling(blocks), revision)
    for revision in FROM_R4:
        assert len(wire(shape(sampling([one, two]), revision))["messages"][0]["content"]) == 2


@pytest.mark.covers("2.2.19", "1.15.5")
def test_sampling_audio_starts_with_2025_03_26() -> None:
    params = sampling(types.AudioContent(b"abc", "audio/wav"))
    assert wire(shape(params, R1))["messages"][0]["content"]["type"] == "text"
    assert all(wire(shape(params, revision))["messages"][0]["content"]["type"] == "audio" for revision in FROM_R2)


@pytest.mark.covers("2.2.21", "1.15.5")
def test_sampling_tools_start_with_2025_11_25() -> None:
    params = types.CreateMessageRequestParams(messages=[], max_tokens=1, tools=[TOOL], tool_choice=types.ToolChoice())
    used = sampling(types.ToolUseContent("u", "t", {}))
    for revision in UNTIL_R3:
        assert set(wire(shape(params, revision))) == {"messages", "maxTokens"}
        with pytest.raises(ValueError, match="tool_use"):
            shape(used, revision)
    for revision in FROM_R4:
        assert wire(shape(params, revision))["tools"][0]["name"] == "t"
        assert wire(shape(used, revision))["messages"][0]["content"]["type"] == "tool_use"


def form(**fields: Any) -> types.ElicitRequestParams:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": fields}
    return types.ElicitRequestParams(mode="form", message="?", requested_schema=schema)


def fields_on_2025_06_18(**fields: Any) -> Any:
    return wire(shape(form(**fields), R3))["requestedSchema"]["properties"]


# --- Shape: elicitation ---


@pytest.mark.covers("1.16.1.3", "2.2.12")
def test_mode_is_left_out_for_2025_06_18() -> None:
    assert wire(shape(form(), R3)) == {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    assert all(wire(shape(form(), revision))["mode"] == "form" for revision in FROM_R4)


@pytest.mark.covers("1.16.2.8", "2.2.17")
def test_titled_choices_become_enum_names_on_2025_06_18() -> None:
    options = [{"const": "pt", "title": "Portuguese"}, {"const": "en", "title": "English"}]
    field = {"type": "string", "title": "Language", "oneOf": options, "default": "en"}
    assert fields_on_2025_06_18(lang=field) == {
        "lang": {
            "type": "string",
            "title": "Language",
            "enum": ["pt", "en"],
            "enumNames": ["Portuguese", "English"],
        }
    }
    assert wire(shape(form(lang=field), R4))["requestedSchema"]["properties"] == {"lang": field}


@pytest.mark.covers("1.16.2.8", "2.2.17")
def test_choices_of_many_are_refused_on_2025_06_18() -> None:
    with pytest.raises(ValueError, match="'parts'"):
        shape(form(parts={"type": "array", "items": {"type": "string", "enum": ["a"]}}), R3)
    with pytest.raises(ValueError, match="title"):
        shape(form(lang={"type": "string", "oneOf": [{"const": "x"}]}), R3)


@pytest.mark.covers("1.16.2.8", "2.2.18")
def test_only_boolean_defaults_reach_2025_06_18() -> None:
    fields = {
        "text": {"type": "string", "default": "x"},
        "count": {"type": "integer", "default": 1},
        "sure": {"type": "boolean", "default": True},
    }
    assert fields_on_2025_06_18(**fields) == {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "sure": {"type": "boolean", "default": True},
    }


@pytest.mark.covers("2.2.13")
def test_url_elicitation_is_refused_on_2025_06_18() -> None:
    params = types.ElicitRequestParams(mode="url", message="?", url="https://x", elicitation_id="e")
    with pytest.raises(ValueError, match="URL elicitation"):
        shape(params, R3)
    assert wire(shape(params, R4)) == {"mode": "url", "message": "?", "url": "https://x", "elicitationId": "e"}
    assert wire(shape(params, R5)) == {"mode": "url", "message": "?", "url": "https://x"}


@pytest.mark.covers("2.2.15")
def test_elicitation_methods_by_revision() -> None:
    assert [r for r in REVISIONS if "elicitation/create" in methods(r)] == [R3, R4]
    assert [r for r in REVISIONS if "notifications/elicitation/complete" in methods(r)] == [R4]


CLIENT = {
    "experimental": {"x": {}},
    "roots": {"listChanged": True},
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "tasks": {"list": {}},
    "extensions": {"com.example/x": {}},
    "unheard-of": {"a": 1},
}


SERVER = {
    "tools": {"listChanged": True},
    "completions": {},
    "tasks": {"list": {}},
    "extensions": {},
    "unheard-of": {"a": 1},
}


# --- Shape: capabilities ---


@pytest.mark.covers("CAP-3", "1.1.7")
def test_capabilities_are_cut_to_the_revision_and_unknown_ones_stay() -> None:
    card = types.Implementation("c", "1")
    before = copy.deepcopy((CLIENT, SERVER))
    always = {"experimental": {"x": {}}, "unheard-of": {"a": 1}}
    legacy = {**always, "roots": {"listChanged": True}}
    expected = {
        R1: {**legacy, "sampling": {}},
        R2: {**legacy, "sampling": {}},
        R3: {**legacy, "sampling": {}, "elicitation": {}},
        R4: CLIENT,
    }
    for revision, capabilities in expected.items():
        hello = types.InitializeRequestParams(protocol_version=revision, capabilities=CLIENT, client_info=card)
        assert shape(hello, revision).capabilities == capabilities
    modern = types.RequestParams(meta=types.RequestMeta(protocol_version=R5, client_capabilities=CLIENT))
    assert wire(shape(modern, R5))["_meta"][types.CLIENT_CAPABILITIES_KEY] == {
        **{key: item for key, item in CLIENT.items() if key != "tasks"},
        "roots": {},
    }
    served = {
        R1: {"tools", "unheard-of"},
        R2: {"tools", "unheard-of", "completions"},
        R3: {"tools", "unheard-of", "completions"},
        R4: {"tools", "unheard-of", "completions", "tasks", "extensions"},
    }
    for revision, names in served.items():
        answer = types.InitializeResult(protocol_version=revision, capabilities=SERVER, server_info=card)
        assert set(shape(answer, revision).capabilities) == names
    found = types.DiscoverResult(supported_versions=[R5], capabilities=SERVER)
    assert set(shape(found, R5).capabilities) == {"tools", "unheard-of", "completions", "extensions"}
    assert before == (CLIENT, SERVER)


@pytest.mark.covers("T-21")
def test_a_client_without_forms_declares_no_elicitation_on_2025_06_18() -> None:
    card = types.Implementation("c", "1")
    hello = types.InitializeRequestParams(
        protocol_version=R3, capabilities={"elicitation": {"url": {}}}, client_info=card
    )
    assert shape(hello, R3).capabilities == {}
    assert shape(hello, R4) is hello


def test_unset_is_not_confused_with_null() -> None:
    result = types.CallToolResult(content=[], structured_content=None)
    assert wire(shape(result, R4))["structuredContent"] is None
    assert shape(result, R2).structured_content is UNSET


def test_rounds_can_not_be_told_to_older_peers() -> None:
    result = types.InputRequiredResult(request_state="s")
    assert shape(result, MODERN) is result
    for revision in LEGACY:
        with pytest.raises(ValueError, match="input_required"):
            shape(result, revision)


def test_the_current_revision_knows_all_of_a_tool_result() -> None:
    # Servers count on it, and do not look.
    content: list[Any] = [
        types.TextContent("a", annotations=types.Annotations(last_modified="2026-01-01T00:00:00Z"), meta={"a": 1}),
        types.ImageContent(data=b"a", mime_type="image/png"),
        types.AudioContent(data=b"a", mime_type="audio/wav"),
        types.ResourceLink(uri="a:b", name="b", title="B", icons=[types.Icon(src="https://a/b")]),
        types.EmbeddedResource(resource=types.ResourceContents(uri="a:b", text="b", meta={"a": 1})),
    ]
    result = types.CallToolResult(content=content, structured_content={"a": 1}, is_error=True, meta={"a": 1})
    assert shape(result, MODERN) is result
