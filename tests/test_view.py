"""WeightsView: every reading against the dense weights."""

from __future__ import annotations

import math

import pytest
import torch

import regard
from regard import Allowed, Causal, Custom, Dot, weigh
from regard.engines import Tiled
from regard.errors import OptionError

pytestmark = pytest.mark.usefixtures("few_weights")

RULES = {
    "softmax": regard.Softmax(),
    "sink": regard.Softmax(sink=0.5),
    "conic": regard.Conic(),
    "raw": regard.Raw(),
    "sigmoid": regard.Sigmoid(),
    "one-hot": regard.OneHot(),
    "uniform": regard.Uniform(),
    "sparsemax": regard.Sparsemax(),
    "entmax": regard.Entmax(),
    "top-k": regard.TopK(3),
}
CONVEX = ["softmax", "one-hot", "uniform", "sparsemax", "entmax", "top-k"]
N, M = 11, 13


def drawn(*batch: int, grad: bool = False) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*batch, n, 3, dtype=torch.float64, generator=generator).requires_grad_(grad) for n in (N, M, M)]


def view_of(rule: str = "softmax", *batch: int, grad: bool = False, **options):
    return weigh(*drawn(*batch, grad=grad), weights=RULES[rule], **options)


def dense_of(rule: str, *batch: int, mask: torch.Tensor | None = None) -> torch.Tensor:
    q, k, _ = drawn(*batch)
    return RULES[rule](q @ k.mT / math.sqrt(3), mask)


def from_rows(rows: list[list[float]], **options):
    """A view of weights that are given, under Raw."""
    weights = torch.tensor(rows)
    places = [torch.arange(size, dtype=torch.float32)[:, None] for size in weights.shape]
    score = Custom(lambda q, k: weights[q[:, 0].long()][:, k[:, 0].long()])
    return weigh(*places, torch.ones(weights.shape[1], 1), score=score, weights=regard.Raw(), **options)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_dense_rows_and_tiles_are_the_weights(rule, grad):
    view, expected = view_of(rule, 2, grad=grad), dense_of(rule, 2)
    assert view.shape == (2, N, M)
    torch.testing.assert_close(view.dense(), expected)
    torch.testing.assert_close(view.tile(slice(2, 7), slice(4, None)), expected[:, 2:7, 4:])
    torch.testing.assert_close(view.tile(range(10, 11), range(13)), expected[:, 10:11])
    assert view.tile(slice(3, 3), slice(None)).shape == (2, 0, M)
    for index in (0, -1, [3, -2, 3], slice(1, 9, 3), torch.tensor([4, 0])):
        picked = [index] if isinstance(index, int) else index
        torch.testing.assert_close(view.rows(index), expected[:, picked])
    assert view.rows([]).shape == (2, 0, M)


@pytest.mark.parametrize("rule", RULES)
def test_a_masked_tile_is_zero(rule):
    mask = torch.ones(N, M).tril().bool()
    view = view_of(rule, mask=Causal(align="start"))
    torch.testing.assert_close(view.tile(slice(0, N), slice(0, M)), dense_of(rule, mask=mask))
    assert torch.equal(view.tile(slice(0, 4), slice(6, 9)), torch.zeros(4, 3).double())


@pytest.mark.parametrize("index", [N, -N - 1, [0, 99]])
def test_rows_out_of_range_are_refused(index):
    with pytest.raises(
        OptionError, match=r"`index` of rows\(\) must be in \[-11, 11\): got \[.*\]\. Queries count from 0\."
    ):
        view_of().rows(index)


@pytest.mark.parametrize("index", [torch.ones(N, dtype=torch.bool), [0.0, 1.0]])
def test_rows_that_are_no_integers_are_refused(index):
    with pytest.raises(
        OptionError, match=r"`index` of rows\(\) must hold integers: got torch\.(bool|float32)\. Use \.nonzero"
    ):
        view_of().rows(index)


def test_rows_of_two_axes_are_refused():
    with pytest.raises(
        OptionError, match=r"`index` of rows\(\) must be one query or a list of queries: got shape \(1, 2\)"
    ):
        view_of().rows([[0, 1]])


@pytest.mark.parametrize(
    "tile", [(slice(0, 4, 2), slice(0, 4)), (range(3, 14), range(2)), (range(2), range(-1, 3)), (1, 2)]
)
def test_tiles_with_gaps_or_outside_are_refused(tile):
    with pytest.raises(
        OptionError, match=r"A tile must be consecutive rows and columns within the weights: got .* of 1[13]\."
    ):
        view_of().tile(*tile)


