"""The cases that `make test` runs of a product: every pair of values meets in one of them."""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from tests.support.pairwise import covering

CASES = st.lists(st.fixed_dictionaries({name: st.integers(0, 3) for name in "abcd"}), min_size=1, max_size=40)


@given(CASES)
def test_every_pair_of_values_that_meets_at_all_meets_in_a_chosen_case(cases: list[dict[str, int]]) -> None:
    chosen = covering(cases)
    met = {pair for place in chosen for pair in combinations(cases[place].items(), 2)}
    assert met == {pair for case in cases for pair in combinations(case.items(), 2)}


def test_a_product_of_three_takes_as_many_cases_as_its_two_longest_sides() -> None:
    cases = [dict(zip("abc", values, strict=True)) for values in product(range(2), range(3), range(7))]
    assert len(covering(cases)) == 3 * 7
