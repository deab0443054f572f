"""Grids of tests in a few cells: every pair of values stays."""

from __future__ import annotations

from itertools import combinations, product

from tests.cases import cases
from tests.pairwise import choose_cells


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
