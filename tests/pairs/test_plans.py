"""Do the parts of the pairs that run for a change have every pair among them, and is every cell accounted for?"""

from __future__ import annotations

from tests.pairs.plans import CLIENTS, OVERS, PAIRS, PROBES, SERVERS, choose_pairs, probes_of


def test_sixteen_numbers_have_every_pair_and_each_has_every_server_and_client() -> None:
    seen = set()
    for number in range(16):
        chosen = choose_pairs(number)
        assert len(set(chosen)) == 12
        assert {pair.server for pair in chosen} == set(SERVERS)
        assert {pair.client for pair in chosen} == set(CLIENTS)
        assert {pair.over for pair in chosen} == set(OVERS)
        assert any(pair.over != pair.front for pair in chosen)
        seen |= set(chosen)
    assert seen == set(PAIRS)
    assert choose_pairs(3) == choose_pairs(19)


def test_every_probe_of_a_pair_is_made_or_has_a_reason() -> None:
    for pair in PAIRS:
        made = probes_of(pair.plan())
        assert sorted([*made, *pair.not_offered()]) == sorted(PROBES), pair.name
