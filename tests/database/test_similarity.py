"""Claims about scores and weights: the defaults, what may be passed, and how several columns add up."""

from __future__ import annotations

import math
from datetime import date, timedelta

import pytest
import torch

from regard import (
    Bias,
    Boxcar,
    Conic,
    Custom,
    Database,
    Dot,
    Epanechnikov,
    Equal,
    Gaussian,
    Laplacian,
    OneHot,
    Proportional,
    SoftCap,
    Softmax,
    TopK,
    Triangular,
)
from regard.errors import OptionError, ScoreError, TableError
from regard.scores import Form, Scaled, Score
from regard.weights import Weights

X = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
Y = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
WORD = ["a", "a", "b", "b", "a", "b"]


@pytest.fixture
def numbers() -> Database:
    return Database({"x": X}, {"y": Y})


@pytest.fixture
def mixed() -> Database:
    return Database({"x": X, "word": WORD}, {"y": Y})


@pytest.fixture
def telling() -> Database:
    """The same keys, of which both matter."""
    return Database(
        {"x": X, "word": WORD}, {"y": [10 * x + 40 * (word == "b") for x, word in zip(X, WORD, strict=True)]}
    )


def weights_of(database: Database, query: object, **options: object) -> dict[object, float]:
    return {row.index: row.weight for row in database.attend(query, top=100, **options).rows}  # type: ignore[arg-type]


def normalised(kernel: dict[int, float]) -> object:
    total = sum(kernel.values())
    return pytest.approx({row: weight / total for row, weight in kernel.items() if weight > 0})


def test_one_column_is_compared_in_its_own_units(numbers: Database) -> None:
    assert weights_of(numbers, 3.0, score=Boxcar(1.0)) == pytest.approx({1: 1 / 3, 2: 1 / 3, 3: 1 / 3})


def test_dates_are_compared_in_days() -> None:
    days = [date(2020, 1, 1) + timedelta(days=each) for each in range(10)]
    assert set(weights_of(Database(days, range(10)), date(2020, 1, 5), score=Boxcar(2))) == {2, 3, 4, 5, 6}


def test_several_columns_are_compared_in_standard_deviations() -> None:
    database = Database({"x": X, "big": [1000 * x for x in X]}, Y)
    deviation = float(torch.tensor(X).std(correction=0))
    answer = database.attend((3.0, 3000.0), score=Boxcar(math.sqrt(2) * 1.01 / deviation))
    assert {row.index for row in answer.rows} == {1, 2, 3}
    assert "in standard deviations" in answer.similarity


@pytest.mark.parametrize("score", [Boxcar(1.5), Epanechnikov(1.5), Triangular(1.5), Equal()])
def test_a_kernel_alone_weighs_in_proportion(numbers: Database, score: object) -> None:
    default = weights_of(numbers, 3.0, score=score)
    assert default == weights_of(numbers, 3.0, score=score, weights=Proportional())
    assert numbers.attend(3.0, score=score).similarity.endswith("· Proportional()")


@pytest.mark.parametrize("score", [Gaussian(0.7), Laplacian(0.7), Custom(lambda q, k: -(q - k.mT).abs())])
def test_any_other_score_goes_through_softmax(numbers: Database, score: object) -> None:
    assert weights_of(numbers, 3.0, score=score) == weights_of(numbers, 3.0, score=score, weights=Softmax())


def test_a_score_may_depend_on_the_row(numbers: Database) -> None:
    last = Bias(torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 50.0]], dtype=torch.float64))
    assert numbers.attend(3.0, score=Gaussian(1.0) + last).value == pytest.approx(60.0)


def test_scores_of_columns_add(mixed: Database) -> None:
    found = weights_of(mixed, (3.0, "a"), score={"x": Gaussian(1.0), "word": 2.0 * Equal()})
    expected = {row: math.exp(-((x - 3) ** 2) / 2 + 2 * (WORD[row] == "a")) for row, x in enumerate(X)}
    assert found == normalised(expected)


def test_a_kernel_among_several_multiplies(mixed: Database) -> None:
    found = weights_of(mixed, (3.0, "a"), score={"x": Epanechnikov(3.0), "word": Equal()})
    expected = {row: max(0, 1 - ((x - 3) / 3) ** 2) * (WORD[row] == "a") for row, x in enumerate(X)}
    assert found == normalised(expected)


def test_equal_among_several_must_match(mixed: Database) -> None:
    assert set(weights_of(mixed, (3.0, "a"), score={"x": Gaussian(5.0), "word": Equal()})) == {0, 1, 4}
    assert not mixed.attend((3.0, "zebra"), score={"x": Gaussian(5.0), "word": Equal()}).found


