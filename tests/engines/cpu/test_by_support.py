"""Entmax by the keys that have a weight: forward by candidates, backward by the listed support."""

import itertools

import pytest
import torch

pytest.importorskip("numba")

from regard import Additive, Allowed, Bias, Causal, Entmax, Mask, ScaledDot, Sparsemax, Window, attend
from regard.engines.cpu import compiled_problem
from regard.engines.cpu.passes import choosing
from regard.engines.cpu.traversal import by_support, by_tiles
from regard.engines.tiled import Tiled

KERNELS = Tiled(kernels=True)
N, M, DIM = 70, 1300, 16
LOWEST = torch.finfo(torch.float32).min


@pytest.fixture
def ways(monkeypatch):
    """What was done: of every block forward, and of every call backward, whether it went by the support."""
    seen = {"forward": [], "backward": []}
    pool, are_few = choosing.pool_candidates, compiled_problem.Supports.are_few

    def keep(name, found):
        seen[name].append(found)
        return found

    monkeypatch.setattr(choosing, "pool_candidates", lambda *args: keep("forward", pool(*args)))
    monkeypatch.setattr(compiled_problem.Supports, "are_few", lambda *args: keep("backward", are_few(*args)))
    return seen


@pytest.fixture
def sparse(monkeypatch):
    """Go by the support, however many keys have a weight."""
    monkeypatch.setattr(by_support, "SPARSE", 0.5)
    monkeypatch.setattr(by_support, "LEAST_PAIRS", 0)


def make(n=N, m=M, size=3.0, batch=(2,)):
    torch.manual_seed(0)
    return size * torch.randn(*batch, n, DIM), torch.randn(*batch, m, DIM), torch.randn(*batch, m, DIM)


def call(tensors, engine, **options):
    """The output, and the gradients of queries, keys and values."""
    tensors = [each.clone().requires_grad_() for each in tensors]
    gradient = torch.randn(*tensors[0].shape[:-1], DIM, generator=torch.Generator().manual_seed(2)).to(tensors[0])
    torch.manual_seed(1)  # for dropout
    output = attend(*tensors, engine=engine, **options)
    return [output.detach(), *torch.autograd.grad(output, tensors, gradient)]


def check(tensors, dtype=torch.float64, tolerance=5e-4, **options):
    """Compare with the definition, each result by the size of its largest number."""
    wanted = call([each.to(dtype) for each in tensors], "reference", **options)
    for name, one, other in zip("oqkv", call(tensors, KERNELS, **options), wanted, strict=True):
        size = max(float(other.abs().amax()), 1.0) if other.numel() else 1.0
        torch.testing.assert_close(
            one.to(dtype), other, rtol=0, atol=tolerance * size, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize(
    ("room", "most", "size"),
    [
        (1024, 512, 3.0),
        (1, 512, 3.0),  # lists are taken after every tile
        (1024, 512, 0.1),  # supports are longer than a list
        (1024, 5, 3.0),  # few rows fit
        (1024, 1, 3.0),
    ],
)
@pytest.mark.parametrize("alpha", [1.01, 1.3, 1.5, 2.0])
@pytest.mark.parametrize("mask", [None, Causal(align="end"), "allowed"], ids=["no mask", "causal", "allowed"])
def test_whatever_has_a_weight_is_found(room, most, size, alpha, mask, sparse, monkeypatch):
    monkeypatch.setattr(by_support, "ROOM", room)
    monkeypatch.setattr(by_support, "MOST_CANDIDATES", most)
    if mask == "allowed":
        allowed = torch.rand(2, N, M) > 0.5
        allowed[:, 7] = False
        mask = Allowed(allowed)
    check(make(size=size), weights=Entmax(alpha), mask=mask)


def test_few_weights_are_gone_through_and_many_are_not(ways):
    check(make(size=3.0), weights=Entmax(1.5))
    assert (set(ways["forward"]), ways["backward"]) == ({True}, [True])
    ways["forward"].clear()
    ways["backward"].clear()
    check(make(size=0.01), weights=Entmax(1.5))
    assert (set(ways["forward"]), ways["backward"]) == ({False}, [False])


def test_few_is_meant_of_the_keys_that_are_visited(ways):
    tensors = make(2048, 2048, 0.01, (1,))
    call(tensors, KERNELS, weights=Entmax(1.5), mask=Window(before=255, after=0))
    assert ways["backward"] == [False]  # all of 256 keys, though an eighth of 2048


@pytest.mark.parametrize("rule", [Entmax(1.2), Entmax(1.5), Sparsemax()], ids=["1.2", "1.5", "2"])
@pytest.mark.parametrize("size", [1e3, 1e5, 1e8])
def test_large_scores_have_one_value_forward_and_backward(rule, size, ways):
    tensors = make(size=size)
    # In a row of such scores one key has all the weight; a score that differs in its last place would change it.
    (_, _, _, wanted), (_, _, _, got) = (call(tensors, each, weights=rule) for each in ("reference", KERNELS))
    assert ways["backward"] == []  # a list's loop rounds them otherwise than a tile's product: strips have both passes
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_the_lowest_number_is_no_mask(alpha, sparse):
    """Its row has as many ties as keys, and a cut below it would be −inf."""
    bias = torch.zeros(N, M)
    bias[5] = bias[40] = LOWEST
    allowed = torch.rand(N, M) > 0.5
    options = {"score": ScaledDot() + Bias(bias), "weights": Entmax(alpha), "mask": Allowed(allowed)}
    check(make(), torch.float32, **options)


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0, 3.0])
def test_a_call_thins_out_no_more_than_so_many(alpha, monkeypatch):
    """Each tile's keys push out those before: candidates are thinned out in every tile of every row."""
    from regard.engines.cpu.kernels import tile_loops

    n, m, calls, gather = 256, 40 * 512, [], tile_loops.gather_span
    keys = torch.zeros(1, m, DIM)
    keys[..., 0] = torch.arange(m) // 512 * 1.5 / (alpha - 1) + torch.rand(m) / (alpha - 1)
    queries = torch.zeros(1, n, DIM)
    queries[..., 0] = 1
    monkeypatch.setattr(tile_loops, "gather_span", lambda *args: calls.append(gather(*args)) or calls[-1])
    values = torch.randn(1, m, DIM)
    options = {"score": ScaledDot(1.0), "weights": Entmax(alpha)}
    output = attend(queries, keys, values, engine=KERNELS, **options)
    wanted = attend(*(each.double() for each in (queries[:, :1], keys, values)), engine="reference", **options)
    torch.testing.assert_close(output.double(), wanted.expand_as(output), rtol=1e-3, atol=1e-3)
    assert len(calls) > 2
    assert calls[-1] == m
    assert all(earlier < later for earlier, later in itertools.pairwise(calls))


