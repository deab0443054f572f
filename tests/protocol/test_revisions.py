"""The five revisions: their features and methods, compared with the official schemas."""

from __future__ import annotations

from typing import Any, Literal

import pytest
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
from tests.spec import DEFINED, OFFICIAL, definitions, properties

from toolwire.protocol import types
from toolwire.protocol.methods import METHODS, methods
from toolwire.protocol.revisions import (
    FEATURES,
    LATEST_LEGACY,
    LEGACY,
    MODERN,
    REVISIONS,
    at_least,
    is_modern,
    is_supported,
    negotiate_version,
    supports,
)
from toolwire.protocol.shaping import MEMBERS, shape

# --- The registry ---


@pytest.mark.covers("J54")
def test_supported_versions() -> None:
    assert all(is_supported(revision) for revision in REVISIONS)
    assert not any(is_supported(version) for version in ("", "2025-01-01", "2099-01-01", "latest", None, 20251125))


@pytest.mark.covers("J53")
@cases(
    ("requested", "supported", "chosen"),
    [
        *((revision, None, revision) for revision in LEGACY),
        *((unknown, None, LATEST_LEGACY) for unknown in (R5, "2099-01-01", "", None, 20251125)),
        (R2, (R5, R3, R2), R2),
        (R4, (R5, R3, R2), R3),
        (R5, REVISIONS, R1),
    ],
)
def test_a_version_is_negotiated(requested: Any, supported: Any, chosen: str) -> None:
    given = () if supported is None else (supported,)
    assert negotiate_version(requested, *given) == chosen


def test_a_server_without_initialize_has_nothing_to_negotiate() -> None:
    with pytest.raises(ValueError, match="initialize"):
        negotiate_version(R5, [R5])


@pytest.mark.covers("VER-5", "1.3.2.5")
def test_versions_are_looked_up_never_ordered_as_text() -> None:
    assert at_least(R4, R3)
    assert at_least(R4, R4)
    assert not at_least(R3, R4)
    # Later dates as text, but nobody knows what they are.
    for unknown in ("2099-01-01", "2025-11-26", "v999", ""):
        assert not at_least(unknown, R1)
        assert not at_least(R1, unknown)
        assert not is_modern(unknown)
        assert not supports(unknown, "stdio")


def test_eras() -> None:
    assert [revision for revision in REVISIONS if is_modern(revision)] == [MODERN]
    assert (*LEGACY, MODERN) == REVISIONS
    assert LEGACY[-1] == LATEST_LEGACY


# --- Features ---


@pytest.mark.covers("J55")
@cases(
    ("feature", "first"),
    [
        ("tasks", R4),
        ("sse_priming", R4),
        ("icons", R4),
        ("sampling_tools", R4),
        ("oidc_discovery", R4),
        ("incremental_scope_consent", R4),
        ("url_elicitation", R4),
        ("streamable_http", R2),
        ("resource_links", R3),
    ],
)
def test_feature_starts_with_its_first_version(feature: str, first: str) -> None:
    assert supports(first, feature)
    assert not any(supports(revision, feature) for revision in REVISIONS if not at_least(revision, first))


@cases(
    ("feature", "present"),
    [
        # Which revision has what, before 2026-07-28.
        ("batching", (R2,)),
        ("http_sse", LEGACY),
        ("sessions", (R2, R3, R4)),
        ("resumability", (R2, R3, R4)),
        ("protocol_version_header", FROM_R3),
        ("protocol_version_header_on_auth_metadata", (R2,)),
        ("default_version_without_header", (R3, R4)),
        ("sse_priming", (R4,)),
        ("sse_retry", (R4,)),
        ("early_stream_close", (R4,)),
        ("event_id_names_stream", (R4,)),
        ("sse_fallback_on_any_4xx", (R2, R3)),
        ("origin_403", FROM_R4),
        ("error_without_id", FROM_R4),
        ("authorization", FROM_R2),
        ("protected_resource_metadata", FROM_R3),
        ("completions_capability", FROM_R2),
        ("completion_context", FROM_R3),
        ("elicitation", FROM_R3),
        ("elicitation_mode", FROM_R4),
        ("url_elicitation_required_error", (R4,)),
        ("elicitation_complete", (R4,)),
        ("enum_names", FROM_R3),
        ("titled_enums", FROM_R4),
        ("multi_select_enums", FROM_R4),
        ("core_tasks", (R4,)),
        ("resource_not_found_code", LEGACY),
        # What 2026-07-28 removed and added.
        ("handshake", LEGACY),
        ("ping", LEGACY),
        ("logging_set_level", LEGACY),
        ("resource_subscribe", LEGACY),
        ("roots_list_changed", LEGACY),
        ("server_requests", LEGACY),
        ("discover", (R5,)),
        ("listen", (R5,)),
        ("input_required", (R5,)),
        ("cache_hints", (R5,)),
        ("result_type", (R5,)),
        ("disconnect_cancels", (R5,)),
        ("any_structured_content", (R5,)),
        ("tasks_extension", (R5,)),
    ],
)
def test_feature_table(feature: str, present: tuple[str, ...]) -> None:
    assert tuple(revision for revision in REVISIONS if supports(revision, feature)) == present


