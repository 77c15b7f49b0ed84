"""Recordings: queries and keys of a model's attention layers, from which any weight can be recomputed."""

from __future__ import annotations

import copy
import html
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock, RLock
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.attention import at_rest, attend, weigh
from regard.errors import BudgetExceeded, MissingKey, OptionError
from regard.modes import is_tracing
from regard.nn.hosts import Attending, host_of
from regard.nn.layer_names import Layers, choose_layers, find_layers, one_of
from regard.nn.recorded_slices import of_heads, part_of_mask, places_of
from regard.planner import choose
from regard.problem import AttentionProblem, make_problem
from regard.scores.form import DotForm, Form
from regard.view.html import picture_of_recording
from regard.view.notebook import bundle
from regard.view.readings import Top, as_integer
from regard.view.versions import Versions
from regard.view.weights_view import WeightsView

# Shown by torch.compile with fullgraph=True.
_WHY_APART = (
    "A model that is recorded must be called with breaks in its graph, since a recording keeps tensors outside of it. "
    "Call the model itself, or compile it without fullgraph=True."
)
BUDGET = 1 << 30  # bytes that a recording keeps at most, if nothing else is said

# Open recordings of every thread, the ids of modules that any of them wants, which is all that torch.compile asks for,
# and those that this context has opened.
_open: tuple[Recording, ...] = ()
_wanted: dict[int, bool] = {}
_opening = Lock()
_here: ContextVar[tuple[Recording, ...]] = ContextVar("recordings", default=())


def record(
    model: nn.Module,
    layers: Layers = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | slice | None = None,
    budget: int | None = BUDGET,
    top: int | None = None,
) -> Recording:
    """Keep what is needed to read the weights of a model's attention layers, for every call inside a `with`.

    Queries and keys are kept as they were after their projections: n + m vectors a head, never n × m weights. Views
    compute row statistics, and any weight, from them when they are asked. What the function of a `Custom` score reads
    besides its arguments is read when a view is, not kept.

    What a view reads here has no gradient: queries and keys are kept apart from the graph that made them. For weights
    in a loss call the layer itself, `layer.weigh(...)`, whose `rows`, `entropy`, `received` and `dense` have one.

    A recording belongs to the context that opened it (`contextvars`): calls of other threads do not land in it, nor do
    those of threads that are started inside, unless they run in a copy of the context, as `asyncio.to_thread` and
    `contextvars.copy_context().run` have it. Tasks of asyncio that are started inside are kept, while it is open.
    Recordings may be nested: each keeps its own layers.

    Args:
        model: Any module with layers of `regard.nn` in it, or a model of transformers that runs on regard
            (`regard.integrations.transformers`).
        layers: Names or numbers of the layers to record, as `Recording.layers` lists them, or names of what holds them,
            as "encoder.layer.3"; all if left out.
        heads: Which heads to keep; all if left out.
        rows: Which queries to keep; all if left out.
        budget: How many bytes may be kept; None for no limit.
        top: How many of the heaviest weights of each query to find while the model runs, under torch.no_grad() in the
            pass that computes its output: `top(k)` of a view has them then, up to so many; none if left out.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> model = nn.Transformer(16, 4, 1, 1, 32, batch_first=True)
        >>> with nn.record(model) as recording:
        ...     output = model(torch.rand(2, 7, 16), torch.rand(2, 5, 16))
        >>> recording.layers
        ['encoder.layers.0.self_attn', 'decoder.layers.0.self_attn', 'decoder.layers.0.multihead_attn']
        >>> recording["decoder.layers.0.multihead_attn"].shape
        (2, 4, 5, 7)
    """
    return Recording(model, layers, heads, rows, budget, top)


