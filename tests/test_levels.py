"""Claims about a map at the level of detail that is looked at: the dense weights, pooled, and never all of them."""

from itertools import pairwise
from math import ceil
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

FINEST = (16, 23, 80)  # cells on a side of the map that is kept: at most as many as there are queries or keys
N_QUERIES, N_KEYS = 75, 52
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


@pytest.fixture(params=FINEST)
def coarse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "FINEST", request.param)
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
    finest = levels.FINEST
    found = Levels(view).part(rows, columns, *size)
    assert found.weights.shape <= size
    if len(rows) / size[0] < max(N_QUERIES / finest, 1) or len(columns) / size[1] < max(N_KEYS / finest, 1):
        assert (found.rows, found.columns) == ((rows.start, rows.stop), (columns.start, columns.stop))
        check(found, dense, even(len(rows), size[0]), even(len(columns), size[1]))
        return
    cells = []
    for asked, span, n, most, count in zip(
        (rows, columns), (found.rows, found.columns), (N_QUERIES, N_KEYS), size, found.weights.shape, strict=True
    ):
        side = min(finest, n)  # the cells of the whole map
        ends = [span[0] + cell * (span[1] - span[0]) / count for cell in range(count + 1)]
        places = [range(*(min(ceil(end - 1e-9), n) for end in each)) for each in pairwise(ends)]  # as pages name them
        assert places[0].start <= asked.start
        assert places[-1].stop >= asked.stop
        kept = [place * side // n for cell in places for place in cell]
        group = next(g for g in (1, 2, 4, 8, 16, 32, 64, 128) if kept[-1] // g - kept[0] // g < most)
        assert [sorted({place * side // n // group for place in cell}) for cell in places] == [
            [kept[0] // group + cell]
            for cell in range(count)  # cells stay where they are
        ]
        cells.append([number for number, cell in enumerate(places) for _ in cell])
        last = min(group, side - (kept[0] // group + count - 1) * group)  # the last may have fewer
        keys = torch.tensor([group] * (count - 1) + [last]) * n / side
    shown = dense[slice(ceil(found.rows[0] - 1e-9), None), slice(ceil(found.columns[0] - 1e-9), None)]
    shown = shown[: len(cells[0]), : len(cells[1])]
    torch.testing.assert_close(found.weights.double(), average(shown, *cells) * keys, atol=1e-6, rtol=1e-5)


def test_the_last_cell_has_what_its_query_gives_to_its_key() -> None:
    view = view_of(1025, 1025)
    found = Levels(view).part(range(1025), range(1025), 440, 440)
    assert (found.weights.shape, found.rows, found.columns) == ((257, 257), (0, 1028), (0, 1028))
    torch.testing.assert_close(found.weights[200, 100], view.rows(range(800, 804))[:, 400:404].sum(1).mean())
    torch.testing.assert_close(found.weights[256, 256], view.rows([1024])[0, 1024])
    torch.testing.assert_close(found.weights.sum(1), torch.ones(257))


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
