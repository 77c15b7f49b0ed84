"""What compiled kernels are asked for, on any device: `cpu` and `cuda` implement it; nobody asks for their classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from regard.engines.state import Pooled, Sums
from regard.problem import AttentionProblem
from regard.weights import Statistics

if TYPE_CHECKING:
    from regard.engines.work import Work


class Kernels(ABC):
    """The kernels of one kind of device."""

    dtypes: ClassVar[frozenset[torch.dtype]]  # in which they compute
    worthwhile: ClassVar[int]  # pairs of a batch entry from which they are cheaper than torch's own operations

    # Whether NaN and infinity among the inputs reach those alone who give them weight, and numerators of any size are
    # summed, so that nobody need look at numbers, nor wait for a device that has them.
    looks_for_itself: ClassVar[bool] = False

    @abstractmethod
    def missing(self) -> str | None:
        """Why there cannot be kernels on this machine, by a check that imports nothing; None if there may be."""

    @abstractmethod
    def unusable(self, device: torch.device) -> str | None:
        """Why they cannot be used on a device, having tried to load them; None if they can."""

    @abstractmethod
    def unready(self, problem: AttentionProblem, *, reads: bool) -> str | None:
        """Why those that a problem needs are not compiled yet; None if they are. It has them compiled.

        Args:
            problem: What is computed.
            reads: Whether weights are read, as by a view.
        """

    def lacks(self, problem: AttentionProblem) -> str | None:
        """What a problem needs and `support.py` lists, but the kernels of this device do not have; None for nothing."""
        return None

    @abstractmethod
    def bytes(self, problem: AttentionProblem) -> int:
        """The memory that a forward pass takes beside inputs and output; an estimate."""

    @abstractmethod
    def seconds(self, work: Work) -> float:
        """How long it takes; an estimate."""

    @abstractmethod
    def compile(self, problem: AttentionProblem) -> Compiled:
        """The problem for these kernels, which support it and are ready."""

    def guard(self, problem: AttentionProblem) -> Guard:
        """What stands behind PyTorch's kernels where nobody looks at numbers, for a problem that these support."""
        raise NotImplementedError  # only asked of kernels that look for themselves


class Guard(ABC):
    """Computes again what PyTorch's kernels made of NaN and infinity under a mask."""

    @abstractmethod
    def mend_output(self, output: Tensor) -> None:
        """Write again, in place, what is not finite.

        Args:
            output: `(*batch_shape, n_queries, value_dim)`, the numbers of a vector together.
        """

    @abstractmethod
    def mend_gradients(self, output: Tensor, gradient: Tensor, found: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients of left, right and values that PyTorch's kernels found, computed again where they leaked.

        Args:
            output: As mended.
            gradient: dO.
            found: None where one is not needed; written into where that can be.
        """


class Compiled(ABC):
    """A problem that kernels compute."""

    @abstractmethod
    def sums(self) -> Sums:
        """The sums of every row, for a rule of one pass."""

    @abstractmethod
    def pool(self) -> Pooled:
        """The output and the statistics of every row."""

    @abstractmethod
    def gradients(
        self, needed: Sequence[bool], statistics: Statistics, centre: Tensor | None, gradient: Tensor
    ) -> list[Tensor | None]:
        """The gradient of each input of the problem; None where it is not needed.

        Args:
            needed: Which of `problem.inputs` need one.
            statistics: Of the rows, as the rule has them.
            centre: u in dS = slope · (dP − dO·u); None for 0.
            gradient: dO, `(*batch_shape, n_queries, value_dim)`.
        """

    @abstractmethod
    def readable(self, advance: Callable[[float], None]) -> Readable:
        """The same, for its weights to be read; `advance` is told which share of a pass is done."""


class Readable(Compiled):
    """A problem whose weights kernels read."""

    def undisturbed(self) -> AbstractContextManager[None]:
        """Around readings and the small operations between them: torch leaves the cores to kernels."""
        return nullcontext()

    def disturbed(self) -> AbstractContextManager[None]:
        """Inside of `undisturbed`, around large operations of torch: it has the cores again."""
        return nullcontext()

    def longest(self) -> tuple[float, ...] | None:
        """The length of the longest of left, right and values, inf or NaN where one is not finite; None if not known.

        Asked where that is sooner than to look at each.
        """
        return None

    @abstractmethod
    def statistics(self) -> Statistics:
        """Those of every row, without the output."""

    def takes(self, targets: Mapping[str, Tensor]) -> bool:
        """Whether `read` gathers what these are for; if not, `weights` shows it."""
        return True

    @abstractmethod
    def read(self, statistics: Statistics, targets: Mapping[str, Tensor]) -> None:
        """Show every weight to readings, once.

        Args:
            statistics: Of the rows, as the rule has them.
            targets: Where each reading is written, as `view/readings.py` names them: contiguous, with the batch axes of
                the problem.
        """

    @property
    @abstractmethod
    def finds_heaviest(self) -> bool:
        """Whether `pool_and_find` serves."""

    @property
    def finds_apart(self) -> bool:
        """Whether `pool_and_find` serves where more is read than the heaviest, too."""
        return False

    @abstractmethod
    def pool_and_find(self, targets: Mapping[str, Tensor], *, values: bool) -> Pooled:
        """The output and the statistics of every row, as `pool` gives them, and the heaviest keys in the same pass.

        Args:
            targets: Where the heaviest are written, as for `read`.
            values: Whether the output is wanted; without, that of a column of zeros is cheaper.
        """

    @abstractmethod
    def weights(self, statistics: Statistics, rows: range, columns: range) -> Tensor:
        """α of a tile, `(*batch_shape, rows, columns)`: the same numbers as `read` shows to readings."""

    @abstractmethod
    def cuts(self) -> Iterator[tuple[range, range]]:
        """Rows and columns for `weights`, so that what it computes is computed once: all of them."""
