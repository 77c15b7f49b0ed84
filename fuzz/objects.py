"""A case as the library's own objects."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import regard
from fuzz.cases import Case
from fuzz.parts import Part
from regard.engines import Tiled


@dataclass
class Call:
    """What `attend` is called with, and every tensor that has a gradient, by name."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    score: regard.Score
    weights: regard.Weights
    mask: regard.Mask | None
    engine: Any
    leaves: dict[str, Tensor]

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.queries, self.keys, self.values

    @property
    def options(self) -> dict[str, Any]:
        """Score, rule and mask."""
        return {"score": self.score, "weights": self.weights, "mask": self.mask}

    def attend(self, **changes: Any) -> Tensor:
        """The output."""
        return regard.attend(*self.tensors, **{**self.options, "engine": self.engine, **changes})

    def weigh(self, **changes: Any) -> regard.WeightsView:
        """The view."""
        return regard.weigh(*self.tensors, **{**self.options, "engine": self.engine, **changes})


def make_call(case: Case, dtype: torch.dtype | None = None, grad: bool = True) -> Call:
    """The case for the library: its tensors as they lie in memory, its parameters as parameters."""
    dtype = case.dtype if dtype is None else dtype
    chooser = case.random
    learned = {name: nn.Parameter(each.to(dtype).clone(), requires_grad=grad) for name, each in case.parameters.items()}
    leaves: dict[str, Tensor] = {}
    inputs = []
    for name, tensor, layout in zip(
        ("queries", "keys", "values"), (case.queries, case.keys, case.values), case.layouts, strict=True
    ):
        leaf = tensor.to(dtype).clone().requires_grad_(grad)
        leaves[name] = leaf
        inputs.append(_laid_out(leaf, layout))
    make = _Objects(learned, dtype)
    return Call(
        *inputs,
        score=make.score(case.score),
        weights=make.rule(case.rule),
        mask=None if case.mask is None else make.mask(case.mask),
        engine=make_engine(case.engine, chooser),
        leaves={**leaves, **learned},
    )


def make_engine(kind: str, chooser: random.Random) -> Any:
    """An engine, by the name that cases have for it."""
    match kind:
        case "plain tiles":
            return Tiled(tile_elements=chooser.choice((64, 256, 4096)), kernels=False)
        case "kernels":
            return Tiled(kernels=True)
        case "default":
            return None
    return kind


def _laid_out(tensor: Tensor, layout: str) -> Tensor:
    """The same numbers, lying otherwise in memory."""
    if 0 in tensor.shape:
        return tensor
    match layout:
        case "transposed":
            return tensor.mT.contiguous().mT
        case "every second":
            return torch.stack([tensor, tensor.detach() + 1], -1).flatten(-2)[..., ::2]
        case "offset":
            return torch.cat([tensor.detach()[..., :1, :], tensor], -2)[..., 1:, :]
        case "expanded":
            return tensor.unsqueeze(0).expand(2, *tensor.shape)[1]
    return tensor


class _Objects:
    """Makes the library's objects of parts."""

    def __init__(self, learned: dict[str, nn.Parameter], dtype: torch.dtype) -> None:
        self.learned, self.dtype = learned, dtype

    def number(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("@"):
            return self.learned[value]
        return value.to(self.dtype) if isinstance(value, Tensor) else value

    def score(self, part: Part) -> regard.Score:
        options = {name: self.number(value) for name, value in part.options.items()}
        inside = [self.score(each) for each in part.inside]
        match part.kind:
            case "dot":
                return regard.Dot()
            case "scaled dot":
                return regard.ScaledDot(options["scale"])
            case "multiplicative":
                W = options["W"]
                return self.holding(regard.Multiplicative(*W.shape[-2:], heads=_heads(W, 2)), options)
            case "additive":
                hidden, dim = options["W1"].shape[-2:]
                return self.holding(regard.Additive(dim, dim, hidden, heads=_heads(options["v"], 1)), options)
            case "gated":
                dim = options["W_g"].shape[-1] // 2
                return self.holding(regard.Gated(dim, dim, inside[0], heads=_heads(options["W_g"], 2)), options)
            case "soft cap":
                return regard.SoftCap(inside[0], options["cap"])
            case "cosine":
                return regard.Cosine(options["temperature"])
            case "gaussian":
                return regard.Gaussian(options["bandwidth"])
            case "laplacian":
                return regard.Laplacian(options["bandwidth"])
            case "boxcar":
                return regard.Boxcar(options["radius"])
            case "epanechnikov":
                return regard.Epanechnikov(options["radius"])
            case "triangular":
                return regard.Triangular(options["radius"])
            case "equal":
                return regard.Equal()
            case "custom":
                sharpness = options["sharpness"]
                return regard.Custom(
                    lambda q, k: (
                        -sharpness * torch.hypot(q.unsqueeze(-2) - k.unsqueeze(-3), torch.ones_like(q).unsqueeze(-2))
                    ).sum(-1)
                )
            case "bias":
                return inside[0] + regard.Bias(options["bias"])
            case "alibi":
                return inside[0] + regard.Alibi(options["slopes"], align=options["align"])
            case "relative":
                table = options["table"]
                term = regard.RelativeBias(table.shape[-1] // 2, heads=_heads(table, 1), align=options["align"])
                term.table = table
                return inside[0] + term
            case "sum":
                return inside[0] + inside[1]
            case "scaled":
                return options["factor"] * inside[0]
            case "on":
                return inside[0].on(options["columns"])
        raise AssertionError(part.kind)

    def holding(self, module: Any, parameters: dict[str, Any]) -> Any:
        """The module with these parameters for its own."""
        for name, each in parameters.items():
            setattr(module, name, each)
        return module

    def rule(self, part: Part) -> regard.Weights:
        options = {name: self.number(value) for name, value in part.options.items()}
        match part.kind:
            case "softmax":
                return regard.Softmax(**options)
            case "entmax":
                alpha = options["alpha"]
                return regard.Sparsemax() if isinstance(alpha, float) and alpha == 2 else regard.Entmax(alpha)
            case "top-k":
                return regard.TopK(options["k"], self.rule(part.inside[0]))
        simple = {
            "proportional": regard.Proportional,
            "conic": regard.Conic,
            "raw": regard.Raw,
            "sigmoid": regard.Sigmoid,
            "one-hot": regard.OneHot,
            "uniform": regard.Uniform,
        }
        return simple[part.kind]()

    def mask(self, part: Part) -> regard.Mask:
        options = part.options
        inside = [self.mask(each) for each in part.inside]
        match part.kind:
            case "where":
                below = options["below"]
                return regard.Where(lambda row, column: (row * 7 + column * 3) % 5 < below)
            case "random keys":
                return regard.RandomKeys(options["per_query"], options["seed"])
            case "per head":
                return regard.PerHead(inside)
            case "and":
                return inside[0] & inside[1]
            case "or":
                return inside[0] | inside[1]
            case "not":
                return ~inside[0]
        kinds = {
            "causal": regard.Causal,
            "window": regard.Window,
            "strided": regard.Strided,
            "not self": regard.NotSelf,
            "global keys": regard.GlobalKeys,
            "allowed": regard.Allowed,
            "block layout": regard.BlockLayout,
            "selected": regard.Selected,
            "padding": regard.Padding,
            "key mask": regard.KeyMask,
            "same document": regard.SameDocument,
        }
        return kinds[part.kind](**options)


def _heads(tensor: Tensor, trailing: int) -> int | None:
    return tensor.shape[0] if tensor.ndim > trailing else None