@pytest.mark.parametrize("k", [1, 3, M, M + 4])
@pytest.mark.parametrize("rule", RULES)
def test_top_gives_the_heaviest_first(rule, k):
    top, expected = view_of(rule, 2).top(k), dense_of(rule, 2)
    assert top.weights.shape == top.indices.shape == (2, N, k)
    for entry in range(2):
        for row in range(N):
            places = [place for place in range(M) if expected[entry, row, place] != 0]
            places.sort(key=lambda place: (-float(expected[entry, row, place]), place))
            places = (places + [-1] * k)[:k]
            if rule != "uniform":  # whose weights are equal but for rounding
                assert top.indices[entry, row].tolist() == places
            weights = [float(expected[entry, row, place]) if place >= 0 else 0.0 for place in places]
            torch.testing.assert_close(top.weights[entry, row], torch.tensor(weights).double())


def test_top_breaks_ties_by_the_lowest_index_leaves_out_zeros_and_ranks_negative_weights_last():
    top = from_rows([[1.0, 2.0, 2.0, 0.0, -1.0], [0.0] * 5, [-3.0, -1.0, -2.0, 0.0, 0.0]], engine=Tiled(64)).top(4)
    assert top.indices.tolist() == [[1, 2, 0, 4], [-1, -1, -1, -1], [1, 2, 0, -1]]
    assert top.weights.tolist() == [[2.0, 2.0, 1.0, -1.0], [0.0] * 4, [-1.0, -2.0, -3.0, 0.0]]


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_a_k_that_is_no_positive_integer_is_refused(k):
    with pytest.raises(OptionError, match=r"`k` of top\(\) must be an integer of at least 1: got "):
        view_of().top(k)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("rule", CONVEX)
def test_entropy_is_minus_the_sum_of_weights_times_their_logarithm(rule, grad):
    expected = dense_of(rule, 2)
    expected = -torch.where(expected > 0, expected * expected.log(), 0).sum(-1)
    torch.testing.assert_close(view_of(rule, 2, grad=grad).entropy(), expected)


@pytest.mark.parametrize("rule", ["conic", "raw", "sigmoid", "sink"])
def test_entropy_of_weights_that_do_not_sum_to_one_is_refused(rule):
    name, kind = type(RULES[rule]).__name__, RULES[rule].kind
    with pytest.raises(OptionError, match=rf"entropy\(\) must have weights that sum to 1: {name} gives {kind} ones"):
        view_of(rule).entropy()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_received_is_the_total_weight_of_each_key(rule, grad):
    torch.testing.assert_close(view_of(rule, 2, grad=grad).received(), dense_of(rule, 2).sum(-2))


def pooled(weights: torch.Tensor, height: int, width: int, pool: str) -> torch.Tensor:
    """The picture, one weight at a time: a pair (i, j) belongs to place (⌊i·height/n⌋, ⌊j·width/m⌋)."""
    n, m = weights.shape[-2:]
    height, width = min(height, n), min(width, m)
    bins: dict[tuple[int, int], list[torch.Tensor]] = {}
    for i in range(n):
        for j in range(m):
            bins.setdefault((i * height // n, j * width // m), []).append(weights[..., i, j])
    reduce = {"sum": lambda each: each.sum(0), "mean": lambda each: each.mean(0), "max": lambda each: each.amax(0)}[
        pool
    ]
    picture = torch.empty(*weights.shape[:-2], height, width, dtype=weights.dtype)
    for (y, x), members in bins.items():
        picture[..., y, x] = reduce(torch.stack(members))
    return picture


@pytest.mark.parametrize("pool", ["sum", "mean", "max"])
@pytest.mark.parametrize("size", [(1, 1), (3, 4), (5, 13), (N, M), (40, 50), (2, 99)])
@pytest.mark.parametrize("rule", ["softmax", "raw", "sparsemax"])
def test_a_map_pools_the_weights(rule, size, pool):
    view = view_of(rule, 2)
    torch.testing.assert_close(view.map(*size, pool=pool), pooled(view.dense(), *size, pool))


@pytest.mark.parametrize("pool", ["sum", "mean", "max"])
@pytest.mark.parametrize("rule", ["softmax", "raw"])
def test_a_map_pools_over_tiles_and_masked_weights_are_zeros(rule, pool):
    mask = Allowed(torch.rand(N, M, generator=torch.Generator().manual_seed(3)) < 0.3)
    view = view_of(rule, mask=mask, engine=Tiled(64))
    torch.testing.assert_close(view.map(3, 4, pool=pool), pooled(view.dense(), 3, 4, pool))


def test_maps_without_a_side_or_with_another_pool_are_refused():
    with pytest.raises(OptionError, match=r"The sides of map\(\) must be integers of at least 1: got 0 × 3"):
        view_of().map(0, 3)
    with pytest.raises(OptionError, match=r"`pool` of map\(\) must be \"sum\", \"mean\" or \"max\": got 'median'"):
        view_of().map(2, 3, pool="median")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (regard.Softmax(), lambda scores: scores.logsumexp(-1)),
        (regard.Softmax(temperature=0.5), lambda scores: (2 * scores).logsumexp(-1)),
        (
            regard.Softmax(sink=1.5),
            lambda scores: torch.cat([scores, torch.full((N, 1), 1.5).double()], -1).logsumexp(-1),
        ),
        (regard.TopK(3), lambda scores: scores.topk(3).values.logsumexp(-1)),
    ],
)
def test_the_log_normalizer_is_the_logarithm_of_what_is_divided_by(rule, expected):
    q, k, v = drawn()
    torch.testing.assert_close(weigh(q, k, v, score=Dot(), weights=rule).log_normalizer(), expected(q @ k.mT))


