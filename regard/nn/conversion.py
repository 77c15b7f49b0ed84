"""PyTorch's attention layers in a model, swapped for ours in place, and back: the same parameters, nothing copied."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from torch import nn

from regard.errors import OptionError
from regard.nn.decoder import DecoderLayer
from regard.nn.encoder import EncoderLayer
from regard.nn.layer_names import check_model, listed
from regard.nn.multi_head import MultiHeadAttention
from regard.scores import ScaledDot
from regard.weights import Softmax

Model = TypeVar("Model", bound=nn.Module)
_ATTENTION = (nn.MultiheadAttention, MultiHeadAttention)

# PyTorch's layer and ours, which have the same constructor, parameters and parts. Stacks of layers stay as they are:
# PyTorch's run with our layers in them.
_PAIRS: list[tuple[type[nn.Module], type[nn.Module]]] = [
    (nn.MultiheadAttention, MultiHeadAttention),
    (nn.TransformerEncoderLayer, EncoderLayer),
    (nn.TransformerDecoderLayer, DecoderLayer),
]


def convert(model: Model, to: Literal["regard", "torch"] = "regard") -> Model:
    """The model with PyTorch's attention layers swapped for ours in place, or ours for PyTorch's.

    Every `MultiheadAttention`, `TransformerEncoderLayer` and `TransformerDecoderLayer` becomes the layer of regard.nn:
    its weights can be recorded, and it may be given another score, rule or mask. Parameters are the same objects, so
    that optimizers and checkpoints go on; parts, hooks and modes are kept. Subclasses, and layers with other parts,
    parameters or attributes than they were made with, are left as they are, since they may compute something else; the
    attention in them is not. What is converted already stays so.

    Args:
        model: Any module. It is returned, changed; or what stands in its place, if it is itself such a layer.
        to: "torch" swaps back. Layers that have a score, rule, mask or shared heads by then cannot be PyTorch's.

    Example:
        >>> import torch
        >>> from regard import Entmax, nn
        >>> layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        >>> model = nn.convert(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)).eval()
        >>> model.layers[1].self_attn.weights = Entmax(1.5)
        >>> with nn.record(model) as seen:
        ...     output = model(torch.rand(2, 5, 16))
        >>> seen["layers.1"].shape
        (2, 4, 5, 5)
    """
    check_model(model)
    if to not in ("regard", "torch"):
        raise OptionError(f'`to` must be "regard" or "torch": got {to!r}. Leave it out for the layers of regard.nn.')
    table = dict(_PAIRS) if to == "regard" else {ours: theirs for theirs, ours in _PAIRS}
    if to == "torch":
        _check_plain(model)
    kinds = {type(module) for module in model.modules()}
    if not any(type(module) in table and _is_whole(module) for module in model.modules()):
        if kinds & set(table.values()):
            return model
        wanted = listed([f"{'torch' if to == 'regard' else 'regard'}.nn.{kind.__name__}" for kind in table])
        raise OptionError(
            f"{type(model).__name__} must have layers to convert, as they were made: got none of {wanted}. Subclasses "
            f"and changed layers are not converted; put layers of regard.nn in their place by hand. Models of "
            f'transformers are not converted: see regard.integrations.transformers, attn_implementation="regard".'
        )
    made: dict[int, nn.Module] = {}  # one for each, also where a layer is used twice

    def swapped(module: nn.Module) -> nn.Module:
        if id(module) not in made:
            for name, child in list(module._modules.items()):
                if child is not None:
                    module._modules[name] = swapped(child)
            kind = table.get(type(module))
            made[id(module)] = module if kind is None or not _is_whole(module) else _swap(module, kind)
        return made[id(module)]

    return swapped(model)  # type: ignore[return-value]


def _swap(old: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """A layer of the other library with the parameters and parts of this one."""
    attention = isinstance(old, _ATTENTION)
    new = _made_anew(kind, old)
    if attention:
        new._parameters.update(old._parameters)
        new._modules["out_proj"] = old._modules["out_proj"]
    else:
        new._modules.update(old._modules)
    # Hooks are kept in dictionaries whose names say so; who registered them holds the same dictionaries.
    new.__dict__.update({name: value for name, value in vars(old).items() if "_hook" in name})
    new.training = old.training
    if attention:
        new.train(old.training)  # the score and the rule were just made; parts of a layer have their own modes
    return new


def _is_whole(layer: Any) -> bool:
    """Whether a layer has the parts, parameters and attributes that it was made with, and no others."""
    if isinstance(layer, _ATTENTION):
        projection = type(layer._modules.get("out_proj"))
        if not issubclass(projection, nn.Linear) or projection.__module__ != "torch.nn.modules.linear":
            return False
    elif not (
        isinstance(layer.self_attn, _ATTENTION)
        and all(type(each) is nn.Linear for each in (layer.linear1, layer.linear2))
        and all(type(each) is nn.LayerNorm for each in (layer.norm1, layer.norm2))
        and type(layer.dropout) is nn.Dropout
    ):
        return False
    like = _made_anew(type(layer), layer)
    same = all(
        getattr(layer, part).keys() == getattr(like, part).keys() for part in ("_parameters", "_buffers", "_modules")
    )
    return same and vars(layer).keys() == vars(like).keys() and not _is_changed(layer)


def _is_changed(layer: nn.Module) -> bool:
    """Whether weights of a layer's own parts are computed from others, as by torch.nn.utils.parametrize."""
    linears = [each for each in layer._modules.values() if isinstance(each, nn.Linear)]
    return any(set(each._parameters) != {"weight", "bias"} or each._modules for each in linears)


