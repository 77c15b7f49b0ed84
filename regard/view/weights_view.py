"""WeightsView: reads weights without storing them, unless they are few.

From the statistics of a row any tile of α can be computed again, so rows, the top k, entropies, what each key
receives and a pooled map of any size take memory that does not grow with n × m. Weights that are few (`few_weights.py`)
are computed once and kept.
"""

from __future__ import annotations

import html
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, SupportsIndex

import torch
from torch import Tensor

from regard.engines import Engine, Sdpa
from regard.engines.strips import pool_by_strips
from regard.errors import OptionError, PromiseBroken
from regard.problem import AttentionProblem
from regard.tensors import without_autocast
from regard.view.differentiable import track
from regard.view.drawing import draw
from regard.view.few_weights import FewWeights, are_few
from regard.view.html import picture_of_view
from regard.view.notebook import bundle
from regard.view.passes import Passes
from regard.view.readings import Entropy, Map, Pool, Reader, Received, Top, TopWeights, WeightTotals, as_integer
from regard.view.versions import Versions, held
from regard.weights import Kind


class Collected(NamedTuple):
    """What `collect` was asked for; None for the rest."""

    top: Top | None = None
    entropy: Tensor | None = None
    received: Tensor | None = None
    map: Tensor | None = None


class WeightsView:
    """The weights α of a problem, computed when they are read. Made by `weigh`.

    Every reading comes from the same weights, at any magnitude, or raises `ViewExpired`: the inputs were changed.
    (What is written to queries or keys through `.data` or NumPy torch does not count, and a view does not notice.)
    Weights are those before dropout. Shapes are `(*batch_shape, ...)`. Readings are float32 at least, whatever the
    inputs; the output has their dtype.

    Args:
        problem: Whose weights they are.
        engine: Computes the output, and says how tiles are cut and whether kernels are used.
        asked: Whether somebody asked for that engine: then few weights, too, are computed as it computes many.
    """

    def __init__(self, problem: AttentionProblem, engine: Engine, *, asked: bool = False) -> None:
        self._problem = held(problem)
        self._engine = engine
        self._asked = asked
        self._versions = self._current_versions()
        self._outputs: dict[bool, _Output] = {}  # with and without a gradient
        self._top: Top | None = None  # as many as were asked for so far

    @property
    def output(self) -> Tensor:
        """The pooled output, as `attend` gives it: `(*batch_shape, n_queries, value_dim)`."""
        self._versions.check()
        tracks = self._tracks
        if tracks not in self._outputs or self._outputs[tracks].is_changed:
            output = self._compute_output()
            self._outputs[tracks] = _Output(output, None if output.is_inference() else output._version)
            if output.requires_grad:
                # A backward pass frees what it went through: the next one starts from an output of its own.
                output.register_hook(_Forget(self))
        found = self._outputs[tracks]
        return found.tensor.clone() if found.version is None else found.tensor  # nobody counts changes of that one

    def _compute_output(self) -> Tensor:
        if not self._tracks and (self._passes.pools or self._passes.had_pooled):
            # Readings take the statistics from the same pass.
            return self._passes.hand_over().to(self._problem.dtype)
        if self._passes.is_sharp:
            return pool_by_strips(self._fresh())  # whose weights every reading has
        return self._engine.run(self._fresh())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the dense weights would have, `(*batch_shape, n_queries, n_keys)`."""
        grid = self._problem.grid
        return (*grid.batch_shape, grid.n_queries, grid.n_keys)

    @property
    def kind(self) -> Kind:
        """What the rule promises of its weights: linear, conic, convex, one-hot or uniform."""
        return self._problem.rule.kind

    def log_normalizer(self) -> Tensor:
        """log Z of each query, `(*batch_shape, n_queries)`; −inf where nothing is allowed.

        Z is Σ exp(a) for softmax and Σ a for proportional; other rules have none.
        """
        normalizer = self._problem.rule.log_normalizer(self._passes.statistics) if self._streams else None
        if normalizer is None:
            raise OptionError(
                f"log_normalizer() must have a rule that divides by a sum, such as Softmax: "
                f"got {type(self._problem.rule).__name__}. Use received() or entropy() for others."
            )
        return normalizer

    def tile(self, rows: slice | range, columns: slice | range) -> Tensor:
        """α of some consecutive queries and keys, `(*batch_shape, rows, columns)`, without a gradient."""
        self._versions.check()
        *batch, n_queries, n_keys = self.shape
        rows, columns = _as_range(rows, n_queries), _as_range(columns, n_keys)
        if not rows or not columns:
            return self._problem.values.new_zeros(*batch, len(rows), len(columns), dtype=self._problem.compute_dtype)
        return self._passes.weights_of_tile(rows, columns)

    def rows(self, index: SupportsIndex | Sequence[SupportsIndex] | Tensor | slice) -> Tensor:
        """α of some queries over all keys, `(*batch_shape, rows, n_keys)`; differentiable.

        Args:
            index: One query or several; negative counts from the end.
        """
        n_queries = self.shape[-2]
        if isinstance(index, slice):
            index = list(range(*index.indices(n_queries)))
        given = list(index) if isinstance(index, list | tuple) else [index]
        numbers = [number for each in given if (number := as_integer(each)) is not None]
        places = torch.as_tensor(numbers if len(numbers) == len(given) else index, device=self._problem.grid.device)
        if places.ndim != 1:
            raise OptionError(
                f"`index` of rows() must be one query or a list of queries: got shape {tuple(places.shape)}."
            )
        if places.numel() and (places.is_floating_point() or places.dtype == torch.bool):
            raise OptionError(f"`index` of rows() must hold integers: got {places.dtype}. Use .nonzero() of a mask.")
        places = places.long()
        in_range = (places >= -n_queries) & (places < n_queries)
        if places.numel() and not places.is_meta and not bool(in_range.all()):
            raise OptionError(
                f"`index` of rows() must be in [{-n_queries}, {n_queries}): got {places.tolist()}. "
                f"Queries count from 0."
            )
        return self._define(places % max(n_queries, 1))

    def top(self, k: int) -> Top:
        """The k largest weights of each query and their keys, heaviest first, the lowest index among equals.

        Where fewer than k keys have a weight above zero, the rest of the row is weight 0 at index −1.

        Returns:
            `weights` and `indices`, both `(*batch_shape, n_queries, k)`.
        """
        return self.collect(top=k).top  # type: ignore[return-value]

    def entropy(self) -> Tensor:
        """−Σ α ln α of each query, in nats: `(*batch_shape, n_queries)`, differentiable; for weights that sum to 1."""
        return self.collect(entropy=True).entropy  # type: ignore[return-value]

    def received(self) -> Tensor:
        """The total weight that each key receives, `(*batch_shape, n_keys)`; differentiable."""
        return self.collect(received=True).received  # type: ignore[return-value]

    def map(self, height: int, width: int, pool: Pool = "sum") -> Tensor:
        """The weights pooled to a picture of at most that size, `(*batch_shape, height, width)`.

        Row y gathers the queries i with ⌊i · height / n_queries⌋ = y, columns likewise. A side longer than the
        weights' own is cut to it.

        Args:
            height: Rows of the picture.
            width: Columns of the picture.
            pool: "sum" keeps totals, "mean" is the average weight of a pair, "max" the heaviest.
        """
        return self.collect(map=(height, width), pool=pool).map  # type: ignore[return-value]

    def dense(self) -> Tensor:
        """All weights, `(*batch_shape, n_queries, n_keys)`, differentiable: the one that grows with n × m."""
        return self._define()

    def collect(
        self,
        *,
        top: int | None = None,
        entropy: bool = False,
        received: bool = False,
        map: tuple[int, int] | None = None,
        pool: Pool = "sum",
        output: bool = False,
    ) -> Collected:
        """Several readings in one pass over the tiles; each as the method of its name.

        The first reading of a view takes one more pass, which finds the statistics of rows; where nothing but the top k
        is read, compiled kernels find that in the same one, under most rules.

        Args:
            top: How many of the heaviest weights of each query.
            entropy, received: Whether to read them.
            map: Height and width of a picture.
            pool: How the picture is pooled.
            output: Whether `view.output` will be asked for, too: where it needs no gradient, the pass that finds the
                statistics computes it.

        Example:
            >>> import torch
            >>> from regard import weigh
            >>> x = torch.rand(100, 8)
            >>> seen = weigh(x, x, x).collect(top=3, entropy=True, map=(4, 4))
            >>> seen.top.indices.shape, seen.entropy.shape, seen.map.shape
            (torch.Size([100, 3]), torch.Size([100]), torch.Size([4, 4]))
        """
        if entropy and self.kind not in ("convex", "one-hot", "uniform"):
            raise OptionError(
                f"entropy() must have weights that sum to 1: {type(self._problem.rule).__name__} gives "
                f"{self.kind} ones. Use a rule such as Softmax()."
            )
        results: dict[str, Any] = {}
        heaviest = None if top is None else TopWeights(top)
        if self._tracks and (entropy or received):
            results["entropy"], results["received"] = track(
                self._passes.settled(self._fresh()), entropy=entropy, received=received
            )
            entropy = received = False
        readers: dict[str, Reader[Any]] = {}
        if heaviest is not None and (self._top is None or self._top.indices.shape[-1] < heaviest.k):
            readers["top"] = heaviest
        if entropy:
            readers["entropy"] = Entropy()
        if received:
            readers["received"] = Received()
        if map is not None:
            readers["map"] = Map(*map, pool)
        with self._passes.undisturbed() if readers else nullcontext():
            self._passes.read(list(readers.values()), pool=output and self._pools)
            results |= {name: reader.result() for name, reader in readers.items()}
            if "top" in readers:
                self._top = results["top"]
            if heaviest is not None and self._top is not None:  # copies: what is kept is nobody's to change
                results["top"] = Top(*(each[..., : heaviest.k].clone() for each in self._top))
        return Collected(**results)

    def verify(self) -> None:
        """Check over every weight that the rule keeps its promise (`kind`).

        Raises:
            PromiseBroken: It does not; the text says where and by how much.
        """
        sums = WeightTotals()
        self._passes.read([sums])
        rule = type(self._problem.rule).__name__
        least, total, most, count = sums.result()
        tolerance = max(1e-5, 8 * torch.finfo(self._problem.compute_dtype).eps)
        if self.kind != "linear" and least.numel() and float(least.min()) < 0:
            raise PromiseBroken(f"{rule} promises weights that are not negative: got {float(least.min()):.3g}.")
        if self.kind in ("convex", "one-hot", "uniform"):
            off = torch.where(total == 0, 0, (total - 1).abs())
            if off.numel() and not float(off.max()) <= tolerance:
                raise PromiseBroken(
                    f"{rule} promises weights that sum to 1: got {float(total.flatten()[off.argmax()]):.6g}."
                )
        if self.kind == "one-hot" and bool(((count > 1) | ((most != 1) & (count > 0))).any()):
            raise PromiseBroken(f"{rule} promises exactly one weight of 1: got {int(count.max())} weights above zero.")
        if self.kind == "uniform" and bool((torch.where(count > 0, (most * count - 1).abs(), 0) > tolerance).any()):
            raise PromiseBroken(f"{rule} promises equal weights: got {float(most.max()):.6g} among {int(count.max())}.")

    # How weights are computed again ---------------------------------------------------------------------------------

    @property
    def _passes(self) -> Passes:
        self._versions.check()
        return self._kept_passes

    @cached_property
    def _kept_passes(self) -> Passes:
        few = not self._asked and are_few(self._problem)
        return (FewWeights if few else Passes)(self._problem, self._engine)

    def _current_versions(self) -> Versions:
        return Versions(self._problem)

    @property
    def _pools(self) -> bool:
        """Whether the output, if it is not there, may come from a pass that readings share."""
        if self._tracks or False in self._outputs:
            return False
        # What kernels pool is as good as what `sdpa` does, and about as fast; the reference is asked for its own.
        return self._passes.pools or (isinstance(self._engine, Sdpa) and self._passes.compiles)

    @property
    def _streams(self) -> bool:
        return self._problem.rule.streams

    @property
    def _tracks(self) -> bool:
        """Whether a reading may have to be differentiable."""
        return self._problem.needs_gradient

    def _fresh(self) -> AttentionProblem:
        """The problem with projections of its own, so that every reading can be differentiated by itself."""
        return replace(self._problem) if self._tracks else self._problem

    def _define(self, rows: Tensor | None = None) -> Tensor:
        with without_autocast(self._problem.grid.device.type):
            return self._passes.define(self._fresh(), rows)

    # How it looks ---------------------------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        problem = self._problem
        return (
            f"WeightsView of {self.kind} weights, {' × '.join(map(str, self.shape))}: "
            f"{type(problem.score).__name__} under {type(problem.rule).__name__}"
        )

    def __repr__(self) -> str:
        problem = self._problem
        lines = [self._title]
        if self._versions.changed is not None:
            lines.append(f"  (expired: {self._versions.changed} was changed in place)")
        elif not problem.queries.is_meta:  # which has no numbers to draw
            lines += [f"  {line}" for line in draw(self)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if self._versions.changed is not None or self._problem.queries.is_meta:
            return f"<pre>{html.escape(repr(self))}</pre>"
        return picture_of_view(self, self._title)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], Any] | None:
        """In a notebook with anywidget: the interactive picture."""
        return bundle(self, self._title, [("", self)])


@dataclass(frozen=True)
class _Output:
    """An output that was handed out, and which change of it that was."""

    tensor: Tensor
    version: int | None  # None for an inference tensor

    @property
    def is_changed(self) -> bool:
        return self.version is not None and self.tensor._version != self.version


class _Forget:
    """A hook that makes a view forget its differentiable output; the view itself it does not keep alive."""

    def __init__(self, view: WeightsView) -> None:
        self._view = weakref.ref(view)

    def __call__(self, gradient: Tensor) -> None:
        view = self._view()
        if view is not None:
            view._outputs.pop(True, None)


def _as_range(span: slice | range, size: int) -> range:
    places = range(*span.indices(size)) if isinstance(span, slice) else span
    if (
        not isinstance(places, range)
        or places.step != 1
        or (len(places) and not 0 <= places.start <= places.stop <= size)
    ):
        raise OptionError(
            f"A tile must be consecutive rows and columns within the weights: got {span} of {size}. Pass slices."
        )
    return places
