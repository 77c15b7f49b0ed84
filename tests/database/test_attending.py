"""Claims about answers: what is pooled, and what is said of it."""

from __future__ import annotations

import functools
import math
from datetime import date, datetime, timedelta
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import (
    Boxcar,
    Conic,
    Cosine,
    Database,
    Epanechnikov,
    Gaussian,
    OneHot,
    Proportional,
    Raw,
    ScaledDot,
    Softmax,
    Sparsemax,
    TopK,
    Triangular,
    Uniform,
    attend,
)
from regard.database import Answer, Answers
from regard.errors import OptionError


@functools.cache
def students() -> Database:
    return make_students()


def make_students(n_rows: int = 240) -> Database:
    """Salaries that depend on GPA and major; age says nothing."""
    generator = torch.Generator().manual_seed(0)
    gpa = 2 + 2 * torch.rand(n_rows, generator=generator, dtype=torch.float64)
    age = torch.randint(20, 40, (n_rows,), generator=generator)
    major = torch.randint(3, (n_rows,), generator=generator)
    noise = 1000 * torch.randn(n_rows, generator=generator, dtype=torch.float64)
    salary = 20_000 * gpa + 30_000 * major + noise
    names = [("art", "law", "physics")[code] for code in major.tolist()]
    return Database({"gpa": gpa, "age": age, "major": names}, {"salary": salary})


def test_the_value_is_what_attend_gives(salaries: Database) -> None:
    keys, values = torch.tensor(list(salaries), dtype=torch.float64).split(1, dim=-1)
    query = torch.tensor([[3.3]], dtype=torch.float64)
    for score, weights in [
        (Gaussian(0.2), Softmax()),
        (Gaussian(0.2), Sparsemax()),
        (Gaussian(0.2), TopK(3)),
        (Gaussian(0.2), OneHot()),
        (Triangular(0.3), Proportional()),
        (Epanechnikov(0.3), Conic()),
    ]:
        expected = float(attend(query, keys, values, score=score, weights=weights))
        assert salaries.attend(3.3, score=score, weights=weights).value == pytest.approx(expected)


def test_vectors_are_compared_as_they_are() -> None:
    generator = torch.Generator().manual_seed(1)
    keys, values = torch.randn(20, 5, generator=generator), torch.randn(20, 3, generator=generator)
    queries = torch.randn(4, 5, generator=generator)
    database = Database(keys, values)
    for score in (ScaledDot(), Cosine(), Gaussian(2.0)):
        answers = database.attend(queries, score=score)
        torch.testing.assert_close(torch.stack(answers.values).float(), attend(queries, keys, values, score=score))


def test_the_spread_is_the_weighted_standard_deviation(salaries: Database) -> None:
    answer = salaries.attend(3.5, score=Gaussian(0.2))
    weights, values = answer.weights, torch.tensor([row.value for row in answer.rows])
    mean = float((weights * values).sum())
    assert answer.value == pytest.approx(mean, rel=1e-4)
    assert answer.std == pytest.approx(math.sqrt(float((weights * (values - mean) ** 2).sum())), rel=1e-3)


def test_the_effective_number_of_rows_is_kish_s(salaries: Database) -> None:
    answer = salaries.attend(3.5, score=Gaussian(0.2))
    assert answer.effective_rows == pytest.approx(1 / float(answer.weights.square().sum()), rel=1e-4)
    assert answer.as_dict()["effective_rows"] == answer.effective_rows
    assert salaries.attend(3.5, weights=OneHot()).effective_rows == pytest.approx(1.0)
    assert salaries.average().effective_rows == pytest.approx(len(salaries))
    conic = salaries.attend(3.5, score=Epanechnikov(0.2), weights=Conic())
    assert conic.effective_rows == pytest.approx((1 + 2 * 0.75) ** 2 / (1 + 2 * 0.75**2))
    assert salaries.attend(35.0).effective_rows == 0.0


def test_the_spread_of_one_row_is_zero(salaries: Database) -> None:
    assert salaries.attend(3.5, weights=OneHot()).std == 0.0


def test_a_combination_that_is_no_mean_has_no_spread(salaries: Database) -> None:
    answer = salaries.attend(3.5, score=Epanechnikov(0.2), weights=Conic())
    assert answer.value == pytest.approx(70_000 + 0.75 * (69_000 + 72_000))
    assert answer.std is None


