"""The cases of the contract: every score × rule × mask × dtype, at sizes where nothing is square or round by accident.

Each table maps a name to a function that makes the thing anew, so that cases never share parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.masks import (
    Allowed,
    BlockLayout,
    Causal,
    GlobalKeys,
    KeyMask,
    Mask,
    NotSelf,
    Padding,
    PerHead,
    RandomKeys,
    SameDocument,
    Selected,
    Strided,
    Where,
    Window,
)
from regard.problem import AttentionProblem, make_problem
from regard.scores import (
    Additive,
    Alibi,
    Bias,
    Boxcar,
    Cosine,
    Custom,
    Dot,
    Epanechnikov,
    Equal,
    Gated,
    Gaussian,
    Laplacian,
    Multiplicative,
    RelativeBias,
    ScaledDot,
    Score,
    SoftCap,
    Triangular,
)
from regard.weights import (
    Conic,
    Entmax,
    OneHot,
    Proportional,
    Raw,
    Sigmoid,
    Softmax,
    Sparsemax,
    TopK,
    Uniform,
    Weights,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Sizes:
    """How large a case is. Nothing is square or round, unless it is asked for."""

    batch: int = 2
    heads: int = 3
    n_queries: int = 13
    n_keys: int = 19
    dim: int = 4
    value_dim: int = 5


def _positive(value: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(value))


class _Network(nn.Module):
    """A score that a user might write: a network over differences."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, 1, bias=False)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.layer((queries.unsqueeze(-2) - keys.unsqueeze(-3)).abs()).squeeze(-1)  # type: ignore[no-any-return]


SCORES: Mapping[str, Callable[[Sizes], Score]] = MappingProxyType(
    {
        "Dot": lambda size: Dot(),
        "ScaledDot": lambda size: ScaledDot(),
        "Multiplicative": lambda size: Multiplicative(size.dim, size.dim, heads=size.heads),
        "Additive": lambda size: Additive(size.dim, size.dim, 3, heads=size.heads),
        "Gated": lambda size: Gated(size.dim, size.dim),
        "Gated(Additive)": lambda size: Gated(size.dim, size.dim, Additive(size.dim, size.dim, 3)),
        "Cosine": lambda size: Cosine(_positive(0.5)),
        "Gaussian": lambda size: Gaussian(3.0),
        "Gaussian, bandwidth per dimension": lambda size: Gaussian(nn.Parameter(torch.linspace(0.3, 0.7, size.dim))),
        "Laplacian": lambda size: Laplacian(_positive(2.0)),
        "Boxcar": lambda size: Boxcar(2.5),
        "Epanechnikov": lambda size: Epanechnikov(_positive(4.0)),
        "Triangular": lambda size: Triangular(_positive(4.0)),
        "Equal": lambda size: Equal(),
        "Custom": lambda size: Custom(_Network(size.dim)),
        "SoftCap": lambda size: SoftCap(ScaledDot(), 2.0),
        "Bias": lambda size: ScaledDot() + Bias(nn.Parameter(torch.rand(size.heads, 1, size.n_keys))),
        "Bias per pair": lambda size: Dot() + Bias(torch.rand(size.n_queries, size.n_keys)),
        "Alibi": lambda size: ScaledDot() + Alibi(nn.Parameter(torch.linspace(0.1, 0.5, size.heads)), align="end"),
        "RelativeBias": lambda size: ScaledDot() + RelativeBias(4, heads=size.heads, align="end"),
        "sum of scores": lambda size: Gaussian(2.0).on([0, 1]) + 0.5 * Dot().on([2, 3]),
    }
)

RULES: Mapping[str, Callable[[], Weights]] = MappingProxyType(
    {
        "Softmax": Softmax,
        "Softmax, temperature": lambda: Softmax(temperature=_positive(1.7)),
        "Softmax, sink": lambda: Softmax(sink=nn.Parameter(torch.tensor(0.3))),
        "Proportional": Proportional,
        "Conic": Conic,
        "Raw": Raw,
        "Sigmoid": Sigmoid,
        "OneHot": OneHot,
        "Uniform": Uniform,
        "Sparsemax": Sparsemax,
        "Entmax": Entmax,
        "Entmax, alpha learned": lambda: Entmax(_positive(1.3)),
        "TopK": lambda: TopK(3),
        "TopK(Raw)": lambda: TopK(4, then=Raw()),
        "TopK(Sparsemax)": lambda: TopK(5, then=Sparsemax()),
    }
)


