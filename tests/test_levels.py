"""Claims about a map at the level of detail that is looked at: the dense weights, pooled, and never all of them."""

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard import Causal, Entmax, weigh
from regard.view import levels
from regard.view.levels import Levels, Pooled, pool

FINEST = 16  # cells on a side of the map that is kept
N_QUERIES, N_KEYS = 75, 52  # neither is a multiple of it
VIEWS = {
    "plain": {},
    "causal": {"mask": Causal(align="start")},
    "sparse": {"weights": Entmax(1.5)},
}


def view_of(n: int, m: int, **options: Any) -> Any:
    queries, keys = (
        torch.randn(size, 8, generator=torch.Generator().manual_seed(seed)) for seed, size in enumerate((n, m))
    )
    return weigh(2 * queries, keys, keys, **options)


@pytest.fixture(scope="module", params=VIEWS)
def map_of(request: pytest.FixtureRequest) -> tuple[Any, Tensor]:
    view = view_of(N_QUERIES, N_KEYS, **VIEWS[request.param])
    return view, view.dense().double()


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "FINEST", FINEST)
    monkeypatch.setattr(levels, "STRIP", 100)  # weights: two rows


def span_in(size: int) -> st.SearchStrategy[range]:
    return st.tuples(st.integers(0, size - 1), st.integers(1, size)).map(
        lambda drawn: range(drawn[0], min(drawn[0] + drawn[1], size))
    )


def average(dense: Tensor, rows: list[int], columns: list[int]) -> Tensor:
    """The mean weight of the pairs in each cell, where each row and each column has the number of its cell."""
    down, across = (
        torch.nn.functional.one_hot(torch.tensor(each)).double().T for each in (rows, columns)
    )  # (cells, rows)
    return (down / down.sum(-1, keepdim=True)) @ dense @ (across / across.sum(-1, keepdim=True)).T


def check(found: Pooled, dense: Tensor, rows: list[int], columns: list[int]) -> None:
    """What the average query of each cell gives to as many keys as the average cell has, together."""
    span = dense[slice(*found.rows), slice(*found.columns)]
    keys_of_a_cell = len(columns) / (columns[-1] + 1)
    torch.testing.assert_close(
        found.weights.double(), average(span, rows, columns) * keys_of_a_cell, atol=1e-6, rtol=1e-5
    )


def even(length: int, most: int) -> list[int]:
    cells = min(length, most)
    return [place * cells // length for place in range(length)]


@pytest.mark.usefixtures("coarse")
@given(rows=span_in(N_QUERIES), columns=span_in(N_KEYS), size=st.tuples(st.integers(1, 80), st.integers(1, 60)))
def test_a_part_is_the_dense_weights_pooled(map_of: Any, rows: range, columns: range, size: tuple[int, int]) -> None:
    view, dense = map_of
    found = Levels(view).part(rows, columns, *size)
    assert found.weights.shape <= size
    if len(rows) / size[0] < N_QUERIES / FINEST or len(columns) / size[1] < N_KEYS / FINEST:
        assert (found.rows, found.columns) == ((rows.start, rows.stop), (columns.start, columns.stop))
        check(found, dense, even(len(rows), size[0]), even(len(columns), size[1]))
        return
    cells = []
    for asked, got, n, most in zip(
        (rows, columns), (found.rows, found.columns), (N_QUERIES, N_KEYS), size, strict=True
    ):
        assert got[0] <= asked.start
        assert got[1] >= asked.stop
        kept = [place * FINEST // n for place in range(*got)]  # the cells of the whole map
        group = next(g for g in (1, 2, 4, 8, 16) if kept[-1] // g - kept[0] // g < most)
        assert all(end in (0, n) or end * FINEST // n % group == 0 for end in got)  # cells stay where they are
        cells.append([each // group - kept[0] // group for each in kept])
        keys_of_a_cell = group * n / FINEST
    span = dense[slice(*found.rows), slice(*found.columns)]
    torch.testing.assert_close(found.weights.double(), average(span, *cells) * keys_of_a_cell, atol=1e-6, rtol=1e-5)


@given(rows=span_in(N_QUERIES), columns=span_in(N_KEYS), size=st.tuples(st.integers(1, 80), st.integers(1, 60)))
def test_weights_that_are_there_are_pooled_alike(
    map_of: Any, rows: range, columns: range, size: tuple[int, int]
) -> None:
    _, dense = map_of
    found = pool(dense, rows, columns, *size)
    check(found, dense, even(len(rows), size[0]), even(len(columns), size[1]))


def test_where_each_cell_is_one_weight_the_map_is_the_weights(map_of: Any) -> None:
    view, dense = map_of
    found = Levels(view).part(range(5, 20), range(7, 30), 64, 64)
    torch.testing.assert_close(found.weights.double(), dense[5:20, 7:30], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(Levels(view).row(9).double(), dense[9], atol=1e-6, rtol=1e-5)


class Largest(TorchDispatchMode):
    """How many elements the largest tensor had that was made meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else (out,):
            if isinstance(each, Tensor):
                self.found = max(self.found, each.numel())
        return out


@pytest.mark.parametrize("reads_whole", [True, False], ids=["with a map of the whole", "parts alone"])
def test_no_part_takes_all_weights_at_once(monkeypatch: pytest.MonkeyPatch, reads_whole: bool) -> None:
    monkeypatch.setattr(levels, "FINEST", 128)
    monkeypatch.setattr(levels, "STRIP", 1 << 16)
    n = 4096
    head = Levels(view_of(n, n, mask=Causal()), most_read=None if reads_whole else n)
    with Largest() as made:
        head.part(range(n), range(n), 100, 100)
        head.part(range(1000, 3500), range(500, 4000), 700, 700)
        head.part(range(2000, 2040), range(3000, 3050), 64, 64)
        head.row(17)
    assert 1 << 12 < made.found < n * n / 8