def test_dates_average_to_a_date_with_a_spread_in_time() -> None:
    answer = Database(["a", "a"], [date(2020, 1, 1), date(2020, 1, 11)]).attend("a")
    assert answer.value == date(2020, 1, 6)
    assert answer.std == timedelta(days=5)


def test_moments_average_to_a_moment() -> None:
    answer = Database(["a", "a"], [datetime(2020, 1, 1, 12), datetime(2020, 1, 2, 12)]).attend("a")
    assert answer.value == datetime(2020, 1, 2)


def test_durations_average_to_a_duration() -> None:
    assert Database([1, 1], [timedelta(hours=1), timedelta(hours=3)]).average().value == timedelta(hours=2)


def test_categories_have_probabilities_likeliest_first() -> None:
    answer = Database(["x", "x", "x", "y"], ["law", "art", "law", "art"]).attend("x")
    assert answer.value == "law"
    assert answer.probabilities == pytest.approx({"law": 2 / 3, "art": 1 / 3})
    assert list(answer.probabilities) == ["law", "art"]
    assert answer.std is None


def test_yes_or_no_is_a_category() -> None:
    answer = Database(["x", "x", "x"], [True, False, True]).attend("x")
    assert answer.value is True
    assert answer.probabilities == pytest.approx({True: 2 / 3, False: 1 / 3})


def test_vectors_average_to_a_vector() -> None:
    answer = Database(["x", "x"], [[1.0, 2.0], [3.0, 6.0]]).attend("x")
    assert answer.value.tolist() == [2.0, 4.0]
    assert answer.std.tolist() == [1.0, 2.0]


def test_anything_else_is_ranked() -> None:
    answer = Database([1.0, 2.0, 5.0], [{"name": "a"}, {"name": "b"}, {"name": "c"}]).attend(2.2)
    assert answer.value == {"name": "b"}
    assert [row.value["name"] for row in answer.rows] == ["b", "a", "c"]
    assert answer.std is None
    assert answer.probabilities is None


def test_several_values_are_answered_each_by_its_kind() -> None:
    answer = Database(["x", "x"], {"salary": [1.0, 3.0], "city": ["Rome", "Rome"]}).attend("x")
    assert answer.value == {"salary": 2.0, "city": "Rome"}
    assert answer.std == {"salary": 1.0}
    assert answer.probabilities == {"city": {"Rome": 1.0}}


def test_a_text_key_hears_every_row_with_that_key_alike() -> None:
    answer = Database(["law", "art", "law"], [1.0, 9.0, 3.0]).attend("law")
    assert answer.value == 2.0
    assert answer.weights.tolist() == [0.5, 0.5]


def test_many_queries_give_as_many_answers(salaries: Database) -> None:
    answers = salaries.attend([3.1, 3.9])
    assert isinstance(answers, Answers)
    assert answers.values == [salaries.attend(3.1).value, salaries.attend(3.9).value]
    assert [len(salaries.attend(many)) for many in ([], [3.0], torch.tensor([3.0, 3.5, 4.0]))] == [0, 1, 3]


def test_more_queries_than_a_block_are_answered_in_order() -> None:
    database = Database([str(key) for key in range(1000)], list(range(1000)))
    queries = [str((7 * key) % 1000) for key in range(600)]
    assert database.attend(queries).values == [float(query) for query in queries]


def test_rows_are_heaviest_first_and_as_many_as_asked_for(salaries: Database) -> None:
    answer = salaries.attend(3.5, top=3)
    assert len(answer.rows) == 3
    assert answer.weights.tolist() == sorted(answer.weights.tolist(), reverse=True)
    assert answer.rest == pytest.approx(1 - float(answer.weights.sum()))


def test_a_mixed_key_finds_rows_that_agree_in_both() -> None:
    answer = students().attend((3.0, 30, "law"))
    assert answer.value == pytest.approx(90_000, rel=0.03)
    assert {row.key[2] for row in answer.rows} == {"law"}


def test_a_column_that_says_nothing_is_widened_until_it_does_not_matter() -> None:
    younger, older = students().attend([(3.0, 20, "law"), (3.0, 39, "law")]).values
    assert younger == pytest.approx(older, rel=0.02)