def _allowed(size: Sizes) -> Mask:
    """A mask with a fully masked row and one that sees a single key."""
    generator = torch.Generator().manual_seed(0)
    tensor = torch.rand(size.heads, size.n_queries, size.n_keys, generator=generator) < 0.4
    tensor[:, 2] = False
    tensor[:, 5] = False
    tensor[:, 5, 7] = True
    return Allowed(tensor)


def _selected(size: Sizes) -> Mask:
    indices = torch.randint(-1, size.n_keys, (size.n_queries, 4), generator=torch.Generator().manual_seed(0))
    indices[3] = -1
    return Selected(indices)


def _documents(size: Sizes) -> Mask:
    return SameDocument(
        torch.arange(size.n_queries).expand(size.batch, -1) // 4, torch.arange(size.n_keys).expand(size.batch, -1) // 5
    )


def _block_layout(size: Sizes) -> Mask:
    rows, columns = -(-size.n_queries // 7), -(-size.n_keys // 7)
    return BlockLayout((torch.arange(rows)[:, None] + torch.arange(columns)) % 2 == 0, 7)


def _per_head(size: Sizes) -> Mask:
    scopes = (Causal(align="end"), Window(1, 1, align="end"), GlobalKeys([2]))
    return PerHead([scopes[head % 3] for head in range(size.heads)])


MASKS: Mapping[str, Callable[[Sizes], Mask | None]] = MappingProxyType(
    {
        "no mask": lambda size: None,
        "Causal, start": lambda size: Causal(align="start"),
        "Causal, end": lambda size: Causal(align="end"),
        "Causal, offset per batch row": lambda size: Causal(align=torch.arange(size.batch) * 7 - 4),
        "Window": lambda size: Window(3, 2, align="end"),
        "Strided": lambda size: Strided(4, align="end"),
        "GlobalKeys": lambda size: GlobalKeys([0, -1]),
        "RandomKeys": lambda size: RandomKeys(5, seed=1),
        "BlockLayout": _block_layout,
        "Selected": _selected,
        "Padding": lambda size: Padding((size.n_keys - 4) * (1 - torch.arange(size.batch) % 2)),
        "KeyMask": lambda size: KeyMask(torch.arange(size.n_keys) % 3 != 1),
        "SameDocument": _documents,
        "NotSelf": lambda size: NotSelf(align="start"),
        "Allowed": _allowed,
        "Where": lambda size: Where(lambda row, column: (row + column) % 3 == 0),
        "PerHead": _per_head,
        "a combination": lambda size: (Causal(align="end") & ~Strided(3, align="end")) | GlobalKeys([4]),
    }
)

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

# Scores that are exact on small integers, and rules that choose: compared there, where ties are real and no rounding
# can move a pair to the other side. Other scores are compared on random numbers, where there are no ties.
EXACT_SCORES = frozenset({"Dot", "ScaledDot", "Boxcar", "Epanechnikov", "Equal"})
STEPS = frozenset({"Boxcar", "Equal"})
CHOICES = frozenset({"OneHot", "TopK", "TopK(Raw)", "TopK(Sparsemax)"})


def _broken(inputs: list[Tensor]) -> list[Tensor]:
    """NaN in the last key and its value, infinity in the last query."""
    queries, keys, values = (each.clone() for each in inputs)
    queries[..., -1:, :], keys[..., -1:, :], values[..., -1:, :] = torch.inf, torch.nan, torch.nan
    return [queries, keys, values]


# What may be unusual about the inputs of a case: a change of queries, keys and values.
VARIANTS: Mapping[str, Callable[[list[Tensor]], list[Tensor]]] = MappingProxyType(
    {
        "plain": lambda inputs: inputs,
        "dropout": lambda inputs: inputs,
        "NaN and infinity": _broken,
        "one query": lambda inputs: [inputs[0][..., :1, :], *inputs[1:]],
        "no queries": lambda inputs: [inputs[0][..., :0, :], *inputs[1:]],
        "no keys": lambda inputs: [inputs[0], inputs[1][..., :0, :], inputs[2][..., :0, :]],
        "an empty batch": lambda inputs: [each[:0] for each in inputs],
        "no batch axes": lambda inputs: [each[0, 0] for each in inputs],
        "batch axes of values alone": lambda inputs: [inputs[0][0, 0], inputs[1][0, 0], inputs[2]],
        "batch axes of queries alone": lambda inputs: [inputs[0], inputs[1][0, 0], inputs[2][0, 0]],
        "one tensor for all": lambda inputs: [inputs[0]] * 3,
        "not contiguous": lambda inputs: [each.mT.contiguous().mT for each in inputs],
    }
)


@dataclass(frozen=True)
class Case:
    """One cell of the table."""

    score: str
    rule: str
    mask: str
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    size: Sizes = Sizes()
    variant: str = "plain"

    def __str__(self) -> str:
        names = (self.score, self.rule, self.mask, str(self.dtype).removeprefix("torch."))
        return " | ".join(names if self.variant == "plain" else (*names, self.variant))

    @property
    def expected_error(self) -> bool:
        """Whether this raises ScoreError: proportional weights of the logarithm of a kernel."""
        return self.rule == "Proportional" and self.score in (
            "Gaussian",
            "Gaussian, bandwidth per dimension",
            "Laplacian",
        )

    @property
    def may_be_negative(self) -> bool:
        """Whether proportional weights find a negative score while running: a distance is subtracted."""
        return self.rule == "Proportional" and self.score in ("Alibi", "sum of scores")

    @property
    def comparable(self) -> bool:
        """Whether another rounding cannot change which keys a rule chooses: projections in half precision can."""
        return self.dtype.itemsize > 2 or self.rule not in CHOICES or self.score in EXACT_SCORES

    def make(self, dtype: torch.dtype) -> AttentionProblem:
        """The problem in a dtype; the numbers are those of the case's own dtype, whatever it is computed in."""
        size = self.size
        generator = torch.Generator().manual_seed(0)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)  # `torch.manual_seed` takes a traceback for each device
            score, rule = SCORES[self.score](size), RULES[self.rule]()
        mask = MASKS[self.mask](size)
        shapes = (
            (size.batch, size.heads, size.n_queries, size.dim),
            (size.batch, 1, size.n_keys, size.dim),  # one set of keys for all heads
            (size.batch, size.heads, size.n_keys, size.value_dim),
        )
        inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        if self.score in STEPS or (self.rule in CHOICES and self.score in EXACT_SCORES):
            inputs[:2] = [each.round() for each in inputs[:2]]
        if self.rule == "Proportional":
            # Scores must not be negative: neither are inputs, nor parameters.
            inputs = [each.abs() for each in inputs]
            with torch.no_grad():
                for parameter in score.parameters():
                    parameter.abs_()
        inputs = VARIANTS[self.variant](inputs)
        unique = {id(each): each.to(self.dtype).to(dtype).to(self.device).requires_grad_() for each in inputs}
        tensors = [unique[id(each)] for each in inputs]
        for module in (score, rule):
            module.to(self.dtype).to(dtype).to(self.device)
        mask = None if mask is None else mask.to(self.device)
        dropout = 0.4 if self.variant == "dropout" else 0.0
        return make_problem(*tensors, score=score, weights=rule, mask=mask, dropout=dropout, seed=2**40 + 17)


def every_case(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Iterator[Case]:
    """Every score × rule × mask that can be compared in that dtype."""
    cases = (Case(*names, dtype, device) for names in itertools.product(SCORES, RULES, MASKS))
    return (case for case in cases if case.comparable)
