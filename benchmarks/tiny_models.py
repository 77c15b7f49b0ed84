"""Tiny random models of any architecture of transformers, from its configuration class alone, and inputs for them.

Default configurations are of real size. Most of their numbers are called the same in every architecture, so that they
can be made small by name; a model is then tried with several sets of names, and several inputs, until it answers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

LENGTH, BATCH = 12, 2
MOST_PARAMETERS = 30_000_000  # of a model that still counts as tiny

# What a number is set to, by what its name ends in or contains. The first that fits is taken.
SIZES: list[tuple[str, int]] = [
    (r"^(num_)?(key_value|kv)_(attention_)?heads$|num_key_value_heads$|num_kv_heads$|^n_kv_heads$", 2),
    (r"(attention_heads|_heads|^n_head|^n_heads|^num_head)$", 4),
    (r"^(num_hidden_layers|n_layer|n_layers|num_layers|.*_layers|depth|.*_depth|num_blocks|n_blocks)$", 2),
    (r"vocab_size$", 99),
    (r"^(sliding_window|attention_chunk_size|local_attention|attention_window|window_size|sliding_window_size)$", 4),
    (r"max_(source|target)_positions$", 32),
    (r"(max_position_embeddings|^n_positions|^n_ctx|max_seq_len|context_length|max_sequence_length)$", 64),
    (r"^(num_local_experts|n_routed_experts|num_experts|moe_num_experts|num_total_experts)$", 4),
    (r"(experts_per_tok|moe_topk|moe_k|num_selected_experts|experts_top_k|moe_top_k)$", 2),
    (r"^(n_group|topk_group|n_shared_experts|num_shared_experts|first_k_dense_replace|moe_layer_start_index)$", 1),
    (r"^(kv_lora_rank|q_lora_rank|o_lora_rank)$", 16),
    (r"^qk_rope_head_dim$|^rotary_dim$", 4),
    (r"head_dim$|^d_kv$|^head_size$|^index_head_dim$", 8),
    (r"(intermediate|ffn|inner|mlp|^d_ff$|feed_?forward).*(size|dim|channels)?$", 64),
    (r"^(image_size|input_size|img_size|crop_size)$", 32),
    (r"patch_size$|^patch_stride$", 8),
    (
        r"(hidden|model|embed|embd|embedding|projection|encoder|decoder|cross|out|proj|state|channel).*(size|dim|dims|channels)$",
        32,
    ),
    (r"^(d_model|n_embd|dim|hidden_dim|embed_dim|d_embed|emb_dim|width|n_hidden|feature_size|query_dim)$", 32),
]
SPARING = [
    r".*",  # everything by name
    r"^(?!.*(head_dim|head_size|d_kv|lora_rank|rotary_dim)).*$",  # but for the sizes of heads
    r"^(?!.*(image_size|patch_size|patch_stride|window)).*$",  # but for images
    r"(layers|depth|vocab_size|n_layer|positions?|position_embeddings|experts)$",  # fewer layers alone
    r"(vocab_size)$",
]


@dataclass
class Tiny:
    """A model that answers, and what it was asked."""

    model: nn.Module
    inputs: dict[str, Tensor]


class NotBuilt(Exception):
    """No tiny model of an architecture could be built and asked; the text says why."""


def build(model_type: str) -> Tiny:
    """A tiny random model of an architecture that answers an input under eager attention."""
    reasons: list[str] = []
    for sparing in SPARING:
        try:
            config = tiny_config(config_class(model_type), sparing)
            model = model_of(model_type, config)
        except Exception as error:  # whatever a constructor raises for sizes that do not fit
            reasons.append(in_short(error))
            continue
        for inputs in inputs_for(model):
            try:
                with torch.no_grad():
                    outputs = numbers_of(model(**inputs))
            except Exception as error:
                reasons.append(in_short(error))
                continue
            if outputs and all(bool(each.isfinite().all()) for each in outputs):
                return Tiny(model, inputs)
            reasons.append("its outputs are not finite numbers" if outputs else "it gives no tensor of numbers")
    raise NotBuilt((reasons[0] if reasons else "no input is known for it").removeprefix("NotBuilt: "))


def config_class(model_type: str) -> Any:
    """The configuration class of an architecture."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[model_type]


def tiny_config(kind: Any, sparing: str = ".*") -> Any:
    """The configuration of a class with small numbers, for names that fit `sparing`."""
    return kind(**_small_numbers(kind, sparing))


def _small_numbers(kind: Any, sparing: str) -> dict[str, Any]:
    default = kind()
    given: dict[str, Any] = {}
    for name in inspect.signature(kind.__init__).parameters:
        value = getattr(default, name, None)
        if name in kind.sub_configs:
            part = kind.sub_configs[name]
            made = type(value) if value is not None else part
            given[name] = _small_numbers(made, sparing) | {"model_type": made.model_type} if value is not None else None
        elif name.endswith("_token_id") and isinstance(value, int) and value >= 50:
            given[name] = 50 + len(given) % 40  # within the vocabulary, and outside of what inputs have
        elif isinstance(value, int) and not isinstance(value, bool) and re.search(sparing, name):
            small = next((size for pattern, size in SIZES if re.search(pattern, name)), value)
            given[name] = min(value, small) if value > 0 else value
    kinds = getattr(default, "layer_types", None)
    layers = next((each for each in ("num_hidden_layers", "n_layer", "num_layers") if each in given), None)
    if isinstance(kinds, list) and layers is not None:
        # One layer of each kind, and two at least.
        kept = list(dict.fromkeys(kinds)) if len(set(kinds)) > 1 else kinds[:2]
        given |= {"layer_types": kept, layers: len(kept)}
    heads, default_heads = (
        next((each[name] for name in ("num_attention_heads", "n_head", "num_heads") if name in each), None)
        for each in (given, vars(default))
    )
    for name in ("num_key_value_heads", "num_kv_heads"):
        if name in given and heads and getattr(default, name) == default_heads:
            given[name] = heads  # every head has keys of its own, as by default
    rope = getattr(default, "rope_parameters", None)
    if isinstance(rope, dict) and "mrope_section" in {*rope, *getattr(kind, "ignore_keys_at_rope_validation", ())}:
        given["rope_parameters"] = rope | {"mrope_section": [2, 1, 1]}
    return {name: value for name, value in given.items() if value is not None}


