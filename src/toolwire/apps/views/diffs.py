"""Changes of texts, line by line, for the user to approve or reject."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from toolwire.apps.views.ready import ReadyView, data_of, with_text
from toolwire.protocol.errors import ServerError
from toolwire.protocol.types import CallToolResult

#: Parts of this many lines are compared in full. Longer ones, if no line in them is unique, are replaced as a whole.
MAX_FULL: Final = 200

#: The line after the last one of a text that does not end as the other one does, as in the unified format.
NO_END: Final = "\\ No newline at the end"

Operation = tuple[str, int, int, int, int]


class Hunk(Struct):
    """Lines that belong together: changed ones, and a few around them."""

    before: int
    """The number of its first line in the old text."""
    after: int
    """The number of its first line in the new text."""
    lines: list[str]
    """The lines, each with "+", "-" or a blank before it. One that begins with a backslash is about the line before."""


class Diff(Struct, omit_defaults=True):
    """A change of a text. `Diff.of(before, after)` makes it."""

    hunks: list[Hunk]
    added: int = 0
    """How many lines the change adds."""
    removed: int = 0
    """How many lines the change removes."""
    name: str = ""
    """The name of what is changed, such as that of a file."""
    arguments: dict[str, Any] = {}
    """The arguments of the tool that the user's decision calls."""

    @classmethod
    def of(
        cls,
        before: str,
        after: str,
        *,
        name: str = "",
        arguments: Mapping[str, Any] | None = None,
        context: int = 3,
    ) -> Diff:
        """Compare two texts line by line.

        `context` is the number of lines around a change that are shown.
        """
        old, new = _lines(before), _lines(after)
        if old and new and before.endswith("\n") != after.endswith("\n"):
            # A line has no line feed in it, so that this one differs from every other.
            (new if before.endswith("\n") else old)[-1] += "\n"
        operations = _operations(old, new)
        hunks = [_hunk(old, new, group) for group in _groups(operations, context)]
        signs = Counter(line[0] for hunk in hunks for line in hunk.lines)
        return cls(hunks, signs["+"], signs["-"], name, dict(arguments or {}))

    def __str__(self) -> str:
        """Return the change in the unified format."""
        name = " ".join(self.name.splitlines()) or "text"
        parts = [f"--- {name}", f"+++ {name}"]
        for hunk in self.hunks:
            counts = Counter(line[0] for line in hunk.lines)
            old, new = counts[" "] + counts["-"], counts[" "] + counts["+"]
            parts.append(f"@@ -{hunk.before},{old} +{hunk.after},{new} @@")
            parts += hunk.lines
        return "\n".join(parts)