def test_columns_that_a_query_leaves_out_do_not_count() -> None:
    database = students()
    whole = database.attend({"gpa": 3.0, "major": "law"})
    assert whole.query == {"gpa": 3.0, "major": "law"}
    assert whole.value == database.attend((3.0, None, "law")).value
    assert "age" not in whole.similarity
    assert database.attend({"major": "law"}).similarity == "major: Equal() · Proportional()"


def test_an_unknown_category_beside_a_number_is_mentioned_in_the_answer() -> None:
    answer = students().attend({"gpa": 3.0, "major": "physic"})
    assert answer.found
    assert answer.message == "No row has major = 'physic' (the nearest key is 'physics')."


def test_softmax_on_text_weighs_a_mismatch_by_1_over_e() -> None:
    rows = Database(["a", "b"], [1.0, 2.0]).attend("a", weights=Softmax()).rows
    assert rows[1].weight / rows[0].weight == pytest.approx(1 / math.e)


@pytest.mark.parametrize("top", [0, True, 2.5])
def test_the_number_of_rows_is_a_positive_integer(salaries: Database, top: int) -> None:
    with pytest.raises(OptionError) as error:
        salaries.attend(3.5, top=top)
    assert str(error.value) == (
        f"`top` must be a positive integer: got {top!r}. Pass how many rows to list, such as 10."
    )


def test_weights_that_do_not_sum_to_one_are_refused_for_categories_and_dates() -> None:
    message = r"Weights for 'value' \(text\) must sum to 1, .*: got Conic\(\). Use Softmax\(\) or Proportional\(\)."
    with pytest.raises(OptionError, match=message):
        Database([1.0, 2.0], ["a", "b"]).attend(1.0, score=Boxcar(1.0), weights=Conic())
    with pytest.raises(OptionError, match=r"Weights for 'value' \(date\) must sum to 1"):
        Database([1.0], [date(2020, 1, 1)]).attend(1.0, score=Boxcar(1.0), weights=Conic())


def test_uniform_weights_are_the_average_whatever_the_query(salaries: Database) -> None:
    assert salaries.attend(99.0, weights=Uniform()).value == pytest.approx(salaries.average().value)


def test_ties_go_to_the_first_row() -> None:
    assert Database([1.0, 3.0], ["a", "b"]).attend(2.0, score=Gaussian(1.0), weights=OneHot()).value == "a"


def test_a_large_mean_does_not_drown_the_spread() -> None:
    answer = Database(["x", "x"], [1e9, 1e9 + 2.0]).attend("x")
    assert answer.value == 1e9 + 1
    assert answer.std == pytest.approx(1.0)


def test_a_constant_key_column_does_not_break_the_scaling() -> None:
    database = Database({"constant": [5.0] * 6, "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert database.attend((5.0, 3.0)).value == pytest.approx(3.0, abs=0.5)


def test_an_answer_is_the_same_every_time() -> None:
    first, second = (make_students().attend((3.1, 25, "art")) for _ in range(2))
    assert isinstance(first, Answer)
    assert (first.value, first.rows, first.similarity) == (second.value, second.rows, second.similarity)


def test_moments_a_second_apart_are_told_apart() -> None:
    moments = [datetime(2020, 1, 1) + timedelta(seconds=second) for second in range(60)]
    answer = Database(moments, [float(second) for second in range(60)]).attend(moments[10])
    assert answer.value == pytest.approx(10.0, abs=0.1)


def test_values_are_pooled_in_float64_whatever_the_keys_are_in() -> None:
    one = torch.tensor([1.0, 0.0, 0.0])
    assert Database(torch.eye(3), [123_456_789, 2, 3]).attend(one, weights=OneHot()).value == 123_456_789
    moment = datetime(2020, 1, 1, 12, 34, 56)
    for score in (ScaledDot(), Gaussian(1.0)):
        assert abs(Database(torch.eye(3), [moment] * 3).attend(one, score=score).value - moment) < timedelta(seconds=1)
    assert Database(torch.eye(2), ["a", "b"]).attend(one[:2], weights=OneHot()).probabilities == {"a": 1.0}
    assert Database(torch.eye(2), [1.0, 2.0]).attend(one[:2], score=ScaledDot(), weights=Conic()).value > 0.0


@pytest.mark.parametrize("size", [1e308, 1e-308])
def test_values_near_the_end_of_floats_have_a_mean(size: float) -> None:
    assert Database(range(10), [size] * 10).attend(3).value == pytest.approx(size)
    assert Database(range(10), [size, -size] * 5).average().std == pytest.approx(size)
    assert Database([size * key for key in range(2)], [1.0, 2.0]).attend(size, weights=OneHot()).value == 2.0


PAIRS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-100, 100)), min_size=1, max_size=12)