def model_of(model_type: str, config: Any) -> nn.Module:
    """A model with random weights that make attention far from uniform."""
    from transformers.models.auto import modeling_auto

    names = modeling_auto.MODEL_MAPPING_NAMES.get(model_type)
    if names is None:
        raise NotBuilt("it has no base model of its own (AutoModel does not know it)")
    import transformers

    kind = getattr(transformers, names if isinstance(names, str) else names[0])
    with torch.device("meta"):
        size = sum(each.numel() for each in kind(config).parameters())
    if size > MOST_PARAMETERS:
        raise NotBuilt(f"it has {size:,} parameters with small numbers by name")
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    model: nn.Module = kind(config).float().eval()
    stir(model)
    return model


@torch.no_grad()
def stir(model: nn.Module) -> None:
    """Give weights the size at which scores are about 1: as they are made, weights of attention are all but equal."""
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        if not weight.is_floating_point():
            continue
        noise = torch.randn(weight.shape, generator=generator)
        weight.copy_(noise / weight.shape[-1] ** 0.5 if weight.ndim >= 2 else weight + 0.1 * noise)


def inputs_for(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Inputs that a model may take, the likeliest first."""
    generator = torch.Generator().manual_seed(2)
    parameters = inspect.signature(model.forward).parameters
    tokens = torch.randint(3, 50, (BATCH, LENGTH), generator=generator)
    base: dict[str, Tensor] = {}
    if "decoder_input_ids" in parameters:
        base["decoder_input_ids"] = tokens[:, :7]

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    makers: dict[str, Callable[[], Iterator[Tensor]]] = {
        "input_ids": lambda: iter([tokens]),
        "pixel_values": lambda: (numbers(*shape) for shape in _image_shapes(model.config)),
        "pixel_values_videos": lambda: (
            numbers(BATCH, frames, *shape[1:])
            for frames in _frames(model.config)
            for shape in _image_shapes(model.config)
        ),
        "input_features": lambda: (numbers(*shape) for shape in _sound_shapes(model.config)),
        "input_values": lambda: (
            numbers(*shape) for shape in [(BATCH, 2000), (BATCH, 1, 2000), *_sound_shapes(model.config)]
        ),
        "inputs_embeds": lambda: iter([numbers(BATCH, LENGTH, getattr(model.config, "hidden_size", 32))]),
        "past_values": lambda: iter([numbers(BATCH, getattr(model.config, "context_length", 64) or 64)]),
    }
    main = getattr(model, "main_input_name", "input_ids")
    for name in dict.fromkeys([main, *makers]):
        if name in parameters and name in makers:
            for value in makers[name]():
                yield base | {name: value}
                if base:
                    yield {name: value}
    if {"input_ids", "pixel_values"} <= parameters.keys():
        for shape in _image_shapes(model.config):
            yield base | {"input_ids": tokens, "pixel_values": numbers(*shape)}


def _parts(config: Any) -> Iterator[Any]:
    yield config
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if part is not None:
            yield from _parts(part)


def _first(config: Any, *names: str, otherwise: Any) -> Any:
    """The first number of that name in a configuration or its parts."""
    found = (getattr(part, name, None) for part in _parts(config) for name in names)
    return next((each for each in found if each), otherwise)


def _image_shapes(config: Any) -> list[tuple[int, ...]]:
    size = _first(config, "image_size", "input_size", "img_size", otherwise=64)
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    channels = _first(config, "num_channels", "in_channels", "in_chans", otherwise=3)
    return [(BATCH, channels, height, width), (BATCH, channels, 64, 64), (BATCH, channels, 224, 224)]


def _frames(config: Any) -> list[int]:
    return [_first(config, "num_frames", "frames_per_clip", otherwise=4), 8]


def _sound_shapes(config: Any) -> list[tuple[int, ...]]:
    bins = _first(config, "num_mel_bins", "input_feat_per_channel", "feature_size", "n_mels", otherwise=80)
    frames = 2 * _first(config, "max_source_positions", otherwise=32)
    length = _first(config, "max_length", otherwise=64)
    wide = _first(config, "feature_projection_input_dim", otherwise=160)
    return [(BATCH, bins, frames), (BATCH, frames, bins), (BATCH, length, bins), (BATCH, frames, wide)]


def numbers_of(output: Any) -> list[Tensor]:
    """Every floating-point tensor that a model answers with, in order; not those of a cache."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, dict):
        return [each for name, value in output.items() if name != "past_key_values" for each in numbers_of(value)]
    if isinstance(output, list | tuple):
        return [each for value in output for each in numbers_of(value)]
    return []


def in_short(error: Exception) -> str:
    """The kind of an error and the first line of its text."""
    lines = str(error).strip().splitlines()
    text = re.sub(r"(/[\w.-]+){2,}/", "…/", lines[0]) if lines else ""  # where files lie is nobody's concern
    return f"{type(error).__name__}: {text[:200]}"
