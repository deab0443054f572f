"""Grids of tests in a few cells: every pair of values stays."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from typing import Any

from tests.cases import cases
from tests.pairwise import choose_cells, sample_items

ROOT = Path(__file__).resolve().parent.parent


@cases("sizes", [(2, 2, 2), (5, 7, 3, 2, 2), (4, 1, 3), (6, 6), (3,)])
def test_every_pair_of_values_is_in_a_chosen_cell(sizes: tuple[int, ...]) -> None:
    cells = [dict(enumerate(cell)) for cell in product(*map(range, sizes))]
    named = [{str(key): value for key, value in cell.items()} for cell in cells]
    chosen = [named[index] for index in choose_cells(named)]
    for (one, first), (two, second) in combinations(enumerate(sizes), 2):
        found = {(cell[str(one)], cell[str(two)]) for cell in chosen}
        assert found == set(product(range(first), range(second)))


def test_grid_of_five_parameters_becomes_small() -> None:
    cells = [{str(key): value for key, value in enumerate(cell)} for cell in product(*map(range, (5, 7, 3, 2, 2)))]
    assert len(choose_cells(cells)) < 45


def test_cells_with_a_constraint_keep_the_pairs_that_exist() -> None:
    cells = [{"a": a, "b": b, "c": c} for a, b, c in product(range(3), repeat=3) if (a, b) != (0, 0)]
    chosen = [cells[index] for index in choose_cells(cells)]
    assert {(cell["a"], cell["b"]) for cell in chosen} == {(cell["a"], cell["b"]) for cell in cells}


PLUGIN = """
import pytest
from tests import pairwise

@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc):
    pairwise.thin_out(metafunc)
"""
# The cells of one parameter are made by a fixture, those of another by the module.
GRID = """
import pytest

@pytest.fixture(params=["a", "b", "c"])
def way(request): return request.param

def pytest_generate_tests(metafunc):
    metafunc.parametrize("kind", {kinds}, ids=["x", "y", "z"])

@pytest.mark.pairwise
@pytest.mark.parametrize("number", [0, 1, 2])
def test_something(number, kind, way): pass

@pytest.mark.parametrize("number", [0, 1, 2])
def test_whole(number, kind, way): pass
"""
# Without a hash, compared by value, and compared by identity.
KINDS = {
    "lists": "[['x'], ['y'], ['z']]",
    "equal": "[('x',), 1, True]",
    "objects": "[object(), ValueError, ValueError()]",
}


def test_grid_with_values_of_any_type_is_thinned(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PLUGIN)
    for name, kinds in KINDS.items():
        (tmp_path / f"test_{name}.py").write_text(GRID.format(kinds=kinds))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    for name in KINDS:
        assert done.stdout.count(f"test_{name}.py::test_whole[") == 27
        lines = [line for line in done.stdout.splitlines() if f"test_{name}.py::test_something[" in line]
        cells = [line.split("[")[1].rstrip("]").split("-") for line in lines]
        assert 9 <= len(cells) <= 12, done.stdout
        for one, two in combinations(range(3), 2):
            assert len({(cell[one], cell[two]) for cell in cells}) == 9


class Item:
    def __init__(self, name: str, is_sampled: bool) -> None:
        self.nodeid, self.is_sampled = name, is_sampled

    def get_closest_marker(self, name: str) -> object:
        return True if self.is_sampled and name == "sampled" else None


def test_two_samples_have_every_cell_once() -> None:
    items: list[Any] = [Item(f"{grid}[{cell}]", grid != "c") for grid in "abc" for cell in range(5)]
    first, second = (sample_items(items, number) for number in (7, 8))
    names = [[item.nodeid for item in kept if item.is_sampled] for kept, _ in (first, second)]
    assert sorted(names[0] + names[1]) == sorted(item.nodeid for item in items if item.is_sampled)
    assert [len(each) for each in names] == [6, 4]
    for kept, dropped in (first, second):
        assert len(kept) + len(dropped) == len(items)
        assert all(item in kept for item in items if not item.is_sampled)