def test_the_log_normalizer_of_proportional_and_of_rows_without_keys():
    x = torch.tensor([[0.0], [2.0], [9.0]])
    view = weigh(
        x,
        x,
        x,
        score=regard.Triangular(4.0),
        weights=regard.Proportional(),
        mask=Allowed(torch.tensor([[1], [1], [0]]).bool()),
    )
    torch.testing.assert_close(view.log_normalizer(), torch.tensor([math.log(1.5), math.log(1.5), -math.inf]))
    assert weigh(x, x[:0], x[:0]).log_normalizer().tolist() == [-math.inf] * 3


@pytest.mark.parametrize("rule", ["conic", "raw", "one-hot", "sparsemax"])
def test_rules_that_divide_by_nothing_have_no_log_normalizer(rule):
    text = (
        rf"log_normalizer\(\) must have a rule that divides by a sum, such as Softmax: got {type(RULES[rule]).__name__}"
    )
    with pytest.raises(OptionError, match=text):
        view_of(rule).log_normalizer()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("rule", CONVEX)
def test_several_readings_in_one_pass_are_the_separate_ones(rule, grad):
    view = view_of(rule, 2, grad=grad)
    together = view.collect(top=3, entropy=True, received=True, map=(4, 5), pool="max")
    torch.testing.assert_close(together.top, view.top(3))
    torch.testing.assert_close(together.entropy, view.entropy())
    torch.testing.assert_close(together.received, view.received())
    torch.testing.assert_close(together.map, view.map(4, 5, pool="max"))


def test_what_was_not_asked_for_is_none():
    assert view_of().collect() == (None, None, None, None)
    assert [each is None for each in view_of().collect(received=True)] == [True, True, False, True]


@pytest.mark.parametrize("engine", ["reference", "tiled", "sdpa"])
def test_an_output_that_was_changed_is_computed_again(engine):
    q, k, v = torch.randn(3, 2, 300, 16)
    view = weigh(q, k, v, engine=engine)
    view.collect(top=3, output=True)
    output = view.output
    expected, _ = output.clone(), output.zero_()
    assert torch.equal(view.output, expected)
    torch.testing.assert_close(view.entropy(), weigh(q, k, v, engine=engine).entropy())


@pytest.mark.parametrize("engine", ["reference", "tiled", "sdpa", None])
def test_the_output_is_what_attend_gives(engine):
    tensors = drawn(2)
    torch.testing.assert_close(weigh(*tensors, engine=engine).output, regard.attend(*tensors, engine=engine))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_views_of_nothing_answer_with_nothing(shape):
    view = weigh(torch.ones(shape[0], 2), torch.ones(shape[1], 2), torch.ones(shape[1], 2))
    assert view.dense().shape == shape
    assert view.top(2).indices.tolist() == [[-1, -1]] * shape[0]
    assert view.entropy().tolist() == [0.0] * shape[0]
    assert view.received().tolist() == [0.0] * shape[1]
    assert view.map(3, 3).shape == (min(3, shape[0]), min(3, shape[1]))
    assert "(empty)" in repr(view)
    view.verify()
