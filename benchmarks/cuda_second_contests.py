"""More rows of `benchmarks/cuda.py`: scores by channels, thresholds, choices and readings; ours first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from benchmarks import formulas
from benchmarks.cuda_contests import OURS, against_compiled, device, drawn, inputs, ours
from benchmarks.peers import Call
from regard import Additive, Entmax, Laplacian, Score, Sparsemax, TopK, attend, nn, weigh

HIDDEN = 64
CHOSEN = 32
HEAVIEST = 8
PICTURE = (256, 256)
Formula = Callable[..., Tensor]


def _vectors(quick: bool, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    shape = (2, 64, 16) if quick else (16, 2048, 64)
    return tuple(drawn(*shape, dtype=dtype) for _ in range(3))


def _by_channels(quick: bool, score: Score, formula: Formula, learned: tuple[Tensor, ...]) -> Mapping[str, Call]:
    """A score whose formula builds n × m × channels numbers in plain torch."""
    tensors = _vectors(quick)
    leaves = (*tensors, *learned)
    compiled = formula if quick else torch.compile(formula, dynamic=False)
    return {
        OURS: ours(tensors, leaves, score=score),
        "eager": Call(lambda: formula(*leaves), leaves),
        "compiled": Call(lambda: compiled(*leaves), leaves),
    }


def _additive(quick: bool, dtype: torch.dtype = torch.float32) -> tuple[Additive, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    dim, hidden = (16, 8) if quick else (64, HIDDEN)
    score = Additive(dim, dim, hidden).to(device(), dtype)
    learned = dict(score.named_parameters())
    return score, tuple(learned[name] for name in ("W1", "W2", "b", "v"))


def additive(quick: bool) -> Mapping[str, Call]:
    score, learned = _additive(quick)
    return _by_channels(quick, score, formulas.additive, learned)


def additive_in_half(quick: bool) -> Mapping[str, Call]:
    """Half precision beside ourselves in float32."""
    calls = {}
    for name, dtype in ((OURS, torch.bfloat16), ("regard in float32", torch.float32)):
        score, learned = _additive(quick, dtype)
        tensors = _vectors(quick, dtype)
        call = ours(tensors, (*tensors, *learned), score=score)
        calls[name] = Call(call.compute, call.leaves, same=name == OURS)
    return calls


def laplacian(quick: bool) -> Mapping[str, Call]:
    width = 8.0

    def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (-(q.unsqueeze(-2) - k.unsqueeze(-3)).abs().sum(-1) / width).softmax(-1) @ v

    return _by_channels(quick, Laplacian(width), formula, ())


def _sparsemax_formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """By sorting, as the papers have it."""
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).float()
    ordered = scores.sort(-1, descending=True).values
    sums = ordered.cumsum(-1) - 1
    places = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    support = (places * ordered > sums).sum(-1, keepdim=True)
    threshold = sums.gather(-1, support - 1) / support
    return (scores - threshold).clamp(min=0).to(v.dtype) @ v


def _beside_exact(
    calls: Mapping[str, Call], formula: Formula, tensors: tuple[Tensor, ...], peer: str
) -> Mapping[str, Call]:
    """The calls, with the formula in float32 for us to be compared with.

    A peer that rounds scores to half precision chooses other keys: it does the same work, and is compared where nothing
    is rounded.
    """
    exact = Call(lambda: formula(*(each.float() for each in tensors)).to(tensors[0].dtype), tensors)
    of_peer = calls[peer]
    rounds = tensors[0].dtype != torch.float32
    return {**calls, peer: Call(of_peer.compute, of_peer.leaves, same=not rounds), "in float32": exact}


def sparsemax(quick: bool) -> Mapping[str, Call]:
    calls = against_compiled(quick, _sparsemax_formula, weights=Sparsemax())
    return _beside_exact(calls, _sparsemax_formula, calls[OURS].leaves, "compiled")


def _entmax_formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """1.5-entmax by sorting, as its paper has it."""
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).float() / 2
    ordered = scores.sort(-1, descending=True).values
    places = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    mean, squares = ordered.cumsum(-1) / places, ordered.square().cumsum(-1) / places
    apart = (1 / places - (squares - mean.square())).clamp(min=1e-12)
    thresholds = mean - apart.sqrt()
    support = (thresholds <= ordered).sum(-1, keepdim=True)
    return (scores - thresholds.gather(-1, support - 1)).clamp(min=0).square().to(v.dtype) @ v


def entmax(quick: bool) -> Mapping[str, Call]:
    """Beside our own sparsemax, too."""
    calls = against_compiled(quick, _entmax_formula, weights=Entmax(1.5))
    other = ours(calls[OURS].leaves, weights=Sparsemax())
    calls = {**calls, "regard's sparsemax": Call(other.compute, other.leaves, same=False)}
    return _beside_exact(calls, _entmax_formula, calls[OURS].leaves, "compiled")


def top_k(quick: bool) -> Mapping[str, Call]:
    tensors = inputs(quick, 2, 8, 2048, 64)
    formula = partial(formulas.top_k, k=CHOSEN)
    calls = {OURS: ours(tensors, weights=TopK(CHOSEN)), "eager": Call(lambda: formula(*tensors), tensors)}
    return _beside_exact(calls, formula, tensors, "eager")


def _beside_forward(quick: bool, read: Callable[..., object]) -> Mapping[str, Call]:
    """Readings beside our own forward pass, in the time of both."""
    tensors = tuple(each.detach() for each in inputs(quick, 4, 16, 4096, 128))

    def call() -> Tensor:
        read(*tensors)
        return tensors[0]

    return {
        OURS: Call(call),
        "regard's forward pass": Call(lambda: attend(*tensors, engine="tiled"), same=False),
    }


def all_readings(quick: bool) -> Mapping[str, Call]:
    picture = (8, 8) if quick else PICTURE
    return _beside_forward(
        quick, lambda q, k, v: weigh(q, k, v).collect(top=HEAVIEST, entropy=True, received=True, map=picture)
    )


def heaviest(quick: bool) -> Mapping[str, Call]:
    """The output with the heaviest weights of each query."""

    def read(q: Tensor, k: Tensor, v: Tensor) -> object:
        view = weigh(q, k, v)
        return view.collect(top=HEAVIEST, output=True), view.output

    return _beside_forward(quick, read)


def long_additive(quick: bool) -> Call:
    """So many pairs and hidden units that eager would take 1 TiB."""
    shape = (64, 16) if quick else (65_536, 64)
    score, learned = _additive(quick)
    tensors = tuple(drawn(*shape, dtype=torch.float32) for _ in range(3))
    return ours(tensors, (*tensors, *learned), score=score)


def training_steps(quick: bool) -> Mapping[str, Callable[[], object]]:
    """A step of the pronouncer's Transformer (`examples/pronounce`), beside PyTorch's with the same weights."""
    batch, letters, phonemes = (4, 8, 7) if quick else (256, 8, 7)
    sizes = {"d_model": 256, "nhead": 4, "num_encoder_layers": 4, "num_decoder_layers": 4, "dim_feedforward": 1024}
    options = {**sizes, "dropout": 0.25, "norm_first": True, "batch_first": True, "device": device()}
    theirs, own = torch.nn.Transformer(**options), nn.Transformer(**options)
    own.load_state_dict(theirs.state_dict())
    source, target = (torch.randn(batch, length, 256, device=device()) for length in (letters, phonemes))
    causal = torch.nn.Transformer.generate_square_subsequent_mask(phonemes, device=device())

    def step_of(model: torch.nn.Module) -> Callable[[], object]:
        optimizer = torch.optim.AdamW(model.parameters(), fused=device().type == "cuda")

        def step() -> None:
            optimizer.zero_grad()
            model(source, target, tgt_mask=causal, tgt_is_causal=True).square().mean().backward()
            optimizer.step()

        return step

    return {OURS: step_of(own), "PyTorch": step_of(theirs)}
