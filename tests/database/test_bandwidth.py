"""Claims about the widths that the data choose."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard import Database, Gaussian, NotSelf, attend
from regard.database.attending import Rows
from regard.database.bandwidth import MISMATCH, STAGES, Choice, Widths, _shuffled, choose_widths, mixed_score
from regard.database.leave_one_out import Places

ONE = Places(quantities=((0,),))
TABLES = Path(__file__).parent / "tables"


def uniform(n_rows: int, dim: int = 1, seed: int = 0) -> Tensor:
    return torch.rand(n_rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def noise(n_rows: int, seed: int = 1) -> Tensor:
    return torch.randn(n_rows, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def choice(keys: Tensor, values: Tensor, places: Places = ONE) -> Choice:
    return choose_widths(keys, places, lambda rows: values[rows])


def bandwidth(keys: Tensor, values: Tensor) -> float:
    return choice(keys, values).widths.bandwidths[0]


def table(name: str, keys: list[str], value: str, rows: slice = slice(None)) -> Database:
    names, *lines = (TABLES / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    entries = zip(*([float(entry) for entry in line.split(",")] for line in lines[rows]), strict=True)
    columns = dict(zip(names.split(","), entries, strict=True))
    return Database({key: columns[key] for key in keys}, {value: columns[value]})


def error_of(database: Database, widths: Widths | None = None) -> float:
    """The mean squared error of leave-one-out by `attend`, in the units of the value."""
    rows = Rows(database._pairs, range(len(database.key_names)))
    keys, values = rows.encoding.scaled, rows.pool.columns[0].numbers  # type: ignore[attr-defined]
    places = Places(tuple((place,) for place in range(keys.shape[-1])))
    score = mixed_score(places, widths or rows.choice.widths, dim=keys.shape[-1])
    predicted = attend(keys, keys, values, score=score, mask=NotSelf())
    return float((predicted - values).square().mean())


@pytest.mark.parametrize(
    ("name", "keys", "value", "rows", "least"),
    [
        # The last number is what thousands of random widths and golden sections from the best of them found.
        ("airquality", ["Wind", "Temp", "Solar.R"], "Ozone", slice(None), 293.8),
        ("airquality", ["Wind", "Temp", "Solar.R"], "Ozone", slice(84), 267.5),
        ("mtcars", ["wt", "hp", "qsec"], "mpg", slice(None), 5.011),
    ],
)
def test_by_leave_one_out_means_the_least_error_of_leave_one_out(
    name: str, keys: list[str], value: str, rows: slice, least: float
) -> None:
    assert error_of(table(name, keys, value, rows)) <= 1.02 * least


def test_no_other_widths_nearby_do_better() -> None:
    database = table("airquality", ["Wind", "Temp", "Solar.R"], "Ozone")
    chosen = Rows(database._pairs, range(3)).choice.widths
    least = error_of(database, chosen)
    for place in range(3):
        for factor in (0.5, 0.8, 1.25, 2.0, 1e9):
            bandwidths = [width * (factor if place == each else 1) for each, width in enumerate(chosen.bandwidths)]
            assert error_of(database, Widths(tuple(bandwidths))) > 0.999 * least


def test_flights_late_in_the_day_are_late() -> None:
    flights = table("flights", ["distance", "hour"], "arr_delay")
    morning, afternoon, night = flights.attend([(1000, 5), (1000, 17), (1000, 21)]).values
    assert morning < 0
    assert afternoon > 5
    assert night > 10


def test_a_key_of_pure_noise_is_ignored() -> None:
    ignored = 0
    for seed in range(20):
        keys = torch.cat([uniform(150, 1, seed), noise(150, seed + 100)], dim=-1)
        values = (6 * keys[:, :1]).sin() + 0.3 * noise(150, seed + 200)
        ignored += math.isinf(choice(keys, values, Places(((0,), (1,)))).widths.bandwidths[1])
    assert ignored > 12


def test_a_key_that_is_ignored_is_said_to_be_and_changes_no_answer() -> None:
    keys = uniform(200).flatten()
    database = Database({"x": keys, "noise": noise(200, 5).flatten()}, (6 * keys).sin() + 0.3 * noise(200).flatten())
    low, high = database.attend([(0.5, -2.0), (0.5, 2.0)])
    assert "by leave-one-out · noise: ignored, as it does not help · " in low.similarity
    assert low.value == high.value


def test_where_every_key_is_ignored_the_answer_is_the_average() -> None:
    database = Database({"x": uniform(200).flatten()}, noise(200).flatten())
    answer = database.attend(0.5)
    assert answer.similarity == "x: ignored, as it does not help, by leave-one-out · Softmax()"
    assert answer.value == pytest.approx(database.average().value)
    assert answer.effective_rows == pytest.approx(200)


def test_a_key_that_says_what_another_says_is_heard_where_the_other_is_unknown() -> None:
    keys = uniform(200).flatten()
    database = Database({"cm": 100 * keys, "inch": 39.37 * keys}, (6 * keys).sin())
    assert "ignored" in database.attend((50.0, 19.685)).similarity
    for asked in ({"cm": 50.0}, {"inch": 19.685}):
        assert database.attend(asked).value == pytest.approx(math.sin(3), abs=0.1)


def test_a_large_sorted_table_is_not_judged_by_its_first_rows() -> None:
    keys = torch.linspace(0, 1, 6000, dtype=torch.float64)
    values = torch.where(keys < 0.5, 0.1 * noise(6000).flatten(), (40 * keys).sin())  # at first, all alike
    answer = Database(keys, values).attend(0.9)
    assert answer.value == pytest.approx(math.sin(36), abs=0.05)


def test_the_last_stage_of_the_search_has_as_many_rows_as_it_asks_for() -> None:
    for n_rows in (2**16, 2**16 + 1, 10**6):
        drawn = _shuffled(n_rows)
        assert len(drawn) == len(drawn.unique()) >= STAGES[-1][1]
        assert 0 <= int(drawn.min()) < int(drawn.max()) < n_rows


def test_an_answer_says_how_many_rows_were_hidden_unless_it_was_all_of_them() -> None:
    keys = uniform(5000).flatten()
    assert "by leave-one-out of 2,048 rows" in Database({"x": keys}, keys.sin()).attend(0.5).similarity
    assert "by leave-one-out ·" in Database({"x": keys[:500]}, keys[:500].sin()).attend(0.5).similarity


def test_it_predicts_hidden_rows_nearly_as_well_as_the_best_bandwidth_does() -> None:
    keys = uniform(300)
    values = (12 * keys).sin() + 0.2 * noise(300)

    def error(width: float) -> float:
        predicted = attend(keys, keys, values, score=Gaussian(width), mask=NotSelf())
        return float((predicted - values).square().mean())

    best = min(error(2.0**exponent) for exponent in range(-8, 2))
    assert error(bandwidth(keys, values)) < 1.002 * best


def test_a_wiggly_curve_gets_a_narrower_one_than_a_flat_one() -> None:
    keys, ripple = uniform(300), 0.1 * noise(300)
    assert bandwidth(keys, (30 * keys).sin() + ripple) < bandwidth(keys, (3 * keys).sin() + ripple) / 2


def test_values_that_do_not_depend_on_the_keys_are_averaged() -> None:
    assert bandwidth(uniform(300), noise(300)) > 1.0


def test_keys_that_repeat_speak_for_themselves() -> None:
    peak = Database([1, 2, 3] * 50, [0.0, 100.0, 0.0] * 50)
    assert peak.attend(2).value == pytest.approx(100.0, rel=1e-3)
    years = Database([2020, 2021, 2022] * 30, [10.0, 20.0, 30.0] * 30)
    assert years.attend([2020, 2021, 2022]).values == pytest.approx([10.0, 20.0, 30.0], rel=1e-3)


def test_a_query_between_two_steps_still_finds_both() -> None:
    peak = Database([1, 2, 3] * 50, [0.0, 100.0, 0.0] * 50)
    assert peak.attend(2.5).value == pytest.approx(50.0)
    keys = torch.arange(10, dtype=torch.float64).repeat(50).unsqueeze(-1)
    assert bandwidth(keys, keys.square()) >= 1 / 8


def test_many_rows_on_each_step_do_not_narrow_it_below_the_steps() -> None:
    keys = torch.arange(10, dtype=torch.float64).repeat(20_000)
    answer = Database(keys, keys.square()).attend(2.5)
    assert answer.value == pytest.approx(6.5)


def test_a_query_between_keys_that_do_not_repeat_hears_both() -> None:
    rows = Database([float(key) for key in range(100)], [float(key**2) for key in range(100)]).attend(40.4).rows
    assert {40, 41} == {row.index for row in rows[:2]}
    assert rows[1].weight > 0.2


def test_an_outlier_does_not_widen_everything() -> None:
    keys = [place / 50 for place in range(50)]
    answer = Database([*keys, 1e6], [*(100 * key for key in keys), 0.0]).attend(0.1)
    assert answer.value == pytest.approx(10.0, abs=0.1)


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
    for found in (choice(uniform(3), noise(3)), choose_widths(uniform(100), ONE, lambda rows: None)):
        assert found.method == "Scott's rule"
    assert choose_widths(uniform(100), ONE, lambda rows: None).widths == Widths((100 ** (-1 / 5),))
    assert choose_widths(uniform(100), Places(((0,),), (0,)), lambda rows: None).widths.mismatches == (MISMATCH,)


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
