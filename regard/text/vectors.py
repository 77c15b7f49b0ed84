"""Words as vectors, learned from what stands near them: lookup, neighbours, analogies, and a database of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from regard.database import Database
from regard.database.lookup import nearest
from regard.database.python_columns import column_from
from regard.errors import DtypeError, MissingDependency, MissingKey, OptionError, ShapeError
from regard.scores import Cosine
from regard.scores.cosine import unit
from regard.text.vector_files import Format, OnBad, read_vectors

SHIPPED = Path(__file__).parent / "data" / "words.safetensors"

TEMPERATURE = 0.05
"""Of the cosine in a database of words: a word 0.05 nearer weighs e times as much."""


class Neighbour(NamedTuple):
    """A word, and the cosine of the angle between its vector and the one that was asked about."""

    word: str
    similarity: float


class WordVectors:
    """Words and their vectors.

    Args:
        words: Each once.
        vectors: `(n_words, dim)`, one for each word.

    Example:
        >>> from regard.text import WordVectors
        >>> vectors = WordVectors.load()
        >>> [each.word for each in vectors.neighbours("dog", 3)]
        ['cat', 'dogs', 'horse']
        >>> vectors.analogy(plus=["king", "woman"], minus=["man"])[0].word
        'queen'
    """

    def __init__(self, words: Iterable[str], vectors: Tensor) -> None:
        self.words = list(words)
        if vectors.ndim != 2 or len(vectors) != len(self.words):
            raise ShapeError(
                f"`vectors` must have a row for each word: got {tuple(vectors.shape)} for {len(self.words)} words."
            )
        if not vectors.is_floating_point():
            raise DtypeError(f"`vectors` must be floating-point numbers: got {vectors.dtype}. Pass .float().")
        self.vectors = vectors.detach()
        self._place_of = {word: place for place, word in enumerate(self.words)}
        if len(self._place_of) < len(self.words):
            twice = next(word for place, word in enumerate(self.words) if self._place_of[word] != place)
            raise OptionError(f"`words` must have each word once: got {twice!r} again. Leave out what is repeated.")

    @classmethod
    def load(cls) -> Self:
        """The vectors that come with regard: the most frequent words of English, in 100 numbers each.

        They are GloVe's (see `regard/text/data/README.md`).
        """
        try:
            from safetensors.torch import load_file
        except ImportError:
            raise MissingDependency(
                "Word vectors need safetensors. Install it with: pip install 'regard[text]'"
            ) from None
        stored = load_file(str(SHIPPED))
        words = bytes(stored["words"].tolist()).decode("utf-8").split("\n")
        return cls(words, stored["vectors"].float() * stored["scales"].float()[:, None])

    @classmethod
    def read(
        cls, path: str | Path, *, format: Format = "auto", limit: int | None = None, on_bad: OnBad = "raise"
    ) -> Self:
        """The vectors in a file of GloVe's or word2vec's, which may be gzipped.

        Args:
            path: The file.
            format: "glove", "word2vec" (text), "binary" (word2vec's), or "auto" to see which it is.
            limit: How many words to read at most; files have the most frequent first.
            on_bad: "raise" at the first line that is no word and its vector, or "skip" them with a warning.

        Raises:
            TableError: A line is bad; the text says which and why.

        Example:
            >>> import tempfile, pathlib
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     file = pathlib.Path(folder) / "two.txt"
            ...     _ = file.write_text("cat 1.0 0.5\\ndog 0.5 1.0\\n")
            ...     WordVectors.read(file)["dog"]
            tensor([0.5000, 1.0000])
        """
        return cls(*read_vectors(path, format, limit, on_bad))

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return int(self.vectors.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and word in self._place_of

    def __getitem__(self, word: str | Sequence[str]) -> Tensor:
        """The vector of a word, `(dim,)`; of a list of words, `(n, dim)`.

        Raises:
            MissingKey: There is no such word; the text names some that are spelled like it.
        """
        if isinstance(word, str):
            return self.vectors[self._place(word)]
        return self.vectors[[self._place(each) for each in word]]

    def similarity(self, word: str, other: str) -> float:
        """The cosine of the angle between the vectors of two words: 1 for the same direction."""
        return float(self._units[self._place(word)] @ self._units[self._place(other)])

    def neighbours(self, word: str | Tensor | Sequence[float], k: int = 10) -> list[Neighbour]:
        """The k words whose vectors point most nearly where that of a word points, or a given vector.

        The word itself is not among them.

        Example:
            >>> pets = WordVectors(["cat", "dog", "car"], torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.0, 1.0]]))
            >>> pets.neighbours("cat", 1)
            [Neighbour(word='dog', similarity=0.995...)]
        """
        if isinstance(word, str):
            return self._nearest(self[word], k, [word])
        return self._nearest(self._vector(word), k, [])

    def analogy(self, *, plus: Sequence[str], minus: Sequence[str] = (), k: int = 1) -> list[Neighbour]:
        """The k words nearest to a sum of words less others: king − man + woman → queen.

        Each vector is first brought to length 1, so that each word counts alike. The words given are not in the answer.
        """
        for name, words in (("plus", plus), ("minus", minus)):
            if isinstance(words, str):
                raise OptionError(f"`{name}` must be a list of words: got {words!r}. Pass [{words!r}].")
        if not plus and not minus:
            raise OptionError("An analogy must have a word to add or to take away: got none. Pass plus=[...].")
        added, taken = (self._units[[self._place(word) for word in words]].sum(0) for words in (plus, minus))
        return self._nearest(added - taken, k, [*plus, *minus])

    def database(self, temperature: float = TEMPERATURE) -> Database:
        """The vocabulary as a database: keys are vectors, values are words; similar is what has a small angle.

        Args:
            temperature: What the cosine is divided by. The smaller, the more the nearest word weighs.

        Example:
            >>> vectors = WordVectors.load()
            >>> vectors.database().attend(vectors["happy"]).value
            'happy'
        """
        return Database(self.vectors, self.words, score=Cosine(temperature))

    def __repr__(self) -> str:
        return f"WordVectors({len(self):,} words × {self.dim})"

    @cached_property
    def _units(self) -> Tensor:
        return unit(self.vectors)

    def _nearest(self, vector: Tensor, k: int, without: Sequence[str]) -> list[Neighbour]:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise OptionError(f"`k` must be a positive integer: got {k!r}. Pass how many words to find, such as 10.")
        cosines = self._units @ unit(vector.to(self.vectors)[None])[0]
        cosines[[self._place_of[word] for word in without]] = -torch.inf
        found = cosines.sort(descending=True, stable=True)  # of words alike, the more frequent first
        k = min(k, len(self) - len(set(without)))
        return [
            Neighbour(self.words[place], cosine)
            for place, cosine in zip(found.indices[:k].tolist(), found.values[:k].tolist(), strict=True)
        ]

    def _vector(self, given: Any) -> Tensor:
        vector = torch.as_tensor(given)
        if vector.shape != (self.dim,):
            raise ShapeError(
                f"A vector must have {self.dim} numbers, as the words' have: got shape {tuple(vector.shape)}."
            )
        return vector

    def _place(self, word: str) -> int:
        place = self._place_of.get(word)
        if place is None:
            near = nearest(column_from("word", self.words), word)
            advice = f"The nearest spellings are {', '.join(map(repr, near))}" if near else "None is spelled like it"
            raise MissingKey(f"A word must be one of the {len(self):,} that have a vector: got {word!r}. {advice}.")
        return place
