"""What is in the folder of a checkpoint: its configuration, Python and weights, checked before they are read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from textwrap import shorten
from typing import Any

from regard.errors import CheckpointError

PICKLES = (".bin", ".pt", ".pth", ".ckpt")
OTHERS = (".gguf", ".h5", ".msgpack", ".onnx", ".ot", ".tflite")  # weights that are not read here
LFS = b"version https://git-lfs"  # how a file begins that stands for another
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # or an index of that name, which lists several files
MOST_CONFIG_BYTES, MOST_LEVELS = 10_000_000, 100
# Entries of config.json by which transformers would read other files than those that are checked.
ELSEWHERE = ("configuration_files", "transformers_weights")


def read_config(file: Path) -> dict[str, Any]:
    """What config.json says; raises where it would have transformers read, or fetch, what is not checked."""
    if (size := file.stat().st_size) > MOST_CONFIG_BYTES:
        raise CheckpointError(
            f"{file} must be a configuration, of {MOST_CONFIG_BYTES:,} bytes at most: it has {size:,}. Get it again."
        )
    config = _read_json(file)
    for name, got in list(_entries(file, config)):
        # A name with a slash is that of a kernel on a hub; any other gives way to regard.
        fetched = "attn_implementation" in name and "/" in json.dumps(got)
        if fetched or (name in ELSEWHERE and got is not None):
            raise CheckpointError(
                f"{file} must not lead to other files: got {name!r}: {shorten(repr(got), 100, placeholder=' …')}. "
                f"Remove that entry."
            )
    return config


def _entries(file: Path, config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, value) of everything in a configuration, and in those inside it."""
    level: list[Any] = [config]
    for _ in range(MOST_LEVELS):
        names = [each for each in level if isinstance(each, dict)]
        yield from (entry for each in names for entry in each.items())
        lists = [each for each in level if isinstance(each, list)]
        level = [part for each in names for part in each.values()] + [part for each in lists for part in each]
    if level:
        raise CheckpointError(f"{file} must be nested at most {MOST_LEVELS} deep: it is deeper. Get it again.")


def check_folder(folder: Path) -> None:
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


def check_code(folder: Path, config: dict[str, Any], options: dict[str, Any]) -> None:
    """Raise unless transformers itself knows the model, or may run what the checkpoint brings."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if config.get("auto_map", ()) is None:  # which transformers does not read
        raise CheckpointError(
            f"{folder / 'config.json'} must name classes in its `auto_map`: got None. Remove that entry."
        )
    if config.get("auto_map"):
        if options.get("trust_remote_code") is None:
            raise CheckpointError(
                f"A checkpoint must need no Python but that of transformers: {folder / 'config.json'} names some in "
                f"its `auto_map`. Read it, and pass trust_remote_code=True to run it, or False for transformers' own."
            )
        if options["trust_remote_code"]:
            if "--" in json.dumps(config["auto_map"]):
                raise CheckpointError(
                    f"A checkpoint must bring its Python itself: {folder / 'config.json'} names that of another "
                    f"repository in its `auto_map`, {config['auto_map']}. Copy it into the folder, and name it there."
                )
            return
    got = config.get("model_type")
    if not isinstance(got, str) or got not in CONFIG_MAPPING:
        near = get_close_matches(str(got), list(CONFIG_MAPPING.keys()), 3, 0.6)
        saved = config.get("transformers_version")
        raise CheckpointError(
            f"{folder / 'config.json'} must say a `model_type` that transformers {version('transformers')} knows: got "
            f"{got!r}{f', saved by {saved}' if saved else ''}.{_listed(near)} Correct it, or upgrade transformers."
        )


def check_weights(folder: Path, variant: str | None, pickles: bool) -> list[Path]:
    """The files that weights will be read from; raises unless they may be read, and are whole."""
    from safetensors import SafetensorError, safe_open

    for index in sorted(folder.glob("*.index*.json")):
        if index.name.startswith(WEIGHTS):
            _check_index(index)
    files = _weights(folder, variant, pickles)
    if not files:
        found, others = (
            sorted(file.name for file in folder.iterdir() if file.suffix in of and file.name != "training_args.bin")
            for of in (PICKLES, OTHERS)
        )
        got = f"only {', '.join(found[:3])}, which may run code as they are read" if found else "none"
        advice = "Save it with save_pretrained, or pass pickles=True if you trust it" if found else "Get it again"
        if found and pickles:
            got, advice = f"{', '.join(found[:3])} alone", f"transformers reads {' or '.join(WEIGHTS)}: rename it"
        if others and not found:
            got = f"only {', '.join(others[:3])}, which transformers reads otherwise, or not at all"
            advice = "Get the safetensors, or convert it and save it with save_pretrained"
        raise CheckpointError(
            f"A checkpoint must have weights in safetensors{f' of variant {variant!r}' if variant else ''}: {folder} "
            f"has {got}. {advice}."
        )
    for file in files:
        try:
            if file.suffix == ".safetensors":
                with safe_open(file, "pt"):
                    pass
        except (SafetensorError, OSError) as error:
            with suppress(OSError), open(file, "rb") as opened:
                if opened.read(len(LFS)) == LFS:
                    raise CheckpointError(
                        f"{file} must be a whole file: it is a pointer of git-lfs to one. Get that with: git lfs pull."
                    ) from None
            raise CheckpointError(f"{file} must be a whole file: it cannot be read ({error}). Get it again.") from None
    return files


def _check_index(index: Path) -> None:
    """Raise unless it names files of its folder; in one of safetensors, those alone."""
    names = _read_json(index).get("weight_map")
    names = sorted(set(map(str, names.values()))) if isinstance(names, dict) else [""]
    if ".safetensors." in index.name and not all(name.endswith(".safetensors") for name in names):
        raise CheckpointError(f"{index} must name safetensors in its `weight_map`. Get the checkpoint again.")
    inside = os.path.abspath(index.parent)  # by name: files of a cache are links to others
    for name in names:
        if not Path(os.path.abspath(index.parent / name)).is_relative_to(inside):
            raise CheckpointError(
                f"{index} must name files of its folder: got {name!r} in its `weight_map`. Get the checkpoint again."
            )


def _weights(folder: Path, variant: str | None, pickles: bool) -> list[Path]:
    """The files that transformers will read weights from; none where there are none of the names it knows."""
    # Of a distributed checkpoint it reads all.
    if any(re.match(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors$", name) for name in os.listdir(folder)):
        return sorted(folder.glob("*.safetensors"))
    for name in WEIGHTS[: 1 + pickles]:
        for each in (name, f"{name}.index.json"):
            file = folder / (each if variant is None else f".{variant}.".join(each.rsplit(".", 1)))
            if file.is_file():
                shards = [file.name] if each is name else _read_json(file)["weight_map"].values()
                return [folder / shard for shard in sorted(set(map(str, shards)))]
    return []


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
