"""Thins out grids of tests: a few cells that have every pair of values of any two parameters, or a sample.

A test with three or more parameters and `@pytest.mark.pairwise` runs in those cells. With `--sample=NUMBER` a test with
`@pytest.mark.sampled` runs in every other cell; which ones depends on whether the number is even. `--all-cells` runs
whole grids, as `make nightly` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest

Cell = Mapping[str, Hashable]
Pair = tuple[tuple[str, Hashable], tuple[str, Hashable]]


def choose_cells(cells: Sequence[Cell]) -> list[int]:
    """Return the positions of cells that together have every pair of values of the grid."""
    pairs = [set(combinations(sorted(cell.items(), key=lambda item: item[0]), 2)) for cell in cells]
    missing: set[Pair] = set().union(*pairs)
    chosen = []
    while missing:
        # The first of the best: the choice does not depend on the order of sets.
        best = max(range(len(cells)), key=lambda index: len(pairs[index] & missing))
        chosen.append(best)
        missing -= pairs[best]
    return sorted(chosen)


def thin_out(metafunc: pytest.Metafunc) -> None:
    """Leave the chosen cells of a grid, before tests are made of them."""
    if metafunc.definition.get_closest_marker("pairwise") is not None:
        calls: list[Any] = metafunc._calls
        calls[:] = [calls[index] for index in choose_cells(_get_cells(calls))]


def sample_items(items: Iterable[pytest.Item], number: int) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests to run, in their order, and the cells that the sample leaves out."""
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    seen: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("sampled") is None:
            kept.append(item)
            continue
        grid = item.nodeid.split("[", 1)[0]
        seen[grid] += 1
        ((kept, dropped)[(seen[grid] + number) % 2]).append(item)
    return kept, dropped


def _get_cells(calls: Iterable[Any]) -> list[Cell]:
    """Return the number of each value among the values of its parameter."""
    known: dict[str, list[Any]] = {}
    return [
        {name: _find_number(known.setdefault(name, []), value) for name, value in call.params.items()} for call in calls
    ]


def _find_number(known: list[Any], value: Any) -> int:
    """Return where a value is in a list, and append a new one: `call.indices` has another number in every cell."""
    for number, other in enumerate(known):
        # True is not 1 here.
        if other is value or (type(other) is type(value) and other == value):
            return number
    known.append(value)
    return len(known) - 1
