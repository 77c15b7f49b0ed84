"""Layers beside PyTorch's own, and a pre-trained encoder beside transformers': contests as in `contests.py`."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from benchmarks.contests import OURS, Size
from benchmarks.peers import Call
from regard import nn

HEADS = 8
TOP = 8  # keys of each query that are reported
PYTORCH = "PyTorch"
SENTENCE = "the dog saw its owner and was happy so it wagged a tail while rain fell over an old town"


def draw(size: Size) -> Tensor:
    """Tokens `(batch, n, dim)`, wanting gradients."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*size.lead, size.n_queries, size.dim, generator=generator).requires_grad_()


def pair(ours: type[torch.nn.Module], theirs: type[torch.nn.Module], *sizes: Any, **options: Any) -> list[Any]:
    """Our layer and PyTorch's, with the same parameters."""
    layers = [kind(*sizes, batch_first=True, **options) for kind in (ours, theirs)]
    layers[0].load_state_dict(layers[1].state_dict())
    return layers


def multi_head(size: Size) -> dict[str, Call]:
    x = draw(size)
    calls = {}
    layers = pair(nn.MultiHeadAttention, torch.nn.MultiheadAttention, size.dim, HEADS)
    for name, layer in zip((OURS, PYTORCH), layers, strict=True):
        calls[name] = Call(functools.partial(_pooled, layer, x), (x, *layer.parameters()))
    return calls


def _pooled(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer(x, x, x, need_weights=False)[0]
    return output


def multi_head_weights(size: Size) -> dict[str, Call]:
    """Output and weights of every head: of ours the heaviest keys of each query, of PyTorch's all of them.

    PyTorch averages weights over heads unless told not to, which takes longer: the faster way is compared with.
    """
    x = draw(size)
    ours, theirs = pair(nn.MultiHeadAttention, torch.nn.MultiheadAttention, size.dim, HEADS)

    def look() -> tuple[Tensor, ...]:
        output, view = ours.attend_and_weigh(x, x, x, top=TOP)
        return output, view.top(TOP).weights

    def look_at_all() -> tuple[Tensor, ...]:
        output, weights = theirs(x, x, x, average_attn_weights=False)
        return output, weights.topk(TOP).values

    return {
        OURS: Call(look),
        "PyTorch, then top 8": Call(look_at_all),
        PYTORCH: Call(lambda: theirs(x, x, x, average_attn_weights=False), same=False),
        "PyTorch, no weights": Call(functools.partial(_pooled, theirs, x), same=False),
    }


def encoder(size: Size) -> dict[str, Call]:
    """An encoder of two layers in training mode."""
    x = draw(size)
    calls = {}
    layers = pair(nn.EncoderLayer, torch.nn.TransformerEncoderLayer, size.dim, HEADS, 4 * size.dim, dropout=0.0)
    stacks = (nn.Encoder(layers[0], 2), torch.nn.TransformerEncoder(layers[1], 2, enable_nested_tensor=False))
    for name, stack in zip((OURS, PYTORCH), stacks, strict=True):
        calls[name] = Call(functools.partial(stack, x), (x, *stack.parameters()))
    return calls


def sentences(size: Size) -> dict[str, Call]:
    """States of so many sentences of a few to two dozen words, in one batch."""
    from transformers import BertModel

    from regard.text.sentence import SentenceEncoder, installed_folder

    words = SENTENCE.split()
    texts = [" ".join(words[(i + j) % len(words)] for j in range(4 + i % 20)) for i in range(size.n_queries)]
    ours = SentenceEncoder.load()
    theirs = BertModel.from_pretrained(installed_folder(), attn_implementation="sdpa", local_files_only=True).eval()
    pieces = [ours.pieces(text).numbers for text in texts]
    longest = max(map(len, pieces))
    numbers = torch.tensor([[*each, *[0] * (longest - len(each))] for each in pieces])
    visible = torch.tensor([[1] * len(each) + [0] * (longest - len(each)) for each in pieces])

    def our_states() -> Tensor:
        return ours(texts)[0] * visible[..., None]

    def their_states() -> Tensor:
        states: Tensor = theirs(numbers, attention_mask=visible).last_hidden_state
        return states * visible[..., None]

    return {OURS: Call(our_states), "transformers": Call(their_states)}
