"""The index of tools: words, order, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.protocol import types as t
from toolwire.search import IndexedTool, ToolIndex
from toolwire.search.tool_index import ToolIndexes
from toolwire.search.words import split_words, stem, terms


def index(*names: str, **described: str) -> ToolIndex:
    tools = [IndexedTool(name=name) for name in names]
    return ToolIndex([*tools, *(IndexedTool(name=name, description=text) for name, text in described.items())])


def found(tools: ToolIndex, query: str, limit: int = 5) -> list[str]:
    return [hit.name for hit in tools.search(query, limit)]


@cases(
    ("text", "words"),
    [
        ("search_customers", ["search", "customers"]),
        ("searchCustomers", ["search", "customers", "searchcustomers"]),
        ("HTTPServer2", ["http", "server", "2", "httpserver2"]),
        ("GitHub", ["git", "hub", "github"]),
        ("Répéter l'été", ["repeter", "l", "ete"]),
        ("создать заказ", ["создать", "заказ"]),
        ("创建订单", ["创建", "建订", "订单"]),
        ("", []),
    ],
)
def test_names_split_on_case_digits_and_underscores(text: str, words: list[str]) -> None:
    assert list(split_words(text)) == words


@cases(
    ("first", "second"),
    [
        ("merge", "merging"),
        ("merge", "merged"),
        ("customers", "customer"),
        ("repositories", "repository"),
        ("starred", "stars"),
        ("searches", "search"),
        ("lists", "listing"),
        ("delete", "deleted"),
        ("address", "addresses"),
    ],
)
def test_forms_of_a_word_have_one_stem(first: str, second: str) -> None:
    assert stem(first) == stem(second)


@cases(("first", "second"), [("string", "str"), ("status", "statue"), ("need", "ne"), ("sing", "s")])
def test_different_words_keep_different_stems(first: str, second: str) -> None:
    assert stem(first) != stem(second)


def test_stop_words_are_not_counted_and_abbreviations_are_expanded() -> None:
    assert list(terms("who starred my repo")) == [stem("starred"), stem("repository")]
    assert list(terms("the PR")) == [stem("pull"), stem("request")]


def test_search_finds_another_form_of_the_word() -> None:
    tools = index(search_customers="Look up people who bought something.", delete_order="Remove an order.")
    assert found(tools, "find a customer") == ["search_customers"]


@pytest.mark.covers("TS-6")
def test_exact_name_comes_first_then_prefixes_then_scores() -> None:
    tools = index("issue_list", "issue", "listIssue", text="issue " * 20, other="an issue about an issue")
    assert found(tools, "issue")[:2] == ["issue", "issue_list"]
    assert set(found(tools, "issue")[2:]) == {"listIssue", "text", "other"}
    assert found(tools, "issue_list")[0] == "issue_list"
    assert found(tools, "Issue List")[0] == "issue_list"


def test_same_words_in_another_spelling_do_not_displace_the_exact_name() -> None:
    tools = index("list_pets", "listPets", "list-pets", "ListPets")
    for name in ("list_pets", "listPets", "list-pets", "ListPets"):
        assert found(tools, name)[0] == name


def test_select_returns_tools_by_name() -> None:
    tools = index("a", "b", "c")
    assert found(tools, "select:c, a,unknown") == ["c", "a"]
    assert found(tools, "select:") == []


@cases(("query",), [("",), ("  ",), ("the of",), ("!!",), ("unicorn",)])
def test_a_query_without_a_matching_word_finds_nothing(query: str) -> None:
    assert found(index("a_tool", merge="Merge it."), query) == []


def test_a_hit_says_which_words_matched_and_what_the_tool_costs() -> None:
    tools = ToolIndex([IndexedTool(name="merge_pull", description="Merge a pull request.", server="github")])
    (hit,) = tools.search("merging the PR")
    assert (hit.name, hit.server, hit.words) == ("merge_pull", "github", ("merging", "pr"))
    assert hit.score > 0
    assert 10 < hit.tokens < 40


def test_keywords_arguments_and_server_are_searched() -> None:
    schema = {"type": "object", "properties": {"zip": {"type": "string", "description": "Postal code."}}}
    tools = ToolIndex(
        [
            IndexedTool(name="one", keywords=["weather", "rain"]),
            IndexedTool(name="two", input_schema=schema),
            IndexedTool(name="three", server="stripe"),
        ]
    )
    assert [found(tools, query) for query in ("rain", "zip", "postal", "stripe")] == [
        ["one"],
        ["two"],
        ["two"],
        ["three"],
    ]


@pytest.mark.covers("TS-6")
def test_a_description_stuffed_with_words_does_not_win() -> None:
    honest = IndexedTool(name="send_invoice", description="Send an invoice to a customer.", server="billing")
    stuffed = IndexedTool(name="helper", description="send invoice customer pay " * 5_000, server="unknown")
    fillers = [IndexedTool(name=f"tool_{number}", description="Does something else.") for number in range(50)]
    tools = ToolIndex([stuffed, honest, *fillers])
    assert found(tools, "send an invoice to the customer")[0] == "send_invoice"


def test_words_beyond_the_bound_of_a_field_are_not_counted() -> None:
    assert found(index(tool="filler " * 500 + "needle"), "needle") == []


def test_from_definition_reads_texts_and_search_hints() -> None:
    for hint in ("rain", ["rain"], ["rain", 7]):
        tool = t.Tool("a", {"type": "object"}, title="T", description="D", meta={"anthropic/searchHint": hint})
        assert IndexedTool.from_definition(tool, "s") == IndexedTool(
            name="a", title="T", description="D", input_schema={"type": "object"}, keywords=("rain",), server="s"
        )
    assert IndexedTool.from_definition(t.Tool("a", {})) == IndexedTool(name="a")


def test_schemas_of_any_form_are_indexed() -> None:
    for schema in ({}, {"properties": []}, {"properties": {"a": True, "b": {"description": 7}}}):
        assert found(ToolIndex([IndexedTool(name="x", input_schema=schema)]), "x") == ["x"]


def test_indexes_are_kept_by_what_a_caller_sees() -> None:
    built: list[str] = []
    kept = ToolIndexes(max_entries=2)

    def get(*names: str, revision: int = 0) -> ToolIndex:
        def make() -> ToolIndex:
            built.append(" ".join(names))
            return index(*names)

        return kept.get(names, revision, make)

    for _ in range(3):
        assert found(get("a", "b"), "b") == ["b"]
        assert found(get("a"), "b") == []
    assert built == ["a b", "a"]
    get("b", "a")
    assert built == ["a b", "a"]
    get("a", revision=1)
    assert built == ["a b", "a", "a"]
    get("a")
    assert built == ["a b", "a", "a", "a"]


@given(st.lists(st.text(), max_size=5), st.text())
def test_any_text_can_be_indexed_and_asked(texts: list[str], query: str) -> None:
    tools = ToolIndex(IndexedTool(name=text, description=text, server=text) for text in texts)
    hits = tools.search(query)
    assert len(hits) <= 5
    assert {hit.name for hit in hits} <= set(texts)
    assert hits == tools.search(query)


def test_large_definitions_are_indexed_and_measured_in_bounded_work() -> None:
    schema = {
        "type": "object",
        "properties": {f"member{number}": {"description": "x " * 50} for number in range(9_000)},
    }
    tool = IndexedTool(name="n" * 100_000, description="word " * 1_000_000, input_schema=schema)
    assert [counter.total() <= 200 for counter in tool.counts] == [True] * 4
    assert 500_000 < tool.tokens < 3_000_000
