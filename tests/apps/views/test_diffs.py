"""Changes: what is shown leads from the old text to the new one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.apps import views
from toolwire.protocol.errors import ServerError
from toolwire.types import CallToolResult, TextContent

LINE = st.sampled_from(["a", "b", "c", "", "  x", "unique 1", "unique 2", "unique 3"])
# Most lines stay, so that there are several changes with lines between them.
STEPS = st.lists(st.tuples(st.sampled_from(["stays"] * 8 + ["goes", "comes", "changes"]), LINE, LINE), max_size=40)


def applied(before: list[str], change: views.Diff) -> list[str]:
    """Make the new text of the old one and its change."""
    after: list[str] = []
    at = 0
    for hunk in change.hunks:
        after += before[at : hunk.before - 1]
        at = hunk.before - 1
        assert len(after) == hunk.after - 1
        for line in hunk.lines:
            if line[0] == "+":
                after.append(line[1:])
                continue
            assert before[at] == line[1:]
            after += [line[1:]] if line[0] == " " else []
            at += 1
    return after + before[at:]


@pytest.mark.covers("APP-8A.12")
@given(STEPS, st.integers(0, 4))
def test_a_change_leads_to_the_new_text(steps: list[tuple[str, str, str]], context: int) -> None:
    before = [line for what, line, _ in steps if what != "comes"]
    after = [line if what == "stays" else other for what, line, other in steps if what != "goes"]
    old, new = "\n".join([*before, "end"]), "\n".join([*after, "end"])
    change = views.Diff.of(old, new, context=context)
    assert applied(old.splitlines(), change) == new.splitlines()
    signs = [line[0] for hunk in change.hunks for line in hunk.lines]
    assert (change.added, change.removed) == (signs.count("+"), signs.count("-"))
    assert bool(change.hunks) == (old != new)


@given(st.text("ab\n\r\u2028\x0b", max_size=20), st.text("ab\n\r\u2028\x0b", max_size=20))
def test_no_change_is_hidden(before: str, after: str) -> None:
    change = views.Diff.of(before, after)
    assert bool(change.hunks) == (before != after)
    if before != after:
        kinds = {sign: [line[1:] for hunk in change.hunks for line in hunk.lines if line[0] == sign] for sign in "-+\\"}
        assert kinds["-"] != kinds["+"] or kinds["\\"]


def test_the_end_of_a_text_can_change_and_names_stay_in_their_line() -> None:
    change = views.Diff.of("a\nb", "a\nb\n", name="f\n+++ g")
    assert str(change) == "--- f +++ g\n+++ f +++ g\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at the end\n+b"
    assert (change.added, change.removed) == (1, 1)


@pytest.mark.covers("APP-8A.12")
def test_only_what_changed_is_shown() -> None:
    before = [f"line {number}" for number in range(100)]
    after = [*before[:10], "new", *before[10:50], *before[51:]]
    change = views.Diff.of("\n".join(before), "\n".join(after), context=1)
    assert [(hunk.before, hunk.after, hunk.lines) for hunk in change.hunks] == [
        (10, 10, [" line 9", "+new", " line 10"]),
        (50, 51, [" line 49", "-line 50", " line 51"]),
    ]


@cases(
    ("before", "after"),
    [
        (
            "".join(f"line {n}\n" for n in range(10_000)),
            "".join(f"line {n}{'!' * (n % 7 == 3)}\n" for n in range(10_000)),
        ),
        ("a\nb\n" * 10_000, "b\na\na\n" * 8_000),
        ("", "x\n" * 20_000),
    ],
)
def test_long_texts_are_compared_soon(before: str, after: str) -> None:
    change = views.Diff.of(before, after)
    assert applied(before.splitlines(), change) == after.splitlines()


def test_the_text_is_a_unified_diff() -> None:
    view = views.diff(empty="The same.")
    for after, text in (("a\nc", "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+c"), ("a\nb", "The same.")):
        change = views.Diff.of("a\nb", after, name="f")
        data = {"hunks": [{"before": h.before, "after": h.after, "lines": h.lines} for h in change.hunks], "name": "f"}
        result = view.present(CallToolResult(content=[], structured_content=data))
        assert [each.text for each in result.content if isinstance(each, TextContent)] == [text]


def test_buttons_need_tools() -> None:
    with pytest.raises(ServerError, match="needs approve="):
        views.diff(reject="no")
    with pytest.raises(ServerError, match="needs approve="):
        views.diff(comment=True)
    with pytest.raises(ServerError, match="as approve= and as reject="):
        views.diff(approve="a", reject="a")