class Recording:
    """What `record` kept: a view for each call of each layer.

    Iterating gives (name, view) in the order of the calls; `recording[name]` is the view of a layer that was called
    once, and `recording.views(name)` the list of them all. In place of a name, a number is that of the layer among all
    attention layers of the model.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        heads: Sequence[int] | None,
        rows: Sequence[int] | slice | None,
        budget: int | None,
        top: int | None,
    ) -> None:
        self._modules = choose_layers(model, layers)
        self._every = list(find_layers(model))
        self._heads = None if heads is None else _several("heads", heads)
        self._rows = rows if rows is None or isinstance(rows, slice) else _several("rows", rows)
        self.budget = _checked_budget(budget)
        self._top = 0 if top is None else _number_of_keys(top)
        self.bytes = 0
        self._kept: dict[str, list[_Kept]] = {name: [] for name in self._modules}
        self._calls: list[tuple[str, _Kept]] = []
        self._names = {id(module): name for name, module in self._modules.items()}
        self._keeping = RLock()  # threads that run in copies of one context may call at once

    @property
    def layers(self) -> list[str]:
        """The names of the layers that are recorded."""
        return list(self._modules)

    @property
    def numbers(self) -> list[int]:
        """Where each of `layers` stands among all attention layers of the model, from 0."""
        return [self._every.index(name) for name in self._modules]

    def views(self, layer: str | int | None = None) -> list[WeightsView]:
        """The views of a layer, one for each call of it, in order; of every layer if none is named."""
        return (
            [kept.view for _, kept in self._calls]
            if layer is None
            else [kept.view for kept in self._kept[one_of(layer, self._kept, self._every)]]
        )

    def __getitem__(self, layer: str | int) -> WeightsView:
        """The view of a layer that was called once, by its name or number; `views(layer)` has those of every call."""
        name = one_of(layer, self._kept, self._every)
        calls = self._kept[name]
        if not calls:
            module = self._modules[name]
            host = host_of(module)
            refusal = None if host is None else host.refusal(module)
            why = "Call the model in the `with`, in the thread that opened it"
            if host is not None:
                why = f"By now {refusal}" if refusal else f"{why}, while it runs on regard"
            raise MissingKey(f"{name} must have been called to be read: got no call. {why.rstrip('.')}.")
        if len(calls) > 1:
            raise OptionError(
                f"A layer that is read as recording[{layer!r}] must have been called once: {name} was called "
                f"{len(calls)} times. Use recording.views({layer!r}), which has a view for each call; gradient "
                f"checkpointing calls each layer once more on the way back."
            )
        return calls[0].view

    def __iter__(self) -> Iterator[tuple[str, WeightsView]]:
        """(name of the layer, view) of every call, in order."""
        return ((name, kept.view) for name, kept in self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def estimate(self, n_queries: int, n_keys: int | None = None, batch: int = 1) -> int:
        """The bytes that one call of every recorded layer would keep, before it is made.

        Args:
            n_queries: How many tokens look.
            n_keys: How many keys there are; as many if left out.
            batch: How many sequences.

        Masks that a call is given as tensors come on top.
        """
        n_keys = n_queries if n_keys is None else n_keys
        return sum(self._estimate_layer(layer, n_queries, n_keys, batch) for layer in self._modules.values())

    @torch.no_grad()
    def _estimate_layer(self, layer: nn.Module, n_queries: int, n_keys: int, batch: int) -> int:
        from regard.nn.base_layer import AttentionLayer

        if not isinstance(layer, AttentionLayer):
            raise OptionError(
                f"{type(layer).__name__} is a layer of another library, whose queries and keys have no known sizes "
                f"before it is called: what a recording keeps cannot be told. Record with a budget= instead."
            )
        # Two small batches tell what a sequence takes and what all share: the score itself says what it keeps.
        one, two = (
            _nbytes(part, part.form) + self._found_bytes(part)
            for size in (1, 2)
            for part in [
                self._part(_problem(*layer.blanks(size, n_queries, n_keys), score=layer.score, weights=layer.weights))
            ]
        )
        return one + (batch - 1) * (two - one)

    def clear(self) -> None:
        """Forget every call so far."""
        self._calls.clear()
        for calls in self._kept.values():
            calls.clear()
        self.bytes = 0

    def __enter__(self) -> Self:
        global _tell
        with _opening:
            _set_open((*_open, self))
            if "torch._dynamo" in sys.modules and _tell is _tell_here:
                _tell = torch.compiler.disable(_tell_here, reason=_WHY_APART)
        _here.set((*_here.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _opening:
            _set_open(_without(_open, self))
        _here.set(_without(_here.get(), self))

    def __repr__(self) -> str:
        return f"<Recording of {len(self.layers)} layers: {len(self)} calls, {self.bytes:,} bytes>"

    def _repr_html_(self) -> str:
        """In a notebook: a small map of each head of each call."""
        if any(view._versions.changed is not None or view._problem.queries.is_meta for _, view in self):
            return f"<pre>{html.escape(repr(self))}</pre>"  # nothing to read, or not what was recorded
        numbers = dict(zip(self.layers, self.numbers, strict=True))
        return picture_of_recording([(name, numbers[name], view) for name, view in self], self._title)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], Any] | None:
        """In a notebook with anywidget: the interactive picture."""
        numbers, seen = dict(zip(self.layers, self.numbers, strict=True)), Counter[str]()
        calls = []
        for name, view in self:
            call = f", call {seen[name]}" if len(self._kept[name]) > 1 else ""
            calls.append((f"{numbers[name]}: {name}{call}", view))
            seen[name] += 1
        return bundle(self, self._title, calls)

    @property
    def _title(self) -> str:
        return f"Recording of {len(self.layers)} layers: {len(self)} calls, {self.bytes:,} bytes"

    def _take(
        self, owner: nn.Module, layer: Attending, queries: Tensor, keys: Tensor, options: dict[str, Any]
    ) -> _Kept | None:
        """What is kept of a call, if its heaviest weights are wanted; None if they are not."""
        name = self._names.get(id(owner))
        if name is None:
            return None
        if _is_vmapped(queries) or _is_vmapped(keys):
            raise OptionError(
                f"{name} must not be recorded inside torch.vmap: its queries and keys are gone when vmap returns. "
                f"Call the layer with the whole batch, or record outside."
            )
        with self._keeping, torch.no_grad():
            whole = _problem(*layer.by_head(queries.detach(), keys.detach()), **options)
            part = self._part(whole)
            own = () if layer.mask is None else layer.mask.tensors()
            form, sharing = part.form, layer.sharing if self._heads is None else 1
            if sharing > 1 and isinstance(form, DotForm):
                form = replace(form, right=form.right[..., ::sharing, :, :])
            size = _nbytes(part, form, own) + self._found_bytes(part)
            if self.budget is not None and self.bytes + size > self.budget:
                raise BudgetExceeded(
                    f"Recording {name} would keep {size:,} bytes more, {self.bytes + size:,} in all: the budget is "
                    f"{self.budget:,}. Pass a larger budget=, or fewer layers=, heads= or rows=."
                )
            # Copies: a part of a larger tensor would keep all of it alive. The form is all that weights are computed
            # from, so that of queries and keys the sizes stay, and the score without what this call added to it.
            problem = replace(
                part,
                queries=_blank(part.queries),
                keys=part.keys.clone() if part.rule.choices else _blank(part.keys),  # who chooses asks for ties
                values=_blank(part.values),
                mask=copy.deepcopy(part.mask, {id(each): each for each in own}),  # others may be written into
                score=layer.score,
                rule=copy.deepcopy(part.rule).requires_grad_(False),  # they may learn on
            )
            copied = form.rebuilt(iter([tensor.clone() for tensor in form.tensors()]))
            self.bytes += size
            kept = _Kept(problem, copied, sharing if form is not part.form else 1)
            self._kept[name].append(kept)
            self._calls.append((name, kept))
        if not self._top:
            return None
        kept.wanted = _Wanted(self._top, (*whole.grid.batch_shape, whole.grid.n_queries), self._heads, self._rows)
        return kept

    def _found_bytes(self, part: AttentionProblem) -> int:
        """What the heaviest weights of a call take: a float32 and an int64 each."""
        return math.prod(part.grid.batch_shape) * part.grid.n_queries * self._top * 12

    def _part(self, problem: AttentionProblem) -> AttentionProblem:
        """The problem for the rows and heads that are wanted."""
        grid, form, queries, mask = problem.grid, problem.form, problem.queries, problem.mask
        rows, heads = None, None
        if self._rows is not None:
            rows = torch.tensor(places_of(self._rows, grid.n_queries), dtype=torch.long, device=grid.device)
            form, queries = form.narrow(rows, grid.columns), queries[..., rows, :]
        if self._heads is not None:
            if len(grid.batch_shape) < 2:
                raise OptionError(
                    f"`heads` must be left out for a layer without heads: got {self._heads} for batch axes "
                    f"{grid.batch_shape}. Name the layers that have heads in layers=."
                )
            n_heads = grid.batch_shape[-1]
            if any(not -n_heads <= head < n_heads for head in self._heads):
                raise OptionError(
                    f"`heads` must be from 0 to {n_heads - 1}, or from -{n_heads} to -1 counted from the end: got "
                    f"{self._heads}."
                )
            if problem.rule.batch_shape:
                raise OptionError(
                    f"`heads` must be left out where the rule has a number for each head: got {self._heads} with "
                    f"{type(problem.rule).__name__}. Record every head, and read those."
                )
            heads = torch.tensor([head % n_heads for head in self._heads], dtype=torch.long, device=grid.device)
            form = form.rebuilt(iter([of_heads(tensor, heads, n_heads) for tensor in form.tensors()]))
            queries, keys, values = (of_heads(each, heads, n_heads) for each in (queries, problem.keys, problem.values))
            problem = replace(problem, keys=keys, values=values)
        if rows is None and heads is None:
            return problem
        part = None if mask is None else part_of_mask(mask, rows, heads, grid)
        return replace(problem, queries=queries, mask=part).around(form)


@dataclass(frozen=True)
class _Wanted:
    """Which of the heaviest weights of a call are wanted."""

    k: int
    shape: tuple[int, ...]  # of the call, but for its keys
    heads: list[int] | None
    rows: list[int] | slice | None

    def of(self, found: Top) -> Top | None:
        """Of those of every row and head; copies, since others may be handed the same. None where it has others."""
        if math.prod(found.indices.shape[:-1]) != math.prod(self.shape):  # values have batch axes of their own
            return None
        return Top(*(self._part(each[..., : self.k]).clone() for each in found))

    def _part(self, tensor: Tensor) -> Tensor:
        tensor = tensor.reshape(*self.shape, tensor.shape[-1])
        if self.heads is not None:
            tensor = tensor[..., [head % tensor.shape[-3] for head in self.heads], :, :]
        return tensor if self.rows is None else tensor[..., places_of(self.rows, tensor.shape[-2]), :]


class _Kept:
    """What one call of a layer leaves behind: its view, and before somebody asks for that, less than it needs.

    Args:
        problem: Whose weights they are, without its form.
        form: What its weights are computed from; keys of heads that share them stand in it once.
        sharing: How many heads of queries share those of one.
    """

    def __init__(self, problem: AttentionProblem, form: Form, sharing: int) -> None:
        self._problem, self._form, self._sharing = problem, form, sharing
        self.wanted: _Wanted | None = None  # of the heaviest weights, which the call finds
        self._found: Top | None = None
        if sharing == 1:  # at once: from here on it would notice a change of what it does not own
            _ = self.view

    @cached_property
    def view(self) -> WeightsView:
        form = self.__dict__.pop("_form")
        if self._sharing > 1:
            form = replace(form, right=form.right.repeat_interleave(self._sharing, -3))
        with torch.no_grad():
            problem = self._problem.around(form)
            view = _Recorded(problem, choose(problem, None))
        view._top = self._found
        return view

    def tell(self, found: Top) -> None:
        """The heaviest weights of every row and head of the call."""
        assert self.wanted is not None
        self._found = self.wanted.of(found)
        if "view" in self.__dict__:
            self.view._top = self._found


class _Recorded(WeightsView):
    """A view of what was recorded. It has no gradients, and no queries and keys to project again."""

    @property
    def _tracks(self) -> bool:
        return False

    def _current_versions(self) -> Versions:
        return Versions(self._problem, score=False)  # which may learn on: its form was copied

    @torch.no_grad()
    def _define(self, rows: Tensor | None = None) -> Tensor:
        return super()._define(rows)

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n  Recorded, so without a gradient: the layer's own weigh(...) has one."

    @property
    def output(self) -> Tensor:
        raise OptionError(
            "The output of a recorded layer cannot be read: a recording keeps queries and keys, and no values. "
            "Take it from the model's call."
        )


def _problem(queries: Tensor, keys: Tensor, **options: Any) -> AttentionProblem:
    # Nothing is pooled: values are one number for each key, which nobody reads. Kernels take no empty ones.
    return make_problem(queries, keys, keys[..., :1], **options)


def _nbytes(problem: AttentionProblem, form: Form, shared: Sequence[Tensor] = ()) -> int:
    """The bytes that a recording of a problem keeps: its form's, keys', and those of masks that nobody else has."""
    masks = () if problem.mask is None else problem.mask.tensors()
    others = [tensor for tensor in masks if all(tensor is not each for each in shared)]
    keys = [problem.keys] if problem.rule.choices else []
    return sum(tensor.nbytes for tensor in (*form.tensors(), *keys, *others))


def _is_vmapped(tensor: Tensor) -> bool:
    """Whether a tensor stands for one of many inside torch.vmap."""
    return is_tracing() and torch._C._functorch.is_batchedtensor(tensor)


def _blank(tensor: Tensor) -> Tensor:
    """A tensor of that shape and kind which takes no memory."""
    return tensor.new_zeros(()).expand(tensor.shape)


def is_recorded(owner: nn.Module) -> bool:
    """Whether any recording that is open, here or in another context, wants what a layer uses."""
    return id(owner) in _wanted


def note(owner: nn.Module, layer: Attending, queries: Tensor, keys: Tensor, options: dict[str, Any]) -> Sequence[_Kept]:
    """Tell the recordings that are open here the queries and keys that a layer is about to use.

    Returns:
        Who wants to be told the heaviest weights of the call, for `attend_and_tell`.

    Args:
        owner: The module that models know by name.
        layer: Who attends: the module itself, where it is one of ours.
        queries, keys: After their projections.
        options: `score`, `weights` and `mask` as for `regard.attend`.
    """
    return _tell(owner, layer, queries, keys, options) if is_recorded(owner) else ()


def _set_open(recordings: tuple[Recording, ...]) -> None:
    global _open, _wanted
    _open = recordings
    _wanted = dict.fromkeys((each for recording in recordings for each in recording._names), True)


def _tell_here(
    owner: nn.Module, layer: Attending, queries: Tensor, keys: Tensor, options: dict[str, Any]
) -> Sequence[_Kept]:
    # A task may go on with its copy of the context after a recording was closed.
    mine = [recording for recording in dict.fromkeys(_here.get()) if recording in _open]
    kept = [recording._take(owner, layer, queries, keys, options) for recording in mine]
    return [each for each in kept if each is not None]


_tell = _tell_here  # where something was compiled, what torch.compile leaves out of its graphs


def attend_and_tell(
    wanting: Sequence[_Kept], queries: Tensor, keys: Tensor, values: Tensor, options: dict[str, Any], dropout: float
) -> Tensor:
    """What `regard.attend` gives; the heaviest weights to who wants them, in one pass where nothing has a gradient.

    Args:
        wanting: As `note` gave them.
        queries, keys, values: With batch axes of their own, which may be others than `note` was told.
        options: `score`, `weights` and `mask` as for `regard.attend`.
        dropout: As for `regard.attend`.
    """
    if not wanting or is_tracing():
        return attend(queries, keys, values, **options, dropout=dropout)
    k = max(each.wanted.k for each in wanting if each.wanted is not None)
    # What a gradient needs of the output is the same whether a recording is open or not: checkpointing compares it.
    output = attend(queries, keys, values, **options, dropout=dropout) if torch.is_grad_enabled() or dropout else None
    with torch.no_grad():
        # Without dropout: weights are read before it, and it would draw random numbers again.
        options = options | {"weights": at_rest(options["weights"], queries)}
        view = weigh(queries.detach(), keys.detach(), values.detach(), **options)
        found = view.collect(top=k, output=output is None).top
        assert found is not None
        for each in wanting:
            each.tell(found)
        return view.output if output is None else output


def _without(recordings: tuple[Recording, ...], closed: Recording) -> tuple[Recording, ...]:
    """The recordings without the last mention of one."""
    places = [place for place, each in enumerate(recordings) if each is closed]
    return recordings if not places else (*recordings[: places[-1]], *recordings[places[-1] + 1 :])


def _number_of_keys(top: Any) -> int:
    number = as_integer(top)
    if number is None or number < 1:
        raise OptionError(f"`top` must be an integer of at least 1: got {top!r}. It is a number of keys.")
    return number


def _several(name: str, places: Any) -> list[int]:
    if as_integer(places) is not None:
        raise OptionError(f"`{name}` must be a list of numbers: got {places}. Use {name}=[{places}].")
    numbers = [as_integer(each) for each in places] if isinstance(places, Iterable) else []
    found = [each for each in numbers if each is not None]
    if isinstance(places, str) or not numbers or len(found) < len(numbers):
        raise OptionError(
            f"`{name}` must be a list of whole numbers, at least one: got {places!r}. Leave it out for all of them."
        )
    return found


def _checked_budget(budget: Any) -> int | None:
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not budget >= 0:
        raise OptionError(f"`budget` must be a number of bytes, as 2**30, or None for no limit: got {budget!r}.")
    return budget  # type: ignore[return-value]
