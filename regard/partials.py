"""Partial: attention over some of the keys, which merges with attention over the others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.engines.gradients import attach
from regard.engines.state import Pooled, Sums
from regard.engines.strips import pool_by_strips
from regard.engines.tile_stream import Stream
from regard.engines.tiled import are_rounded_apart, is_out_of_range, pool_stream, sum_stream
from regard.errors import EngineRefusal, OptionError, ShapeError
from regard.modes import is_hidden
from regard.problem import AttentionProblem
from regard.scores import Score
from regard.scores.bias import POSITIONAL
from regard.scores.closures import capturing
from regard.weights import OnePass, Weights


class Asked:
    """The queries of a partial, and their version then: who changes them in place later asks something else."""

    def __init__(self, queries: Tensor) -> None:
        # Nobody counts changes of an inference tensor: a copy has none.
        self.queries = queries.clone() if queries.is_inference() else queries.detach()
        self.version = _version(queries)

    def check(self, other: Asked) -> None:
        """Raise unless both have the same queries: one tensor, or two with the same numbers."""
        one, two = self.queries, other.queries
        if is_hidden(one) or (_place(one) == _place(two) and self.version == other.version):
            return
        if _place(one) == _place(two) or self.version != _version(one) or other.version != _version(two):
            raise EngineRefusal(
                "Partials must have the same queries: those of one were changed in place since it was made. "
                "Make every partial() before they change, or pass queries.clone()."
            )
        if not _same_numbers(one, two):
            raise EngineRefusal(
                f"Partials must have the same queries: got two tensors, {tuple(one.shape)} and {tuple(two.shape)}, "
                f"that differ. Pass the same queries to every partial()."
            )

    def __getstate__(self) -> Tensor:
        return self.queries.clone()  # without the storage that it may be a slice of

    def __setstate__(self, queries: Tensor) -> None:
        self.__init__(queries)  # type: ignore[misc]


@dataclass(frozen=True)
class Partial:
    """Attention over some of the keys, ready to merge.

    Partials merge where their queries, scores and rules are the same. For that a partial keeps its queries, and goes
    with them to another process.

    Rules of one pass (softmax, proportional, conic, raw, sigmoid, uniform) keep sums of fixed size, and the keys and
    values only where a gradient will be asked for. The others (one-hot, top-k, sparsemax, entmax) settle at the end,
    so they keep their parts.
    """

    asked: Asked
    score: Score
    rule: Weights
    n_parts: int
    shape: tuple[int, ...]  # of the output
    dtype: torch.dtype
    parts: tuple[AttentionProblem, ...]
    sums: Sums | None
    captured: tuple[Tensor, ...]

    def merge(self, other: Partial) -> Partial:
        """The partial over both sets of keys; the other's keys follow this one's."""
        if not isinstance(other, Partial):
            raise OptionError(
                f"A Partial must be merged with a Partial: got {type(other).__name__}. Make it by partial()."
            )
        if self.shape != other.shape or self.dtype != other.dtype:
            raise ShapeError(
                f"Partials must have outputs of the same shape and dtype: got {self.shape} in {self.dtype} and "
                f"{other.shape} in {other.dtype}. Make them from the same queries and like values."
            )
        self.asked.check(other.asked)
        for name, mine, others in (("score", self.score, other.score), ("weights", self.rule, other.rule)):
            if not _same(mine, others):
                raise EngineRefusal(
                    f"Partials must have the same `{name}`: got {mine} and {others}. "
                    f"Pass one object to every partial(), or objects that are alike and share their parameters."
                )
        sums = None
        if self.sums is not None and other.sums is not None:
            assert isinstance(self.rule, OnePass)
            sums = self.sums.merge(other.sums, self.rule)
        known = {id(each): each for each in (*self.captured, *other.captured)}
        return Partial(
            self.asked,
            self.score,
            self.rule,
            self.n_parts + other.n_parts,
            self.shape,
            self.dtype,
            self.parts + other.parts,
            sums,
            tuple(known.values()),
        )

    def finish(self) -> Tensor:
        """The pooled output over every key that was merged, `(..., n_queries, value_dim)`."""
        with torch.no_grad():
            pooled = self._from_sums()
        if not self.parts:
            assert pooled is not None
            return pooled.output.to(self.dtype)
        stream = Stream(self.parts)
        with torch.no_grad(), capturing() as found, torch.autocast(stream.grid.device.type, enabled=False):
            pooled = pool_stream(stream) if pooled is None else pooled
            alone = len(self.parts) == self.n_parts == 1
            again = alone and are_rounded_apart(stream, pooled, training=self.parts[0].needs_gradient)
        if again:
            return pool_by_strips(self.parts[0]).to(self.dtype)
        captured = tuple({id(each): each for each in (*self.captured, *found.values())}.values())
        output = attach(stream, pooled, captured, whole=len(self.parts) == self.n_parts)
        if output.requires_grad and any(part.may_leak for part in self.parts):
            raise EngineRefusal(
                "The gradient of a merged partial must have finite inputs under a mask: got NaN or infinity. "
                "Use attend(), or detach them."
            )
        return output.to(self.dtype)

    def _from_sums(self) -> Pooled | None:
        """What the sums come to; None where keys and values have to be gone through again."""
        if self.sums is None:
            return None
        assert isinstance(self.rule, OnePass)
        pooled = self.sums.finish(self.rule)
        if not is_out_of_range(self.rule, pooled):
            return pooled
        if len(self.parts) == self.n_parts:
            return None
        raise EngineRefusal(
            f"The sums of scores under {type(self.rule).__name__} must be near 1 to be merged: times values they leave "
            f"{str(self.dtype).removeprefix('torch.')}. Multiply all scores by one number, or use attend()."
        )

    def __repr__(self) -> str:
        kept = f"{len(self.parts)} parts kept" if self.parts else "sums alone"
        return f"<Partial of {self.rule}, output {self.shape}, {kept}>"


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; tensors of inference mode do not count it."""
    return 0 if tensor.is_inference() else tensor._version


