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


def split_items(items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests to run, in their order, and the cells of thinned grids that are left out."""
    items = list(items)
    grids: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("pairwise") is not None:
            grids.setdefault(item.nodeid.split("[", 1)[0], []).append(item)
    dropped: set[pytest.Item] = set()
    for grid in grids.values():
        chosen = choose_cells([_get_cell(item) for item in grid])
        dropped |= set(grid) - {grid[index] for index in chosen}
    return [item for item in items if item not in dropped], [item for item in items if item in dropped]


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


def _get_cell(item: Any) -> Cell:
    """Return the value of each parameter; the number of a value that has no hash."""
    cell: dict[str, Hashable] = {}
    for name, value in item.callspec.params.items():
        cell[name] = value if isinstance(value, str | int | float | None) else item.callspec.indices[name]
    return cell