def test_feature_names_are_readable() -> None:
    assert all(name.isidentifier() and name.islower() for name in FEATURES)
    assert all(revisions <= set(REVISIONS) for revisions in FEATURES.values())


def test_unknown_feature_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="'url_elicitation'"):
        supports(R4, "url_elicitations")
    with pytest.raises(ValueError, match="unknown feature"):
        supports("no such version", "")


def official_methods(revision: str) -> dict[str, dict[str, Any]]:
    """The definition of every request and notification that names its method."""
    found = {}
    for definition in definitions(revision).values():
        method = definition.get("properties", {}).get("method", {}).get("const")
        if method is not None:
            found[method] = definition
    return found


# Embedded in results on 2026-07-28, never messages of their own.
EMBEDDED = {"roots/list", "sampling/createMessage", "elicitation/create"}


# Defined by the tasks extension, outside the schema.
EXTENSION = {"tasks/get", "tasks/update", "tasks/cancel", "notifications/tasks"}


# --- Methods ---


@cases("revision", REVISIONS)
def test_methods_are_those_of_the_schema(revision: str) -> None:
    known = revision in DEFINED
    official = set(official_methods(revision)) if known else sent_by("Client", revision) | sent_by("Server", revision)
    if is_modern(revision):
        official = (official - EMBEDDED) | EXTENSION
    assert set(methods(revision)) == official


def sent_by(side: Literal["Client", "Server"], revision: str) -> set[str]:
    """The methods that a side may send."""
    if not OFFICIAL:
        from tests import foreign_reader

        return foreign_reader.sent_by(side, revision)
    names = definitions(revision)
    parts = [names[f"{side}Notification"]]
    if f"{side}Request" in names:
        parts.append(names[f"{side}Request"])
    targets = [option["$ref"].rpartition("/")[2] for part in parts for option in part.get("anyOf", ())]
    found = [part for part in parts if "properties" in part] + [names[target] for target in targets]
    return {definition["properties"]["method"]["const"] for definition in found}


@cases("revision", REVISIONS)
def test_senders_are_those_of_the_schema(revision: str) -> None:
    rows = methods(revision).values()
    extension = EXTENSION if is_modern(revision) else set()
    sides: tuple[Literal["Client", "Server"], ...] = ("Client", "Server")
    for side in sides:
        ours = {row.name for row in rows if row.sender in (side.lower(), "both")} - extension
        if not OFFICIAL:
            # The foreign reader does not say who sends what of the tasks of 2025-11-25.
            ours = {name for name in ours if "tasks/" not in name}
        assert ours == sent_by(side, revision)


@pytest.mark.covers("1.9.3", "2.2.1", "T-5")
def test_completion_needs_no_capability_on_2024_11_05() -> None:
    assert methods(R1)["completion/complete"].capability is None
    assert {methods(revision)["completion/complete"].capability for revision in FROM_R2} == {"completions"}


@pytest.mark.covers("1.7.1", "1.7.4")
def test_lists_are_paginated_on_every_revision() -> None:
    lists = {"tools/list", "prompts/list", "resources/list", "resources/templates/list"}
    for revision in REVISIONS:
        expected = lists | {"tasks/list"} if revision == R4 else lists
        assert {row.name for row in methods(revision).values() if row.paginated} == expected