def _place(tensor: Tensor) -> tuple[object, ...]:
    """Where the numbers of a tensor are."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _same_numbers(one: Tensor, two: Tensor) -> bool:
    """Whether two tensors hold the same, NaN included, where they broadcast."""
    try:
        one, two = torch.broadcast_tensors(one, two.to(one.device))
    except RuntimeError:
        return False
    return torch.equal(one, two) or bool(((one == two) | (one.isnan() & two.isnan())).all())


def _same(module: nn.Module, other: nn.Module) -> bool:
    """Whether two scores or rules are one object, or are alike in all that they hold and share what they learn."""
    if module is other:
        return True
    if type(module) is not type(other):
        return False
    mine, others = _held(module), _held(other)
    children = zip(module.children(), other.children(), strict=False)
    return (
        mine.keys() == others.keys()
        and all(_equal(each, others[name]) for name, each in mine.items())
        and len(list(module.children())) == len(list(other.children()))
        and all(_same(each, another) for each, another in children)
    )


def _held(module: nn.Module) -> dict[str, object]:
    """What a module holds itself: attributes that a class gave it, buffers, and parameters.

    But for where queries stand, which is elsewhere among the keys of each part.
    """
    held = {name: each for name, each in vars(module).items() if not name.startswith("_")}
    if isinstance(module, POSITIONAL):
        del held["align"]
    return held | dict(module.named_buffers(recurse=False)) | dict(module.named_parameters(recurse=False))


def _equal(one: object, other: object) -> bool:
    if isinstance(one, nn.Parameter) or isinstance(other, nn.Parameter):
        return one is other  # two that are equal now learn apart
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return one is other or bool(one == other)


def start_partial(problem: AttentionProblem) -> Partial:
    """The partial over the keys of one problem."""
    if not problem.rule.streams:
        raise EngineRefusal(
            f"partial() must have a rule with passes over tiles: {type(problem.rule).__name__} has none. "
            f"Define solve(fold), or use attend()."
        )
    stream = Stream((problem,))
    with torch.no_grad(), capturing() as captured, torch.autocast(problem.grid.device.type, enabled=False):
        sums = sum_stream(stream) if isinstance(problem.rule, OnePass) else None
    inputs = (*problem.inputs, *captured.values())
    needs_parts = sums is None or (torch.is_grad_enabled() and any(each.requires_grad for each in inputs))
    return Partial(
        asked=Asked(problem.queries),
        score=problem.score,
        rule=problem.rule,
        n_parts=1,
        shape=problem.output_shape,
        dtype=problem.dtype,
        parts=(problem,) if needs_parts else (),
        sums=sums,
        captured=tuple(captured.values()),
    )