def _made_anew(kind: type[nn.Module], like: nn.Module) -> nn.Module:
    """A layer of a kind with the arguments of another, without memory."""
    arguments = _attention_arguments(like) if isinstance(like, _ATTENTION) else _layer_arguments(like)
    return kind(**arguments, device="meta")


def _attention_arguments(layer: Any) -> dict[str, Any]:
    return {
        "embed_dim": layer.embed_dim,
        "num_heads": layer.num_heads,
        "dropout": layer.dropout,
        "bias": layer.in_proj_bias is not None,
        "add_bias_kv": layer.bias_k is not None,
        "add_zero_attn": layer.add_zero_attn,
        "kdim": layer.kdim,
        "vdim": layer.vdim,
        "batch_first": layer.batch_first,
    }


def _layer_arguments(layer: Any) -> dict[str, Any]:
    return {
        "d_model": layer.linear1.in_features,
        "nhead": layer.self_attn.num_heads,
        "dim_feedforward": layer.linear1.out_features,
        "dropout": layer.dropout.p,
        "activation": layer.activation,
        "layer_norm_eps": layer.norm1.eps,
        "batch_first": layer.self_attn.batch_first,
        "norm_first": layer.norm_first,
        "bias": layer.linear1.bias is not None,
    }


def _check_plain(model: nn.Module) -> None:
    """Raise for layers that compute what PyTorch's do not."""
    for name, layer in model.named_modules():
        if type(layer) is not MultiHeadAttention:
            continue
        score, rule = layer.score, layer.weights
        plain_score = type(score) is ScaledDot and score.scale is None
        plain_rule = type(rule) is Softmax and rule.sink is None and rule.factor == 1.0
        reasons = [
            *([] if plain_score else [f"the score {score}"]),
            *([] if plain_rule else [f"the rule {rule}"]),
            *([] if layer.mask is None else [f"the mask {layer.mask}"]),
            *([] if layer.num_kv_heads == layer.num_heads else [f"{layer.num_kv_heads} heads of keys"]),
            *([] if layer.rotary is None else ["rotary positions"]),
        ]
        if reasons:
            raise OptionError(
                f"{name or type(layer).__name__} must be plain to become PyTorch's: got {' and '.join(reasons)}. "
                f"Take that away first, or keep the layer."
            )
