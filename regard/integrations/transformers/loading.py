"""A checkpoint of transformers from a folder, on regard: checked first, so that what is wrong with it has a name."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from textwrap import shorten
from typing import Any

from torch import nn

from regard.errors import CheckpointError, MissingDependency, OptionError
from regard.integrations.transformers.hosted_layers import IMPLEMENTATION, is_attention

PICKLES = (".bin", ".pt", ".pth", ".ckpt")
INDEX = "model.safetensors.index.json"
# What `load` decides, and what would lead around its checks or give something else back than a model.
OURS = {"attn_implementation", "gguf_file", "local_files_only", "output_loading_info", "subfolder", "use_safetensors"}


def load(path: str | os.PathLike[str], *, kind: Any = None, pickles: bool = False, **options: Any) -> nn.Module:
    """The model in a folder, with its attention on regard, in eval mode; nothing is fetched from the network.

    Args:
        path: A folder with config.json and weights in safetensors, as `save_pretrained` writes it.
        kind: Which class loads it, as `transformers.AutoModelForCausalLM`; `transformers.AutoModel` if left out.
        pickles: Whether weights may be read from pickles where there are no safetensors.
        options: For `from_pretrained`, as `dtype`. `trust_remote_code=True` runs Python that the checkpoint names.

    Raises:
        CheckpointError: The folder, or a file in it, is missing, damaged, not safe to read, or of a model whose
            attention does not come to regard.

    Example:
        >>> import tempfile, transformers
        >>> from regard.integrations.transformers import load
        >>> config = transformers.BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
        >>> folder = tempfile.mkdtemp()
        >>> transformers.AutoModel.from_config(config).save_pretrained(folder)
        >>> load(folder).config._attn_implementation
        'regard'
    """
    return load_and_tell(path, kind, pickles, options)[0]


def load_and_tell(
    path: str | os.PathLike[str], kind: Any, pickles: bool, options: dict[str, Any]
) -> tuple[nn.Module, list[str]]:
    """What `load` gives, and the names of weights that the checkpoint does not have: they are random."""
    import transformers

    for name in OURS & options.keys():
        raise OptionError(f"`{name}` must be left out: got {options[name]!r}. Call from_pretrained to choose it.")
    kind = transformers.AutoModel if kind is None else kind
    if not hasattr(kind, "from_pretrained"):
        raise OptionError(f"`kind` must be a class of transformers: got {kind!r}. Pass transformers.AutoModel, say.")
    folder = Path(path).expanduser()
    _check_folder(folder)
    config = _read_json(folder / "config.json")
    _check_code(folder, config, options)
    _check_weights(folder, pickles)
    options = options | {"attn_implementation": IMPLEMENTATION, "local_files_only": True, "output_loading_info": True}
    model: nn.Module
    try:
        model, told = kind.from_pretrained(str(folder), use_safetensors=None if pickles else True, **options)
    except ImportError as error:
        raise MissingDependency(f"{folder} must have what transformers loads it with: {error}") from error
    except Exception as error:  # what files say may end anywhere in transformers
        said = f"{type(error).__name__} ({shorten(str(error), 400, placeholder=' …')})"
        raise CheckpointError(
            f"{folder} must be a checkpoint that {getattr(kind, '__name__', kind)} of transformers "
            f"{transformers.__version__} loads: got {said}. Pass another `kind`, other options, or get it again."
        ) from error
    if not any(map(is_attention, model.modules())):
        raise CheckpointError(
            f"{folder} must hold a model that follows transformers' AttentionInterface: {type(model).__name__} does "
            f"not, and its attention would not be regard's. docs/architectures.md lists those that do."
        )
    return model, sorted(told["missing_keys"])


def _check_folder(folder: Path) -> None:
    """Raise unless it is a folder with a model in it."""
    if not os.path.isdir(folder):
        got = "is a file" if os.path.isfile(folder) else f"is not there.{_near(folder.name, folder.parent)}".rstrip(".")
        raise CheckpointError(
            f"A checkpoint must be a folder on this disk: {folder} {got}. Pass the folder that holds config.json; a "
            f"name on a hub is not looked up: download it first."
        )
    if (folder / "adapter_config.json").is_file():
        # Of its own accord transformers would go on to the model that the adapter names, wherever that is.
        raise CheckpointError(
            f"A checkpoint must be a whole model: {folder} holds an adapter of PEFT. Load its model, and then "
            f"peft.PeftModel.from_pretrained(model, path)."
        )
    if not (folder / "config.json").is_file():
        inside = [file.parent for pattern in ("*", "snapshots/*") for file in folder.glob(f"{pattern}/config.json")]
        there = f" There is one in {', '.join(map(str, sorted(inside)[:3]))}." if inside else ""
        raise CheckpointError(
            f"A checkpoint must have a config.json: {folder} has none.{there}{_near('config.json', folder)} Pass a "
            f"folder that save_pretrained wrote."
        )


def _check_code(folder: Path, config: dict[str, Any], options: dict[str, Any]) -> None:
    """Raise unless transformers itself knows the model, or may run what the checkpoint brings."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if "auto_map" in config:
        if options.get("trust_remote_code") is None:
            raise CheckpointError(
                f"A checkpoint must need no Python but that of transformers: {folder / 'config.json'} names some in "
                f"its `auto_map`. Read it, and pass trust_remote_code=True to run it, or False for transformers' own."
            )
        if options["trust_remote_code"]:
            return
    got = config.get("model_type")
    if not isinstance(got, str) or got not in CONFIG_MAPPING:
        near = get_close_matches(str(got), list(CONFIG_MAPPING.keys()), 3, 0.6)
        saved = config.get("transformers_version")
        raise CheckpointError(
            f"{folder / 'config.json'} must say a `model_type` that transformers {version('transformers')} knows: got "
            f"{got!r}{f', saved by {saved}' if saved else ''}.{_listed(near)} Correct it, or upgrade transformers."
        )