class DiffView(ReadyView):
    """A change of a text, to be approved or rejected. `diff()` makes it."""

    kind: ClassVar[str] = "diff"
    scripts: ClassVar[tuple[str, ...]] = ("diff_view",)
    styles: ClassVar[tuple[str, ...]] = ("diff",)
    reads_structured: ClassVar[bool] = True

    def __init__(
        self,
        approve: str | None,
        reject: str | None,
        labels: tuple[str, str],
        comment: bool,
        title: str,
        description: str,
        empty: str,
    ) -> None:
        super().__init__(title, description, empty)
        if approve is None and (reject is not None or comment):
            raise ServerError("views.diff() with reject= or comment= needs approve=, the tool that makes the change")
        if approve is not None and approve == reject:
            raise ServerError(f"views.diff() has {approve!r} as approve= and as reject=")
        self.approve: str | None = approve
        self.reject: str | None = reject
        self.labels: tuple[str, str] = labels
        self.comment: bool = comment

    def settings(self, tools: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        return {
            "approve": self.approve,
            "reject": self.reject,
            "approveLabel": self.labels[0],
            "rejectLabel": self.labels[1],
            "comment": self.comment,
        }

    def present(self, result: CallToolResult) -> CallToolResult:
        data = data_of(result)
        if data is None:
            return result
        change = msgspec.convert(data, Diff)
        return with_text(result, str(change) if change.hunks else self.empty)


def diff(
    *,
    approve: str | None = None,
    reject: str | None = None,
    labels: tuple[str, str] = ("Approve", "Reject"),
    comment: bool = False,
    title: str = "",
    description: str = "",
    empty: str = "Nothing is changed.",
) -> DiffView:
    """Make a view of the `Diff` that a tool returns.

    The text of the result is the diff in the unified format.

    `approve` and `reject` are the names of tools of the app (`@app.tool`). They are called with `Diff.arguments` when
    the user decides; with `comment=True` also with the user's `comment`, if there is one. Without them the view has no
    buttons.
    """
    return DiffView(approve, reject, labels, comment, title, description, empty)


def _lines(text: str) -> list[str]:
    """Split a text at line feeds only.

    Anything else that looks like the end of a line is a part of the change.
    """
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _operations(old: Sequence[str], new: Sequence[str]) -> list[Operation]:
    """Return the steps from one list of lines to the other."""
    steps: list[Operation] = []
    a = c = 0
    for i, j in [*_same_lines(old, new), (len(old), len(new))]:
        if i > a or j > c:
            steps.append(("replace", a, i, c, j))
        if i == len(old) and j == len(new):
            break
        if steps and steps[-1][0] == "equal" and steps[-1][2] == i and steps[-1][4] == j:
            steps[-1] = ("equal", steps[-1][1], i + 1, steps[-1][3], j + 1)
        else:
            steps.append(("equal", i, i + 1, j, j + 1))
        a, c = i + 1, j + 1
    return steps


def _same_lines(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the numbers, in both texts, of the lines that stay.

    The time grows hardly faster than the texts.

    Lines that occur once in both texts are found first, and the parts between them are compared alone. That is the
    "patience" comparison. Parts without such lines are compared in full if they are short.
    """
    pairs: list[tuple[int, int]] = []
    todo = [(0, len(old), 0, len(new))]
    while todo:
        a, b, c, d = todo.pop()
        while a < b and c < d and old[a] == new[c]:
            pairs.append((a, c))
            a, c = a + 1, c + 1
        while a < b and c < d and old[b - 1] == new[d - 1]:
            b, d = b - 1, d - 1
            pairs.append((b, d))
        anchors = _anchors(old, new, (a, b), (c, d))
        if anchors:
            # A part starts with its anchor, which the loops above take away.
            for i, j in [*anchors, (b, d)]:
                todo.append((a, i, c, j))
                a, c = i, j
        elif max(b - a, d - c) <= MAX_FULL:
            blocks = SequenceMatcher(None, old[a:b], new[c:d], autojunk=False).get_matching_blocks()
            pairs += [(a + i + at, c + j + at) for i, j, size in blocks for at in range(size)]
    return sorted(pairs)


def _anchors(
    old: Sequence[str], new: Sequence[str], olds: tuple[int, int], news: tuple[int, int]
) -> list[tuple[int, int]]:
    """Return the lines that occur once in both parts and do not cross each other."""
    places: dict[str, list[int]] = {}
    for at in range(*news):
        places.setdefault(new[at], []).append(at)
    counts = Counter(old[slice(*olds)])
    found = [
        (at, places[old[at]][0]) for at in range(*olds) if counts[old[at]] == 1 and len(places.get(old[at], ())) == 1
    ]
    # The longest row of them that rises in both texts: the last of each row of a length, and what stands before it.
    ends: list[int] = []
    rows: list[tuple[tuple[int, int], Any]] = []
    for pair in found:
        at = bisect_left(ends, pair[1])
        row = (pair, rows[at - 1] if at else None)
        if at == len(ends):
            ends.append(pair[1])
            rows.append(row)
        else:
            ends[at], rows[at] = pair[1], row
    longest: list[tuple[int, int]] = []
    last = rows[-1] if rows else None
    while last is not None:
        longest.append(last[0])
        last = last[1]
    return longest[::-1]


def _groups(operations: list[Operation], context: int) -> Iterator[list[Operation]]:
    """Return the steps that belong together: changes, and the lines around them."""
    group: list[Operation] = []
    for kind, a, b, c, d in operations:
        if kind != "equal":
            group.append((kind, a, b, c, d))
            continue
        if b - a > 2 * context:
            if group:
                yield [*group, (kind, a, a + context, c, c + context)]
            group = [(kind, b - context, b, d - context, d)]
        else:
            group.append((kind, a, b, c, d))
    if any(kind != "equal" for kind, *_ in group):
        last, a, b, c, d = group[-1]
        if last == "equal":
            group[-1] = (last, a, min(b, a + context), c, min(d, c + context))
        yield group


def _hunk(old: Sequence[str], new: Sequence[str], group: list[Operation]) -> Hunk:
    lines: list[str] = []
    for kind, a, b, c, d in group:
        if kind == "equal":
            lines += [f" {line}" for line in old[a:b]]
        else:
            lines += _signed("-", old[a:b])
            lines += _signed("+", new[c:d])
    return Hunk(group[0][1] + 1, group[0][3] + 1, lines)


def _signed(sign: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{sign}{line.removesuffix(chr(10))}"
        if line.endswith("\n"):
            yield NO_END
