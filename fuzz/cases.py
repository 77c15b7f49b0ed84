"""Random attention: one integer makes one case, the same on every machine."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fuzz.masks import draw_mask
from fuzz.parts import Part

DTYPES = (torch.float64, torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.float16)
ROWS = (0, 1, 1, 2, 3, 5, 8, 13, 31, 33, 64, 65, 100)
COLUMNS = (0, 1, 2, 3, 7, 13, 16, 17, 33, 63, 64, 65, 130, 200)
DIMS = (1, 2, 3, 4, 4, 8, 16, 17, 32)
BATCHES: tuple[tuple[int, ...], ...] = ((), (), (2,), (3,), (2, 3), (1, 2), (2, 2), (2, 1, 2), (1, 2, 2))
LAYOUTS = ("contiguous", "contiguous", "transposed", "every second", "offset", "expanded")

DOTS = ("dot", "scaled dot", "multiplicative", "cosine", "additive", "gated", "soft cap")
DISTANCES = ("gaussian", "laplacian", "epanechnikov", "triangular", "custom")
STEPS = ("boxcar", "equal")  # jumps: compared where no rounding can move a pair to the other side
POSITIONS = ("bias", "bias", "alibi", "relative", "scaled", "sum", "on")
NEVER_NEGATIVE = ("dot", "scaled dot", "multiplicative", "boxcar", "equal", "epanechnikov", "triangular")
RULES = (
    *("softmax", "softmax", "softmax", "proportional", "conic", "raw", "sigmoid", "one-hot", "uniform"),
    *("sparsemax", "entmax", "top-k", "top-k"),
)
PLAIN = 2499  # leaves the seeds that are kept as they were
ENGINES = ("reference", "sdpa", "plain tiles", "plain tiles", "kernels", "kernels", "default", "default")


@dataclass(frozen=True)
class Case:
    """One call of attention as plain data. Every number is one of the case's dtype, held in float64."""

    seed: int
    dtype: torch.dtype
    score: Part
    rule: Part
    mask: Part | None
    parameters: dict[str, Tensor]
    queries: Tensor
    keys: Tensor
    values: Tensor
    layouts: tuple[str, str, str]
    engine: str
    exact: bool  # whether scores are small integers, on which no rounding happens
    broken: bool  # whether NaN or infinity is among the inputs
    notes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = " ".join(str(tuple(each.shape)) for each in (self.queries, self.keys, self.values))
        dtype = str(self.dtype).removeprefix("torch.")
        learned = ", learned: " + " ".join(self.parameters) if self.parameters else ""
        return (
            f"{self.score} | {self.rule} | {self.mask or 'no mask'} | {dtype} {shapes} | {', '.join(self.layouts)} | "
            f"{self.engine}{learned}{' | NaN or infinity' if self.broken else ''}"
        )

    @property
    def generator(self) -> torch.Generator:
        """A source of numbers that depends on the case alone."""
        return torch.Generator().manual_seed(self.seed * 2 + 1)

    @property
    def random(self) -> random.Random:
        """A source of choices that depends on the case alone."""
        return random.Random(self.seed * 2 + 1)


def make_case(seed: int) -> Case:
    """The case of that number. One in ten is the call that most people make, or nearly."""
    case = _Maker(seed).make()
    usual = random.Random(f"{PLAIN} {seed}").random() < 0.1 and "proportional" not in case.rule.kinds()
    return _plain(case) if usual else case