@settings(max_examples=200)
@given(PAIRS, st.integers(-5, 5), st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_changes_nothing(pairs: list[tuple[int, int]], query: int, random: Random) -> None:
    shuffled = random.sample(pairs, len(pairs))
    first, second = (
        Database([key for key, _ in each], [value for _, value in each]).attend(query, score=Gaussian(1.5))
        for each in (pairs, shuffled)
    )
    assert first.value == pytest.approx(second.value)
    assert first.std == pytest.approx(second.std, abs=1e-5)


@settings(max_examples=200)
@given(PAIRS, st.integers(-5, 5))
def test_an_answer_lies_among_the_values(pairs: list[tuple[int, int]], query: int) -> None:
    values = [value for _, value in pairs]
    answer = Database([key for key, _ in pairs], values).attend(query)
    if answer.found:
        assert min(values) - 1e-9 <= answer.value <= max(values) + 1e-9
        assert float(answer.weights.sum()) + answer.rest == pytest.approx(1.0)


def test_the_rows_that_are_not_listed_weigh_what_they_weigh_whatever_the_sign():

    database = Database([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0])
    whole = database.attend(2.0, score=Gaussian(1.0), weights=Raw(), top=4)
    part = database.attend(2.0, score=Gaussian(1.0), weights=Raw(), top=2)
    assert whole.rest == 0
    everything = sum(-((key - 2.0) ** 2) / 2 for key in (1.0, 2.0, 3.0, 4.0))
    assert part.rest == pytest.approx(everything - sum(row.weight for row in part.rows))
    assert part.rest < 0


@pytest.mark.parametrize("outlier", [1e9, 1e15])
def test_an_entry_that_has_no_weight_does_not_touch_the_spread(outlier: float) -> None:
    keys, values = [*range(10), 1000.0], [3.0, 1, 4, 1, 5, 9, 2, 6, 5, 3, outlier]
    answer = Database(keys, values).attend(5.0, score=Gaussian(1.0))
    plain = Database(keys[:-1], values[:-1]).attend(5.0, score=Gaussian(1.0))
    assert answer.value == pytest.approx(plain.value, rel=1e-9)
    assert answer.std == pytest.approx(plain.std, rel=1e-6)


def test_an_average_of_large_numbers_lies_among_them() -> None:
    values = [1e15 + place % 9 for place in range(3000)]
    answer = Database([place / 3000 for place in range(3000)], values).attend(0.5, score=Gaussian(0.5))
    assert answer.value == pytest.approx(1e15 + 4, abs=0.3)


@pytest.mark.parametrize("query", [(3.1, "law", 30), (2.5, "physics"), (9.0, "law")])
def test_few_rows_are_weighed_as_a_view_weighs_many(query: tuple[object, ...]) -> None:
    asked = dict(zip(("gpa", "major", "age"), query, strict=False))
    few, many = (students().attend(asked, weights=weights) for weights in (None, Softmax()))
    assert (few.found, few.message, few.similarity) == (many.found, many.message, many.similarity)
    assert [row[:3] for row in few.rows] == [row[:3] for row in many.rows]
    torch.testing.assert_close(few.weights, many.weights)
    assert (few.value, few.std, few.rest, few.effective_rows) == pytest.approx(
        (many.value, many.std, many.rest, many.effective_rows)
    )


def test_a_score_that_has_changed_since_the_last_question_counts_as_it_is(salaries: Database) -> None:
    score = Gaussian(torch.nn.Parameter(torch.tensor(0.05, dtype=torch.float64)))
    first = salaries.attend(3.3, score=score)
    with torch.no_grad():
        score.bandwidth.fill_(1.0)
    second = salaries.attend(3.3, score=score)
    assert second.value == pytest.approx(salaries.attend(3.3, score=Gaussian(1.0)).value)
    assert abs(second.value - first.value) > 100


@pytest.mark.parametrize("query", ["1e300", "1e999"])
def test_a_duration_that_no_clock_holds_is_refused_in_words(query: str) -> None:
    with pytest.raises(OptionError, match="`key` must be a duration: got"):
        Database([timedelta(hours=1), timedelta(hours=3)], [1.0, 2.0]).attend(query)
