"""Another rule, score or scope for the attention of a model's layers, with parameters that train and are saved."""

from __future__ import annotations

import copy
import re
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError, OptionError
from regard.grid import Align
from regard.integrations.transformers.hosted_layers import IMPLEMENTATION, implementation_of, is_attention
from regard.integrations.transformers.placing import (
    UNKNOWN,
    Unknown,
    check_moves,
    is_positional,
    moving,
    placed_mask,
    placed_score,
)
from regard.masks import Mask
from regard.nn.layer_names import Layers, check_model, choose_layers, find_layers
from regard.scores import ScaledDot, Score
from regard.validation import check_options
from regard.weights import Softmax, Weights

NAME = "regard"  # of the submodule that a layer keeps its replacement under, and so of its entries in a checkpoint
DESCRIPTION = "description"  # and of the entry there that says what was replaced


class Replacement(nn.Module):
    """What a layer's attention uses in place of its own, or besides: None keeps what the model has.

    A checkpoint has a description of it beside its parameters, so that a rule without any is noticed, too.
    """

    description: Tensor

    def __init__(self, score: Score | None, weights: Weights | None, mask: Mask | None) -> None:
        super().__init__()
        self.score, self.weights, self.mask = score, weights, mask
        given = {"score": score, "weights": weights, "mask": mask}
        self.told = "; ".join(f"{name}={_told(each)}" for name, each in given.items() if each is not None)
        self.register_buffer(DESCRIPTION, torch.tensor(list(self.told.encode()), dtype=torch.uint8, device="cpu"))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        said = state_dict.get(f"{prefix}{DESCRIPTION}")
        if said is not None and not said.is_meta and as_text(said) != self.told:
            raise CheckpointError(
                f"{prefix.removesuffix('.')} must be what the checkpoint was saved with, {as_text(said)}: got "
                f"{self.told}. Replace the same, load, and replace again for another."
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    @property
    def active(self) -> Replacement:
        """Itself. What wraps it, as PEFT does to save it with an adapter, answers with what is then in use."""
        return self

    def score_at(self, align: Align | Unknown) -> Score | None:
        """The score, its positional terms where the queries of a call stand among keys."""
        return None if self.score is None else placed_score(self.score, align)

    def mask_on(self, device: torch.device, align: Align | Unknown) -> Mask | None:
        """The mask with its tensors on a device, placed where the queries of a call stand among keys."""
        return None if self.mask is None else placed_mask(self.mask, align).to(device)

    def check_align(self, owner: str, align: Align | Unknown) -> None:
        """Raise where queries stand at a place that a positional mask or score cannot be told of."""
        if align == UNKNOWN and is_positional(self.score, self.mask):
            raise OptionError(
                f"A positional score or mask must know where queries stand among keys: {owner} has not as many of "
                f"each, and was called with a tensor as its mask, or attends to another sequence. Use a dynamic "
                f"cache or none, leave the mask to the model, and name in layers= those that attend to their own."
            )


def replacement_of(module: nn.Module) -> Replacement | None:
    """What was put in place of a layer's own rule, score or scope."""
    found = getattr(module._modules.get(NAME), "active", None)
    return found if isinstance(found, Replacement) else None


def replace(
    model: nn.Module,
    *,
    weights: Weights | None = None,
    score: Score | None = None,
    mask: Mask | None = None,
    layers: Layers = None,
) -> None:
    """Give the attention of a model's layers another rule, another score, or a narrower scope.

    What is learned in them (an entmax's α, a gate, a sink) are parameters of the model from then on: `parameters()`
    has them, and so has its checkpoint, under the name of the layer and `regard`, with a description of what was
    replaced. Each layer has its own copy. `load(folder, replace=function)` loads such a checkpoint.

    What a layer has besides stays: its masks, its biases by position, its dropout. Calling it again for a layer changes
    what is given and keeps the rest.

    Args:
        model: A model of transformers that runs with `attn_implementation="regard"`.
        weights: How scores become weights, in place of the model's softmax, and of its sinks where it has some.
        score: a(q, k), in place of the model's scaled dot product, of its `scaling`, and of its soft cap where it has
            one.
        mask: Which keys a query may attend to, besides what the model allows. Positional scores and masks stand where
            the queries of a call do, also with a cache: `align` is left out.
        layers: Names or numbers of layers, or names of what holds them, as "encoder.layer.3"; all if left out.

    Example:
        >>> import torch, transformers
        >>> from regard import Entmax
        >>> from regard.integrations.transformers import replace, restore
        >>> config = transformers.BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
        >>> model = transformers.AutoModel.from_config(config, attn_implementation="regard")
        >>> replace(model, weights=Entmax(torch.nn.Parameter(torch.tensor(1.5))), layers="encoder.layer.1")
        >>> [name for name, _ in model.named_parameters() if "regard" in name]
        ['encoder.layer.1.attention.self.regard.weights.alpha']
        >>> restore(model)
        >>> [name for name in model.state_dict() if "regard" in name]
        []
    """
    if weights is None and score is None and mask is None:
        raise OptionError("`weights`, `score` or `mask` must be given: got none. Pass what layers are to use instead.")
    check_options(ScaledDot() if score is None else score, Softmax() if weights is None else weights, mask)
    check_moves(score, mask)
    chosen = choose_layers(model, layers, "replace")
    for name, layer in chosen.items():
        if not is_attention(layer):
            raise OptionError(
                f"`layers` must name layers of transformers: {name} is a {type(layer).__name__} of regard.nn. "
                f"Set its score, weights or mask itself."
            )
        held = layer._modules.get(NAME)
        if not isinstance(held, Replacement | None):
            raise OptionError(
                f"`layers` must hold their replacement themselves: {name} has it in a {type(held).__name__}. "
                f"Replace before peft.get_peft_model wraps the model, or restore(model) first."
            )
    for layer in chosen.values():
        had = replacement_of(layer) or Replacement(None, None, None)
        given = Replacement(
            had.score if score is None else moving(score),
            had.weights if weights is None else copy.deepcopy(weights),
            had.mask if mask is None else mask,
        )
        like = next((each for each in layer.parameters() if each.is_floating_point()), torch.empty(0))
        if given.score is not None:
            given.score.to(like.dtype)  # it computes with queries and keys; a rule computes in float32
        layer.register_module(NAME, given.to(like.device).train(layer.training))
        if _check_runs not in layer._forward_pre_hooks.values():
            layer.register_forward_pre_hook(_check_runs)


def as_text(description: Tensor) -> str:
    """What the entry of a checkpoint says."""
    return bytes(description.tolist()).decode(errors="replace")


def _told(part: object) -> str:
    """A repr on one line, the same in every process: without addresses."""
    return " ".join(re.sub(r" at 0x[0-9a-fA-F]+", "", repr(part)).split())


def _check_runs(layer: nn.Module, inputs: object) -> None:
    """Raise where another attention would leave out what was replaced."""
    got = implementation_of(layer)
    if got not in (IMPLEMENTATION, None):
        raise OptionError(
            f'A layer with a replaced rule, score or mask must run with attn_implementation="{IMPLEMENTATION}": got '
            f'"{got}", which knows nothing of it. Call restore(model) first, or set_attn_implementation back.'
        )


def restore(model: nn.Module, layers: Layers = None) -> None:
    """Take back what `replace` gave: layers have their own rule, score and scope again.

    Where nothing was replaced, nothing is taken back: any model may be handed in.

    Args:
        model: A model of transformers, whichever attention it runs with.
        layers: As for `replace`; all if left out.
    """
    check_model(model)
    chosen = find_layers(model) if layers is None else choose_layers(model, layers, "restore", running=False)
    for layer in chosen.values():
        if replacement_of(layer) is not None:
            del layer._modules[NAME]
            for key in [key for key, hook in layer._forward_pre_hooks.items() if hook is _check_runs]:
                del layer._forward_pre_hooks[key]