def test_what_came_with_the_modern_era_is_only_there() -> None:
    rows = methods(MODERN)
    assert {name for name, row in rows.items() if row.rounds} == {"tools/call", "prompts/get", "resources/read"}
    assert {name for name, row in rows.items() if row.cacheable} == {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
    assert {name: row.name_field for name, row in rows.items() if row.name_field} == {
        "tools/call": "name",
        "prompts/get": "name",
        "resources/read": "uri",
        "tasks/get": "taskId",
        "tasks/update": "taskId",
        "tasks/cancel": "taskId",
    }
    for revision in LEGACY:
        assert not any(row.rounds or row.cacheable or row.name_field for row in methods(revision).values())


def test_name_field_is_a_wire_name_of_the_params() -> None:
    for row in METHODS:
        if row.name_field is not None:
            assert row.name_field in row.params.__struct_encode_fields__


def test_each_revision_has_one_row_a_method() -> None:
    for revision in REVISIONS:
        names = [row.name for row in METHODS if revision in row.revisions]
        assert len(names) == len(set(names))


def test_a_request_has_a_result_and_a_notification_has_none() -> None:
    assert all((row.kind == "request") == (row.result is not None) for row in METHODS)
    assert all((row.kind == "notification") == row.name.startswith("notifications/") for row in METHODS)


def test_method_tables_are_read_only() -> None:
    with pytest.raises(TypeError):
        methods(R1)["x"] = METHODS[0]  # type: ignore[index]
    with pytest.raises(KeyError):
        methods("2099-01-01")


# In no official schema: bases of several structs, and what the extensions tasks and skills define.
NOT_IN_ANY_SCHEMA = {
    types.Wire,
    types.Block,
    types.NestedResult,
    types.ResourceMetadata,
    types.TaskFields,
    types.TaskCreatedResult,
    types.DetailedTask,
    types.DetailedTaskResult,
    types.TaskNotificationParams,
    types.UpdateTaskRequestParams,
    types.Skill,
    types.SkillResource,
    types.ListSkillsRequestParams,
    types.ListSkillsResult,
    types.GetSkillRequestParams,
    types.GetSkillResult,
    types.ReadResourceDirectoryRequestParams,
    types.ReadResourceDirectoryResult,
}


# Definitions that have another name, by revision where it differs, or that stand inside another one.
PLACES: dict[type[types.Wire], dict[str, tuple[str, ...]]] = {
    types.RoundRequestParams: {R5: ("InputResponseRequestParams",)},
    types.ResourceTemplateReference: {
        **dict.fromkeys(UNTIL_R2, ("ResourceReference",)),
        **dict.fromkeys(FROM_R3, ("ResourceTemplateReference",)),
    },
    types.Annotations: {
        R1: ("Annotated", "properties", "annotations"),
        **dict.fromkeys(FROM_R2, ("Annotations",)),
    },
    types.Error: {
        **dict.fromkeys(UNTIL_R3, ("JSONRPCError", "properties", "error")),
        **dict.fromkeys(FROM_R4, ("Error",)),
    },
    types.RequestMeta: {
        **dict.fromkeys(UNTIL_R3, ("Request", "properties", "params", "properties", "_meta")),
        R4: ("RequestParams", "properties", "_meta"),
        R5: ("RequestMetaObject",),
    },
    types.RequestParams: {
        **dict.fromkeys(UNTIL_R3, ("Request", "properties", "params")),
        **dict.fromkeys(FROM_R4, ("RequestParams",)),
    },
    types.NotificationParams: {
        **dict.fromkeys(UNTIL_R3, ("Notification", "properties", "params")),
        **dict.fromkeys(FROM_R4, ("NotificationParams",)),
    },
    types.Completion: dict.fromkeys(REVISIONS, ("CompleteResult", "properties", "completion")),
    types.CompletionArgument: {
        **dict.fromkeys(UNTIL_R3, ("CompleteRequest", "properties", "params", "properties", "argument")),
        **dict.fromkeys(FROM_R4, ("CompleteRequestParams", "properties", "argument")),
    },
    types.CompletionContext: {
        R3: ("CompleteRequest", "properties", "params", "properties", "context"),
        **dict.fromkeys(FROM_R4, ("CompleteRequestParams", "properties", "context")),
    },
    types.EnumOption: dict.fromkeys(FROM_R4, ("TitledSingleSelectEnumSchema", "properties", "oneOf", "items")),
    types.UnsupportedProtocolVersionErrorData: {
        R5: ("UnsupportedProtocolVersionError", "properties", "error", "allOf", "1", "properties", "data")
    },
    types.MissingRequiredClientCapabilityErrorData: {
        R5: ("MissingRequiredClientCapabilityError", "properties", "error", "allOf", "1", "properties", "data")
    },
    types.URLElicitationRequiredErrorData: {
        R4: ("URLElicitationRequiredError", "properties", "error", "allOf", "1", "properties", "data")
    },
    # Embedded in results; before, they were messages.
    types.ElicitRequest: {R5: ("ElicitRequest",)},
    types.CreateMessageRequest: {R5: ("CreateMessageRequest",)},
    types.ListRootsRequest: {R5: ("ListRootsRequest",)},
}


# Two definitions of the schema that are one struct here.
MERGED = {
    types.ResourceContents: ("TextResourceContents", "BlobResourceContents"),
    types.EnumItems: ("UntitledMultiSelectEnumSchema", "TitledMultiSelectEnumSchema"),
}


def at(revision: str, place: tuple[str, ...]) -> Any:
    found: Any = definitions(revision)
    for step in place:
        while isinstance(found, dict) and "$ref" in found:
            found = definitions(revision)[found["$ref"].rpartition("/")[2]]
        if step in ("allOf", "1") and not OFFICIAL:
            continue  # The foreign reader writes the parts as one.
        if isinstance(found, dict) and step not in found and "anyOf" in found:
            found = next(option for option in found["anyOf"] if option.get("type") != "null")
            while "$ref" in found:
                found = definitions(revision)[found["$ref"].rpartition("/")[2]]
        found = found[int(step)] if isinstance(found, list) else found[step]
    return found


def official_members(struct: type[types.Wire], revision: str) -> set[str] | None:
    """The members that the schema of a revision gives a struct; None where the revision does not have it."""
    if struct in MERGED:
        names = [name for name in MERGED[struct] if name in definitions(revision)]
        parts = [at(revision, (name,)) for name in names]
        if struct is types.EnumItems:
            parts = [part["properties"]["items"] for part in parts]
        return set().union(*(properties(part, revision) or set() for part in parts)) if parts else None
    if struct in PLACES:
        place = PLACES[struct].get(revision)
        return None if place is None else properties(at(revision, place), revision)
    if struct.__name__ in definitions(revision):
        return properties(definitions(revision)[struct.__name__], revision)
    # Until 2025-06-18 params have no definition of their own but stand inside their request.
    for row in METHODS:
        if row.params is struct and revision in row.revisions:
            definition = official_methods(revision).get(row.name)
            if definition is not None:
                return properties(definition["properties"]["params"], revision)
    return None


def deliberate(struct: type[types.Wire], revision: str) -> set[str]:
    """Members we have beyond the definition, each for a reason."""
    extra: set[str] = set()
    is_params = issubclass(struct, types.RequestParams | types.NotificationParams)
    if is_params and not at_least(revision, R4):
        # Declared once, on the base of all requests and notifications, whose params are open.
        extra.add("_meta")
    if revision == R4 and struct in (types.TaskRequestParams, types.ElicitationCompleteNotificationParams):
        # Written out in the request itself, without the `_meta` that every params object may have.
        extra.add("_meta")
    if struct is types.RequestMeta:
        # The trace names of SEP-414 work everywhere, as `_meta` is open.
        extra.update(types.TRACE_KEYS)
        if revision == R4:
            # Described by the tasks page, not by the schema of `_meta`.
            extra.add(types.RELATED_TASK_KEY)
    if struct is types.SubscriptionFilter:
        # Added by the tasks extension.
        extra.add("taskIds")
    if struct is types.EnumItems:
        # Read from peers that follow SEP-1330 literally; we never write it.
        extra.add("oneOf")
    return extra


# --- Parity with the schemas ---


@pytest.mark.covers("T-49")
@pytest.mark.parametrize("revision", DEFINED)
def test_surviving_members_are_those_of_the_schema(revision: str) -> None:
    for struct in STRUCTS:
        official = official_members(struct, revision)
        if official is not None:
            survived = set(wire(shape(sample(struct), revision)))
            assert survived == official | deliberate(struct, revision), struct


def test_every_struct_is_held_against_some_schema() -> None:
    unchecked = {struct for struct in STRUCTS if not any(official_members(struct, revision) for revision in DEFINED)}
    # A choice of several definitions, which the foreign reader has no name for.
    nameless = set() if OFFICIAL else {types.PrimitiveSchemaDefinition}
    assert unchecked == NOT_IN_ANY_SCHEMA | nameless


def test_the_member_table_names_real_members() -> None:
    for struct, members in MEMBERS.items():
        assert set(members) <= set(struct.__struct_fields__)