def test_columns_without_a_score_of_their_own_keep_the_default(telling: Database) -> None:
    default, partly = telling.attend((3.0, "a")), telling.attend((3.0, "a"), score={"word": 3.0 * Equal()})
    assert default.similarity.partition(" · ")[0].partition(",")[0] in partly.similarity
    everything = telling.attend((3.0, "a"), score={"x": Gaussian(1.0)})
    assert "word: equality, a mismatch weighs" in everything.similarity


def test_one_score_for_the_numbers_leaves_categories_their_equality(telling: Database) -> None:
    found = telling.attend((3.0, "a"), score=Gaussian(1.0))
    assert found.similarity.startswith("x: Gaussian(bandwidth=1) · word: equality, a mismatch weighs ")
    mismatch = float(found.similarity.rpartition(" weighs ")[2].partition(" ")[0])
    expected = {row: math.exp(-((x - 3) ** 2) / 2) * (1 if WORD[row] == "a" else mismatch) for row, x in enumerate(X)}
    total = sum(expected.values())
    rounded = {row: pytest.approx(weight / total, rel=5e-3) for row, weight in expected.items()}  # as the text is
    assert weights_of(telling, (3.0, "a"), score=Gaussian(1.0)) == rounded


def test_the_default_can_be_typed_back_in(telling: Database) -> None:
    default = telling.attend((3.0, "a"))
    bandwidth = float(default.similarity.partition("bandwidth=")[2].partition(")")[0])
    mismatch = float(default.similarity.rpartition(" weighs ")[2].partition(" ")[0])
    typed = telling.attend((3.0, "a"), score={"x": Gaussian(bandwidth), "word": -math.log(mismatch) * Equal()})
    assert typed.value == pytest.approx(default.value, rel=1e-3)


def test_a_column_that_is_ignored_stays_ignored_beside_a_score_for_another(mixed: Database) -> None:
    answer = mixed.attend((3.0, "a"), score={"x": Gaussian(1.0)})
    assert answer.similarity == "x: Gaussian(bandwidth=1) · word: ignored, as it does not help · Softmax()"
    expected = {row: math.exp(-((x - 3) ** 2) / 2) for row, x in enumerate(X)}
    assert weights_of(mixed, (3.0, "a"), score={"x": Gaussian(1.0)}) == normalised(expected)


def test_text_keys_take_equality_and_any_rule(mixed: Database) -> None:
    words = Database(WORD, Y)
    assert words.attend("a", score=Equal(), weights=OneHot()).value == 10.0
    assert words.attend("a", weights=TopK(2, then=Softmax())).value == 15.0
    assert not words.attend("zebra", weights=OneHot()).found


def test_text_keys_of_several_columns_must_all_match() -> None:
    database = Database({"first": ["a", "a", "b"], "second": ["x", "y", "x"]}, [1.0, 2.0, 3.0])
    assert weights_of(database, ("a", "y")) == {1: 1.0}
    assert weights_of(database, {"first": "a"}) == {0: 0.5, 1: 0.5}
    assert weights_of(database, ("a", "y"), score={"first": Equal()}) == {1: 1.0}


def test_the_choice_is_shown_in_the_answer(mixed: Database) -> None:
    said = mixed.attend((3.0, "a")).similarity
    assert said.startswith("x: Gaussian(bandwidth=")
    assert ", by leave-one-out · word: " in said
    assert said.endswith(" · Softmax()")


def test_days_are_named_in_the_choice() -> None:
    days = [date(2020, 1, 1) + timedelta(days=each) for each in range(10)]
    assert " days), by leave-one-out" in Database(days, [float(each) for each in range(10)]).attend(days[3]).similarity


def test_a_score_with_a_distance_cannot_compare_words() -> None:
    with pytest.raises(OptionError) as error:
        Database({"word": WORD}, Y).attend("a", score=Gaussian(1.0))
    assert str(error.value) == (
        "`score` over columns without a distance (word) must be Equal(), or a Custom that compares codes: "
        "got Gaussian(bandwidth=1). Leave `score` out to ask by equality."
    )


def test_a_score_with_a_distance_cannot_compare_the_words_of_a_mixed_key(mixed: Database) -> None:
    with pytest.raises(OptionError, match=r"columns without a distance \(word\) must be Equal\(\)"):
        mixed.attend((3.0, "a"), score={"word": Laplacian(1.0)})


