"""Claims about the widths that the data choose."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard import Database, Gaussian, NotSelf, attend
from regard.database import bandwidth as bandwidths
from regard.database.bandwidth import MISMATCH, Choice, Places, Widths, choose, first_good

ONE = Places(quantities=((0,),))


def uniform(n_rows: int, dim: int = 1, seed: int = 0) -> Tensor:
    return torch.rand(n_rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def noise(n_rows: int, seed: int = 1) -> Tensor:
    return torch.randn(n_rows, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def choice(keys: Tensor, values: Tensor, places: Places = ONE) -> Choice:
    return choose(keys, places, lambda rows: values[rows])


def bandwidth(keys: Tensor, values: Tensor) -> float:
    return choice(keys, values).widths.bandwidths[0]


def test_it_predicts_hidden_rows_nearly_as_well_as_the_best_bandwidth_does() -> None:
    keys = uniform(300)
    values = (12 * keys).sin() + 0.2 * noise(300)

    def error(width: float) -> float:
        predicted = attend(keys, keys, values, score=Gaussian(width), mask=NotSelf())
        return float((predicted - values).square().mean())

    best = min(error(2.0**exponent) for exponent in range(-8, 2))
    assert error(bandwidth(keys, values)) < 1.1 * best


def test_a_wiggly_curve_gets_a_narrower_one_than_a_flat_one() -> None:
    keys, ripple = uniform(300), 0.1 * noise(300)
    assert bandwidth(keys, (30 * keys).sin() + ripple) < bandwidth(keys, (3 * keys).sin() + ripple) / 2


def test_values_that_do_not_depend_on_the_keys_are_averaged() -> None:
    assert bandwidth(uniform(300), noise(300)) > 1.0


def test_keys_that_repeat_speak_for_themselves() -> None:
    peak = Database([1, 2, 3] * 50, [0.0, 100.0, 0.0] * 50)
    assert peak.attend(2).value == pytest.approx(100.0)
    years = Database([2020, 2021, 2022] * 30, [10.0, 20.0, 30.0] * 30)
    assert years.attend([2020, 2021, 2022]).values == pytest.approx([10.0, 20.0, 30.0])


def test_a_query_between_two_steps_still_finds_both() -> None:
    peak = Database([1, 2, 3] * 50, [0.0, 100.0, 0.0] * 50)
    assert peak.attend(2.5).value == pytest.approx(50.0)
    keys = torch.arange(10, dtype=torch.float64).repeat(50).unsqueeze(-1)
    assert bandwidth(keys, keys.square()) >= 1 / 8


def test_many_rows_on_each_step_do_not_narrow_it_below_the_steps() -> None:
    keys = torch.arange(10, dtype=torch.float64).repeat(20_000)
    answer = Database(keys, keys.square()).attend(2.5)
    assert answer.value == pytest.approx(6.5)


def test_keys_that_are_steps_but_do_not_repeat_hear_their_neighbours() -> None:
    keys = torch.arange(100, dtype=torch.float64).unsqueeze(-1)
    assert bandwidth(keys, keys.square()) >= 1


def test_an_outlier_does_not_widen_everything() -> None:
    keys = [place / 50 for place in range(50)]
    answer = Database([*keys, 1e6], [*(100 * key for key in keys), 0.0]).attend(0.1)
    assert answer.value == pytest.approx(10.0, abs=0.1)


def test_candidates_are_compared_in_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    errors = bandwidths.Search.errors
    monkeypatch.setattr(
        bandwidths.Search, "errors", lambda self, candidates: calls.append(len(candidates)) or errors(self, candidates)
    )
    keys = uniform(300, 2)
    choice(keys, keys[:, :1], Places(((0,), (1,))))
    assert len(calls) <= 8
    assert sum(calls) > 20


def test_a_quantity_that_says_nothing_is_widened_and_one_that_does_is_not() -> None:
    keys = uniform(300, 2)
    widths = choice(keys, (6 * keys[:, :1]).sin() + 0.1 * noise(300), Places(((0,), (1,)))).widths
    assert widths.bandwidths[1] > 5 * widths.bandwidths[0]


def test_a_category_that_matters_costs_more_than_one_that_does_not() -> None:
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(4, (400, 2), generator=generator).double()
    keys = torch.cat([uniform(400), codes], dim=-1)
    widths = choice(keys, keys[:, :1] + 3 * codes[:, :1] + 0.1 * noise(400), Places(((0,),), (1, 2))).widths
    assert widths.mismatches[0] < 0.02
    assert widths.mismatches[1] >= MISMATCH


def test_with_too_little_to_go_by_it_is_scott_s_rule() -> None:
    for found in (choice(uniform(3), noise(3)), choose(uniform(100), ONE, lambda rows: None)):
        assert found.method == "Scott's rule"
    assert choose(uniform(100), ONE, lambda rows: None).widths == Widths((100 ** (-1 / 5),))
    assert choose(uniform(100), Places(((0,),), (0,)), lambda rows: None).widths.mismatches == (MISMATCH,)


def test_names_that_are_all_different_cannot_be_predicted() -> None:
    names = Database([float(row) for row in range(50)], [f"student {row}" for row in range(50)])
    assert "by Scott's rule" in names.attend(3.0).similarity


def test_more_rows_than_the_sample_narrow_it() -> None:
    def curve(n_rows: int) -> float:
        keys = uniform(n_rows)
        return bandwidth(keys, (12 * keys).sin() + 0.5 * noise(n_rows))

    assert curve(200_000) < curve(2000)


def test_the_same_rows_choose_the_same_widths() -> None:
    keys, values = uniform(5000), noise(5000)
    assert choice(keys, values) == choice(keys, values)


def test_a_sorted_table_is_not_judged_by_its_first_rows() -> None:
    keys = uniform(3000)
    shuffled = bandwidth(keys, (12 * keys).sin() + 0.2 * noise(3000))
    order = keys.flatten().argsort()
    values = (12 * keys).sin() + 0.2 * noise(3000)
    assert bandwidth(keys[order], values[order]) == pytest.approx(shuffled, rel=0.5)


def test_identical_keys_have_some_bandwidth() -> None:
    assert bandwidth(torch.zeros(10, 1, dtype=torch.float64), noise(10)) > 0


def test_typical_is_the_score_of_a_nearest_row() -> None:
    keys = torch.arange(100, dtype=torch.float64).unsqueeze(-1)
    found = choice(keys, (keys / 5).sin())
    assert found.typical == pytest.approx(-0.5 / found.widths.bandwidths[0] ** 2, rel=1e-3)


def test_the_first_candidate_that_is_not_clearly_worse_wins() -> None:
    wide, narrow = Widths((2.0,)), Widths((1.0,))
    same = torch.ones(10)
    unclear = same + torch.linspace(-1, 1.4, 10)  # worse by 0.20 on average, give or take 0.26
    assert first_good([wide, narrow], [same, same]) == wide
    assert first_good([wide, narrow], [unclear, same]) == wide
    assert first_good([wide, narrow], [same + 1, same]) == narrow
