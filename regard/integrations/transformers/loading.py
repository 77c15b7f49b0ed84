"""A checkpoint of transformers from a folder, on regard: checked first, so that what is wrong with it has a name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten
from typing import Any

from torch import nn

from regard.errors import CheckpointError, MissingDependency, OptionError
from regard.integrations.transformers.checkpoint_folder import check_code, check_folder, check_weights, read_config
from regard.integrations.transformers.hosted_layers import IMPLEMENTATION, implementation_of, is_attention
from regard.integrations.transformers.replaced_weights import load_replaced

# What `load` decides, and what would lead around its checks or give something else back than a model.
OURS = {
    "adapter_kwargs",
    "attn_implementation",
    "config",
    "gguf_file",
    "local_files_only",
    "output_loading_info",
    "state_dict",
    "subfolder",
    "transformers_weights",
    "use_safetensors",
}


def load(
    path: str | os.PathLike[str],
    *,
    kind: Any = None,
    pickles: bool = False,
    replace: Callable[[Any], object] | None = None,
    **options: Any,
) -> nn.Module:
    """The model in a folder, with its attention on regard, in eval mode; nothing is fetched from the network.

    Args:
        path: A folder with config.json and weights in safetensors, as `save_pretrained` writes it.
        kind: Which class loads it, as `transformers.AutoModelForCausalLM`; `transformers.AutoModel` if left out.
        pickles: Whether weights may be read from pickles where there are no safetensors.
        replace: What is called with the model before replaced parts are read, to replace what the checkpoint was saved
            with: a function that calls `regard.integrations.transformers.replace`.
        options: For `from_pretrained`, as `dtype`. `trust_remote_code=True` runs Python that the checkpoint names.

    Raises:
        CheckpointError: The folder, or a file in it, is missing, damaged, not safe to read, or of a model whose
            attention does not come to regard; or it was saved with replaced parts, and nothing takes them.

    Example:
        >>> import tempfile, transformers
        >>> from regard.integrations.transformers import load
        >>> config = transformers.BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
        >>> folder = tempfile.mkdtemp()
        >>> transformers.AutoModel.from_config(config).save_pretrained(folder)
        >>> load(folder).config._attn_implementation
        'regard'
    """
    import transformers

    _check_options(options, pickles)
    kind = transformers.AutoModel if kind is None else kind
    # Those that choose a class by the configuration have a table of them.
    makes_models = isinstance(kind, type) and (issubclass(kind, nn.Module) or hasattr(kind, "_model_mapping"))
    if not makes_models or not hasattr(kind, "from_pretrained"):
        raise OptionError(
            f"`kind` must be a class of transformers that makes models: got {kind!r}. Pass transformers.AutoModel, say."
        )
    if replace is not None and (not callable(replace) or isinstance(replace, nn.Module)):
        raise OptionError(
            f"`replace` must be a function of the model: got {type(replace).__name__}. Pass one that calls "
            f"regard.integrations.transformers.replace on it."
        )
    folder = _folder(path)
    check_folder(folder)
    config = read_config(folder / "config.json")
    check_code(folder, config, options)
    _check_kind(folder, config, kind)
    files = check_weights(folder, options.get("variant"), pickles)
    # The second name is for what config.json says under it, which would win otherwise.
    options |= dict.fromkeys(("attn_implementation", "_attn_implementation"), IMPLEMENTATION)
    options |= {"local_files_only": True, "output_loading_info": True}
    try:
        model, info = kind.from_pretrained(str(folder), use_safetensors=None if pickles else True, **options)
    except ImportError as error:
        raise MissingDependency(f"{folder} must have what transformers loads it with: {error}") from error
    except Exception as error:  # what files say may end anywhere in transformers
        said = f"{type(error).__name__} ({shorten(str(error), 400, placeholder=' …')})"
        raise CheckpointError(
            f"{folder} must be a checkpoint that {kind.__name__} of transformers {transformers.__version__} loads: "
            f"got {said}. Pass another `kind`, other options, or get it again."
        ) from error
    _check_attention(folder, model)
    _check_loaded(folder, model, info)
    if replace is not None:
        replace(model)
    load_replaced(folder, files, model)
    return model  # type: ignore[no-any-return]


def _check_options(options: dict[str, Any], pickles: bool) -> None:
    """Raise where an option would undo what is checked."""
    for name, got in options.items():
        if name in OURS or "attn_implementation" in name:
            raise OptionError(f"`{name}` must be left out: got {got!r}. Call from_pretrained to choose it.")
        if near := get_close_matches(name, ("kind", "pickles", "replace"), 1, 0.8):
            raise OptionError(
                f"`{name}` is no option of load(), nor of from_pretrained: pass {near[0]}=, if it is that."
            )
    if "weights_only" in options and not pickles:
        raise OptionError(
            f"`weights_only` must be left out where no pickles are read: got {options['weights_only']!r}. Pass "
            f"pickles=True with it."
        )


def _folder(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str) or not os.fspath(path):
        raise OptionError(f"`path` must name a folder, as text or a pathlib.Path: got {path!r}. Pass where it is.")
    with suppress(RuntimeError):  # of a user that nobody knows: then that is no folder
        return Path(path).expanduser()
    return Path(path)


def _check_kind(folder: Path, config: dict[str, Any], kind: Any) -> None:
    """Raise if it is a class for models of another type, or of no part of this one."""
    wanted = getattr(getattr(kind, "config_class", None), "model_type", None)
    parts = [part.get("model_type") for part in (config, *config.values()) if isinstance(part, dict)]
    if wanted and wanted not in parts:
        raise CheckpointError(
            f"{folder} must be of the `model_type` that {kind.__name__} is for, {wanted!r}: its config.json says "
            f"{config.get('model_type')!r}. Pass a `kind` for that, or transformers.AutoModel."
        )


def _check_attention(folder: Path, model: nn.Module) -> None:
    """Raise unless all attention of a model comes to regard."""
    attentions = [module for module in model.modules() if is_attention(module)]
    if not attentions and getattr(getattr(model, "config", None), "num_hidden_layers", None) == 0:
        raise CheckpointError(
            f"{folder} must hold a model with layers: its config.json says that `num_hidden_layers` is 0. Correct it, "
            f"or call from_pretrained, since no attention is there to run on regard."
        )
    if not attentions:
        raise CheckpointError(
            f"{folder} must hold a model that follows transformers' AttentionInterface: {type(model).__name__} does "
            f"not, and its attention would not be regard's. docs/architectures.md lists those that do."
        )
    for module in attentions:
        if (got := implementation_of(module)) not in (IMPLEMENTATION, None):
            raise CheckpointError(
                f"{folder} must hold a model whose attention is all on {IMPLEMENTATION}: {type(module).__name__} has "
                f"{got!r}. Remove that from its config.json, or from the Python that it brings."
            )


def _check_loaded(folder: Path, model: nn.Module, info: dict[str, Any]) -> None:
    """Raise if weights of a layer with attention are random, since no file has them; a head may be."""
    layers = {_layer_of(name) for name, module in model.named_modules() if is_attention(module)}
    mismatched = {name for name, *_ in info["mismatched_keys"]}
    random = sorted(name for name in mismatched | set(info["missing_keys"]) if any(map(name.startswith, layers)))
    if random:
        other = sorted(info["unexpected_keys"])[:1]
        raise CheckpointError(
            f"{folder} must have the weights of every layer: {len(random)} of {type(model).__name__} are missing or of "
            f"another shape, as {random[0]}{f'; it has others, as {other[0]}' if other else ''}. Pass the `kind` that "
            f"saved it, or get it again."
        )


def _layer_of(name: str) -> str:
    """How the names in the layer begin that an attention belongs to: up to the first number, or all of its own."""
    found = re.match(r"(?:[^.]*[^.\d][^.]*\.)*\d+(?=\.|$)", name)
    return f"{name if found is None else found[0]}."