@pytest.mark.parametrize(
    "score", [2 * Gaussian(1.0), Gaussian(1.0).on([0]), Gaussian(1.0) + Equal(), SoftCap(Dot(), 1.0)]
)
def test_a_score_with_a_distance_cannot_compare_words_in_disguise(score: Score) -> None:
    with pytest.raises(OptionError, match=r"columns without a distance \(word\) must be Equal\(\)"):
        Database({"word": WORD}, Y).attend("a", score=score)
    assert Database({"word": WORD}, Y).attend("a", score=(2 * Equal()).on([0]) + Equal()).found


@pytest.mark.parametrize("rule", [Proportional(), Conic(), TopK(2, then=Proportional())])
@pytest.mark.parametrize("score", [None, Gaussian(1.0), {"x": Laplacian(1.0)}, {"word": Equal()}, 2 * Gaussian(1.0)])
def test_logarithms_of_kernels_are_no_weights(numbers: Database, mixed: Database, rule: Weights, score: object) -> None:
    for database, query in ((numbers, 3.0), (mixed, (3.0, "a"))):
        if database is numbers and isinstance(score, dict) and "word" in score:
            continue
        with pytest.raises(ScoreError) as error:
            database.attend(query, score=score, weights=rule)  # type: ignore[arg-type]
        text = str(error.value)
        assert text.startswith(" ".join(str(rule).split()) + " must have scores that are not negative, since they are")
        assert "the logarithm of a kernel. Use Softmax(), which takes its exponential" in text
        assert "OnColumns" not in text


def test_kernels_of_several_columns_multiply_under_every_rule(mixed: Database) -> None:
    score = {"x": Epanechnikov(3.0), "word": Equal()}
    kernel = {row: max(0, 1 - ((x - 3) / 3) ** 2) * (WORD[row] == "a") for row, x in enumerate(X)}
    assert weights_of(mixed, (3.0, "a"), score=score, weights=Proportional()) == normalised(kernel)
    conic = weights_of(mixed, (3.0, "a"), score=score, weights=Conic())
    assert conic == pytest.approx({row: weight for row, weight in kernel.items() if weight > 0})
    assert weights_of(mixed, (3.0, "a"), score=score, weights=OneHot()) == {1: 1.0}
    assert not mixed.attend((3.0, "zebra"), score=score, weights=Conic()).found


def test_a_kernel_of_the_numbers_multiplies_the_soft_equality_of_the_words(mixed: Database) -> None:
    by_softmax = weights_of(mixed, (3.0, "a"), score=Boxcar(2.0))
    assert weights_of(mixed, (3.0, "a"), score=Boxcar(2.0), weights=Proportional()) == pytest.approx(by_softmax)


def test_a_kernel_that_a_user_writes_counts_as_one(numbers: Database) -> None:
    class Half(Boxcar):
        def form(self, queries: torch.Tensor, keys: torch.Tensor) -> Form:
            return Scaled(Boxcar(float(self.radius)), 0.5).form(queries, keys)

    class Own(Score):
        is_kernel = True

        def form(self, queries: torch.Tensor, keys: torch.Tensor) -> Form:
            return Custom(lambda q, k: (2 - (q - k.mT).abs()).clamp(min=0)).form(queries, keys)

    assert weights_of(numbers, 3.0, score=Own()) == weights_of(numbers, 3.0, score=Triangular(2.0))
    assert weights_of(numbers, 3.0, score=Own().on([0])) == weights_of(numbers, 3.0, score=Triangular(2.0))
    assert numbers.attend(3.0, score=Half(1.0)).similarity.endswith("Proportional()")


def test_a_score_for_a_column_that_is_not_there_is_refused(mixed: Database) -> None:
    with pytest.raises(TableError) as error:
        mixed.attend((3.0, "a"), score={"wrd": Equal()})
    assert str(error.value) == (
        "`score` must name key columns: got 'wrd'. Did you mean 'word'? The columns are: x, word."
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"score": 0.5},
            "`score` must be a score, or a dict of them by column: got 0.5. Pass one such as Gaussian(0.1).",
        ),
        ({"score": {"x": 0.5}}, "`score['x']` must be a score: got 0.5. Pass one such as {'x': Gaussian(0.1)}."),
        ({"weights": "softmax"}, "`weights` must be a rule: got 'softmax'. Pass one such as Softmax() or OneHot()."),
    ],
)
def test_what_is_no_score_or_rule_is_refused(numbers: Database, options: dict[str, object], text: str) -> None:
    with pytest.raises(OptionError) as error:
        numbers.attend(3.0, **options)  # type: ignore[arg-type]
    assert str(error.value) == text