def _plain(case: Case) -> Case:
    """The queries and keys of a case, with values of their dimension, under scaled dot products and softmax."""
    chooser = case.random
    queries, keys = case.queries.clone(), case.keys
    batch = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    queries, keys = queries.expand(*batch, *queries.shape[-2:]).clone(), keys.expand(*batch, *keys.shape[-2:])
    values = torch.randn(keys.shape, generator=case.generator, dtype=torch.float64).to(case.dtype).double()
    if chooser.random() < 0.2 and queries.numel():
        queries[..., chooser.randrange(queries.shape[-2]), 0] = chooser.choice((torch.inf, -torch.inf, torch.nan))
    square = queries.shape[-2] == keys.shape[-2]
    causal = Part("causal", {"align": None if square else "end"}) if chooser.random() < 0.3 else None
    score, rule = Part("scaled dot", {"scale": None}), Part("softmax", {"temperature": 1.0})
    broken = not all(bool(each.isfinite().all()) for each in (queries, keys))
    tensors = {"queries": queries, "keys": keys, "values": values}
    changes: dict[str, Any] = {"score": score, "rule": rule, "mask": causal, "parameters": {}, **tensors}
    return replace(case, **changes, engine="default", exact=False, broken=broken)


class _Maker:
    """Draws a case, choice by choice."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype = self.random.choice(DTYPES)
        self.batch = self.random.choice(BATCHES)
        self.n, self.m = self.random.choice(ROWS), self.random.choice(COLUMNS)
        self.dim, self.value_dim = self.random.choice(DIMS), self.random.choice((1, 2, 5, 8))
        self.parameters: dict[str, Tensor] = {}
        self.scale = 1.0

    def make(self) -> Case:
        rule = self.rule()
        positive = "proportional" in rule.kinds()
        score = self.score(positive)
        chooses = bool(rule.kinds() & {"one-hot", "top-k"})
        jumps = bool(score.kinds() & set(STEPS))
        lattice = jumps or (chooses and self.chance(0.5))
        self.scale = self.magnitude()
        narrow = 1.0 if lattice else self.random.choice((1.0, 1.0, 1.0, 1.0, 0.03, 0.001))
        self.rescale(score, self.scale * narrow)
        queries, keys, values = self.inputs(score, lattice, positive)
        if positive:
            self.parameters = {name: each.abs() for name, each in self.parameters.items()}
        plain = score.kinds() <= {"dot", "boxcar", "equal"} or (
            score.kinds() == {"scaled dot"} and score.options["scale"] is None and self.dim in (1, 4, 16)
        )
        # A temperature is one more factor of scores, and rounds them.
        plain = plain and all(each.options.get("temperature", 1.0) == 1.0 for each in (rule, *rule.inside))
        mask = draw_mask(self.random, self.generator, self.batch, self.n, self.m) if self.chance(0.6) else None
        broken = self.chance(0.15) and not positive
        if broken:
            self.break_some(queries, keys, values)
        names = ("queries", "keys", "values")
        layouts = tuple(self.random.choice(LAYOUTS) for _ in names)
        engine = self.random.choice(ENGINES)
        tensors = [each.to(self.dtype).double() for each in (queries, keys, values)]
        self.parameters = {name: each.to(self.dtype).double() for name, each in self.parameters.items()}
        broken = not all(bool(each.isfinite().all()) for each in tensors)
        return Case(
            *(self.seed, self.dtype, score, rule, mask, self.parameters, *tensors),
            layouts=layouts,
            engine=engine,
            exact=lattice and plain,
            broken=broken,
        )

    # Choices ----------------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def magnitude(self) -> float:
        """How large numbers are: mostly about 1, sometimes anything that the dtype holds."""
        if not self.chance(0.4):
            return 1.0
        reach = 3 if self.dtype == torch.float16 else 30
        return 2.0 ** round(self.random.uniform(-reach, reach) * 3.3219)  # a power of two scales exactly

    def learn(self, name: str, value: float | Tensor, probability: float = 0.5) -> Any:
        """The number, or the name of a parameter with that value."""
        if not self.chance(probability):
            return value.to(self.dtype).double() if isinstance(value, Tensor) else value
        name = f"@{name}{len(self.parameters)}"
        self.parameters[name] = torch.as_tensor(value, dtype=torch.float64)
        return name

    def heads(self) -> tuple[int, ...]:
        """The leading axis of a parameter: one for each head, sometimes."""
        return self.batch[-1:] if self.chance(0.4) else ()

    # Scores -----------------------------------------------------------------------------------------------------------

    def score(self, positive: bool) -> Part:
        if positive:
            return self.basic(self.random.choice(NEVER_NEGATIVE))
        if self.chance(0.25):
            return self.combined(self.random.choice(POSITIONS))
        return self.basic(self.random.choice((*DOTS, *DOTS, *DISTANCES, *STEPS)))

    def basic(self, kind: str, dim: int | None = None) -> Part:
        dim = self.dim if dim is None else dim
        match kind:
            case "scaled dot":
                return Part(kind, {"scale": self.learn("scale", 0.7) if self.chance(0.3) else None})
            case "multiplicative":
                return Part(kind, {"W": self.learn("W", self.randn(*self.heads(), dim, dim), 1)})
            case "additive":
                lead, hidden = self.heads(), self.random.choice((1, 3, 8))
                shapes = {"W1": (hidden, dim), "W2": (hidden, dim), "b": (hidden,), "v": (hidden,)}
                return Part(kind, {name: self.learn(name, self.randn(*lead, *s), 1) for name, s in shapes.items()})
            case "gated":
                gate = self.learn("W_g", self.randn(*self.heads(), 1, 2 * dim), 1)
                return Part(
                    kind, {"W_g": gate}, (self.basic(self.random.choice(("dot", "additive", "gaussian")), dim),)
                )
            case "soft cap":
                cap = self.random.choice((0.5, 2.0, 30.0))
                return Part(kind, {"cap": cap}, (self.basic(self.random.choice(("scaled dot", "dot")), dim),))
            case "cosine":
                return Part(kind, {"temperature": self.learn("temperature", self.random.choice((0.1, 1.0)))})
            case "gaussian" | "laplacian":
                each = (dim,) if self.chance(0.3) else ()
                width = torch.rand(each, generator=self.generator, dtype=torch.float64) * 2 + 0.3
                return Part(kind, {"bandwidth": self.learn("bandwidth", width if each else float(width))})
            case "boxcar":
                return Part(kind, {"radius": 2.5})
            case "epanechnikov" | "triangular":
                return Part(kind, {"radius": self.learn("radius", self.random.choice((1.5, 3.3)))})
            case "custom":
                return Part(kind, {"sharpness": self.learn("sharpness", 0.8, 1)})
        return Part(kind)

    def combined(self, kind: str) -> Part:
        inner = self.basic(self.random.choice((*DOTS, "gaussian", "laplacian")))
        align = "start" if self.n != self.m and self.chance(0.5) else "end"
        match kind:
            case "bias":
                shape = (self.n if self.chance(0.6) else 1, self.m if self.chance(0.8) else 1)
                bias = self.randn(*self.heads(), *shape)
                if self.chance(0.6):  # −inf means "not allowed"
                    bias[torch.rand(bias.shape, generator=self.generator) < 0.3] = -torch.inf
                part = Part(kind, {"bias": self.learn("bias", bias)}, (inner,))
                wrap = self.random.choice(("none", "none", "scaled", "gated", "soft cap"))
                if wrap == "scaled":
                    return Part(wrap, {"factor": self.random.choice((0.0, 0.5, -1.0))}, (part,))
                if wrap == "gated":
                    return Part(wrap, {"W_g": self.learn("W_g", self.randn(1, 2 * self.dim), 1)}, (part,))
                return Part(wrap, {"cap": 2.0}, (part,)) if wrap == "soft cap" else part
            case "alibi":
                slopes = torch.rand(self.heads(), generator=self.generator, dtype=torch.float64)
                return Part(kind, {"slopes": self.learn("slopes", slopes), "align": align}, (inner,))
            case "relative":
                table = self.randn(*self.heads(), 2 * self.random.choice((0, 2, 5)) + 1)
                return Part(kind, {"table": self.learn("table", table, 1), "align": align}, (inner,))
            case "scaled":
                return Part(kind, {"factor": self.random.choice((0.5, -2.0))}, (inner,))
            case "sum":
                return Part(kind, {}, (inner, self.basic(self.random.choice(("dot", "gaussian", "cosine")))))
        some = sorted(self.random.sample(range(self.dim), self.random.randint(1, self.dim)))
        return Part(kind, {"columns": some}, (self.basic(self.random.choice(("dot", "gaussian")), len(some)),))

    def rescale(self, score: Part, factor: float) -> None:
        """Bandwidths and radii in the units of the inputs, or narrower: then scores are large, and differences too."""
        for name in ("bandwidth", "radius"):
            value = score.options.get(name)
            if isinstance(value, str):
                self.parameters[value] = self.parameters[value] * factor
            elif value is not None:
                score.options[name] = value * factor
        for each in score.inside:
            self.rescale(each, factor)

    # Rules ------------------------------------------------------------------------------------------------------------

    def rule(self, kind: str | None = None) -> Part:
        kind = self.random.choice(RULES) if kind is None else kind
        match kind:
            case "softmax":
                warm = self.chance(0.5)
                options = {"temperature": self.learn("temperature", self.random.choice((0.3, 1.7))) if warm else 1.0}
                if self.chance(0.25):
                    options["sink"] = self.learn("sink", self.randn(*self.heads()))
                return Part(kind, options)
            case "sparsemax":
                return Part("entmax", {"alpha": 2.0})
            case "entmax":
                alpha = self.random.choice((1.05, 1.3, 1.5, 2.0, 2.5, 4.0))
                return Part(kind, {"alpha": self.learn("alpha", alpha, 0.25)})
            case "top-k":
                inner = self.rule(self.random.choice(("softmax", "softmax", "raw", "sparsemax", "conic", "uniform")))
                return Part(kind, {"k": self.random.choice((1, 2, 3, 8, 40))}, (inner,))
        return Part(kind)

    # Inputs -----------------------------------------------------------------------------------------------------------

    def inputs(self, score: Part, lattice: bool, positive: bool) -> tuple[Tensor, Tensor, Tensor]:
        q, k = self.randn(*self.stretched(), self.n, self.dim), self.randn(*self.stretched(), self.m, self.dim)
        v = self.randn(*self.whole(q, k), self.m, self.value_dim)
        if lattice:
            q, k = (q * 2).round().clamp(-3, 3), (k * 2).round().clamp(-3, 3)
        if positive:
            q, k = q.abs(), k.abs()
        if self.m > 1 and self.chance(0.4):  # keys that are one: ties go to the lowest index
            source = torch.randint(self.m, (self.m,), generator=self.generator)
            copied = torch.rand(self.m, generator=self.generator) < 0.4
            k = torch.where(copied[:, None], k[..., source, :], k)
        if not lattice and self.chance(0.1):  # far from the origin: scores are large, and their differences are not
            q[..., 0], k[..., 0] = self.random.choice((30.0, 1e3)), self.random.choice((30.0, 1e3, 1e5))
        unequal = not score.kinds() & {*DISTANCES, *STEPS} and self.chance(0.5)
        q, k = q * self.scale, k * (self.magnitude() if unequal else self.scale)
        return q, k, v * (self.magnitude() if self.chance(0.5) else 1.0)

    def stretched(self) -> tuple[int, ...]:
        """Batch axes that broadcast to the case's: some are 1, some that lead are left out."""
        axes = tuple(1 if self.chance(0.3) else size for size in self.batch)
        return axes[self.random.randint(0, len(axes)) :] if self.chance(0.3) else axes

    def whole(self, q: Tensor, k: Tensor) -> tuple[int, ...]:
        """Batch axes of values with which all broadcast to exactly the case's."""
        found = self.stretched()
        together = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], found)
        return found if together == self.batch else self.batch

    def break_some(self, *tensors: Tensor) -> None:
        """NaN or infinity in a few places."""
        for tensor in self.random.sample(tensors, self.random.randint(1, 3)):
            if tensor.numel():
                place = tuple(self.random.randrange(size) for size in tensor.shape)
                tensor[place] = self.random.choice((torch.nan, torch.inf, -torch.inf))