def _check_weights(folder: Path, pickles: bool) -> None:
    """Raise unless there are weights that may be read, and whole."""
    from safetensors import SafetensorError, safe_open

    tensors = sorted(folder.glob("*.safetensors"))
    found = sorted(
        file.name for file in folder.iterdir() if file.suffix in PICKLES and file.name != "training_args.bin"
    )
    if (folder / INDEX).is_file():
        shards = _read_json(folder / INDEX).get("weight_map")
        if not isinstance(shards, dict) or not all(str(name).endswith(".safetensors") for name in shards.values()):
            raise CheckpointError(
                f"{folder / INDEX} must name safetensors in its `weight_map`. Get the checkpoint again."
            )
    if not tensors and not (found and pickles):
        got = f"only {', '.join(found[:3])}, which may run code as they are read" if found else "none"
        advice = "Save it with save_pretrained, or pass pickles=True if you trust it" if found else "Get it again"
        raise CheckpointError(f"A checkpoint must have weights in safetensors: {folder} has {got}. {advice}.")
    for file in tensors:
        try:
            with safe_open(file, "pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} must be a whole file: it cannot be read ({error}). Get it again.") from None


def _read_json(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} must be JSON: it cannot be read ({error}). Get the checkpoint again.") from None
    if not isinstance(read, dict):
        raise CheckpointError(f"{file} must hold names and values: got a {type(read).__name__}. Get it again.")
    return read


def _near(name: str, folder: Path) -> str:
    """A sentence with what is in a folder under a name that is near; nothing where nothing is."""
    with suppress(OSError):
        return _listed(get_close_matches(name, os.listdir(folder), 3, 0.6))
    return ""


def _listed(near: list[str]) -> str:
    return f" Near to that: {', '.join(map(repr, near))}." if near else ""