@pytest.mark.parametrize("shape", [(N, 0), (0, M), (N, 1), (N, 2), (1, 9000), (3, 9000)], ids=str)
def test_few_rows_and_few_keys(shape, sparse):
    check(make(*shape), weights=Entmax(1.5))


def test_each_head_has_its_alpha(sparse):
    check(make(batch=(2, 3)), weights=Entmax(torch.tensor([1.2, 1.5, 2.0])))


def test_ties(sparse):
    torch.manual_seed(0)
    queries, keys = (torch.randint(-2, 3, (2, size, 4)).float() for size in (N, M))
    for rule in (Sparsemax(), Entmax(1.5), Entmax(1.3)):
        check((queries, keys, torch.randn(2, M, DIM)), weights=rule)


def test_dropout(sparse):
    check(make(), torch.float32, weights=Entmax(1.5), dropout=0.4)


def test_scores_that_are_sums_over_channels(sparse, ways):
    torch.manual_seed(0)
    score = Additive(DIM, DIM, 8)
    with torch.no_grad():
        for each in score.parameters():
            each.mul_(4)
    check(make(), torch.float32, score=score, weights=Sparsemax(), mask=Allowed(torch.rand(N, M) > 0.5))
    assert set(ways["forward"]) == {True}


def test_rows_that_are_not_finite_are_for_the_other_way(sparse, ways):
    queries, keys, values = make(batch=(1,))
    keys[0, 600] = 1e38  # a product that overflows, from numbers that do not
    queries[0, 3] = 1e38
    with torch.no_grad():
        output = attend(queries, keys, values, engine=KERNELS, weights=Entmax(1.5))
    assert ways["forward"] == [False]
    assert output[0, 3].isnan().all()


def test_a_block_of_one_row_has_room(sparse, monkeypatch):
    monkeypatch.setattr(by_tiles, "ROWS", 1)
    monkeypatch.setattr(by_tiles, "HEIGHTS", {1: 1.0})
    check(make(7, 600), weights=Entmax(1.5))


def test_a_users_mask_may_ask_for_gradients():
    """A call inside a task must not write on what the task keeps."""

    class Curious(Mask):
        def allows(self, rows, columns, grid):
            with torch.enable_grad():
                call(make(400, 400, batch=(1,)), KERNELS, weights=Entmax(1.5))
            return columns + rows >= 0

    tensors = make(N, 300)
    for one, other in zip(
        call(tensors, KERNELS, weights=Entmax(1.5), mask=Curious()),
        call(tensors, KERNELS, weights=Entmax(1.5)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
