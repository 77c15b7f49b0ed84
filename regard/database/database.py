"""Database: keys and values to query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from regard.database.answer import Answer, Answers
from regard.database.attending import Attender, Rows
from regard.database.columns import names
from regard.database.lookup import KeyIndex
from regard.database.messages import missing_key
from regard.database.pairs import Pairs
from regard.database.python_columns import check_aligned, columns_from, listed_entries
from regard.database.python_values import Entries
from regard.database.queries import read_queries
from regard.database.similarity import ScoreLike, check_options, merged
from regard.database.tables import Name, Names, read_table
from regard.database.text_keys import TextEncoder, as_given, by_meaning, default_scores
from regard.database.text_queries import read_text
from regard.weights import Weights

if TYPE_CHECKING:
    from rich.console import RenderableType

    from regard.database.render import Report

Scalar = str | bytes | int | float | Decimal | date | timedelta
"""What is one query, whatever the keys are."""

ManyRows = list[tuple[Any, ...]] | list[dict[str, Any]]
"""What is many queries, whatever the keys are. Any other list or tensor may be a vector, or a row."""

FIRST = 5
"""How many pairs a database shows of itself."""


class Database:
    """Pairs of keys and values, D = {(k₁, v₁), …, (k_m, v_m)}, and attention over them.

    Keys are numbers, dates, text, vectors, or anything that can be hashed; values may be anything at all. A row whose
    value is missing (None, NaN, NaT, an infinity, a number beyond floats), or its key in a column that the query asks
    about and that is not ignored, is left out of the weighted answer, and the answer says how many were; exact lookup
    still finds it.
    A database is a snapshot: what is done to the tensors and lists later is not done to it.

    Args:
        keys: a sequence, a tensor `(n_rows,)` or `(n_rows, dim)`, or a dict of columns.
        values: the same; one for each key.
        index: the rows' own labels. They are numbered from 0 if left out.
        encoder: what turns texts into vectors, so that keys that are texts are compared by what they mean:
            `regard.text.SentenceEncoder.load()`, or any function of a list of n texts to a tensor `(n, dim)`. With
            several key columns, a dict with one for each column that needs one.
        score: how keys and queries are compared where `attend` is not told.

    Example:
        >>> from regard import Database
        >>> majors = Database(["John Doe", "Jane Roe"], ["psychology", "physics"])
        >>> majors["John Doe"]
        'psychology'
        >>> salaries = Database([3.0, 3.4, 3.5, 3.6, 4.0], [61_000, 69_000, 70_000, 72_000, 80_000])
        >>> 68_000 < salaries.attend(3.5).value < 73_000
        True
    """

    def __init__(
        self,
        keys: Any,
        values: Any,
        *,
        index: Entries | None = None,
        encoder: TextEncoder | Mapping[str, TextEncoder] | None = None,
        score: ScoreLike = None,
    ) -> None:
        check_aligned(keys, values)
        labels = None if index is None else listed_entries(index)
        columns = columns_from(keys, "key")
        if encoder is not None:
            columns = by_meaning(columns, encoder)
        self._pairs = Pairs(columns, columns_from(values, "value"), labels)
        check_options(score, None, self._pairs.keys)
        self._score = merged(default_scores(columns), score)

    @classmethod
    def _of(cls, pairs: Pairs, score: ScoreLike = None) -> Database:
        database = cls.__new__(cls)
        database._pairs, database._score = pairs, score
        return database

    @classmethod
    def from_dict(cls, pairs: Mapping[Any, Any]) -> Database:
        """A database of the dict's pairs.

        Example:
            >>> Database.from_dict({"John Doe": "psychology"}).lookup("John Doe")
            'psychology'
        """
        return cls(list(pairs.keys()), list(pairs.values()))

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        key: Names,
        value: Names,
        index: Name | None = None,
        encoder: TextEncoder | Mapping[str, TextEncoder] | None = None,
    ) -> Database:
        """A database of the rows of a table.

        Args:
            table: a path (.csv, .tsv, .parquet, .feather, .arrow), a pandas or polars frame, an Arrow table, or a dict
                of columns. All but the last need pyarrow.
            key: the name of the key column, or several.
            value: the name of the value column, or several.
            index: the column whose entries name the rows. A pandas frame names them by its own index.
            encoder: what turns texts into vectors, as in `Database`.

        Example:
            >>> grades = {"name": ["Ann", "Bob"], "gpa": [3.4, 3.6], "salary": [69_000, 72_000]}
            >>> Database.from_table(grades, key="gpa", value="salary", index="name").attend(3.6).rows[0].index
            'Bob'
        """
        pairs = read_table(table, key, value, index)
        if encoder is None:
            return cls._of(pairs)
        keys = by_meaning(pairs.keys, encoder)
        return cls._of(Pairs(keys, pairs.values, pairs.index, pairs.index_name, pairs.said), default_scores(keys))

    @property
    def key_names(self) -> list[str]:
        """What the key columns are called."""
        return names(self._pairs.keys)

    @property
    def value_names(self) -> list[str]:
        """What the value columns are called."""
        return names(self._pairs.values)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was made of the table when it was read: marks taken for missing, texts for dates, and the like."""
        return self._pairs.notes

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._pairs.each()

    def __contains__(self, key: object) -> bool:
        return self._key_index.first(key) is not None

    def __getitem__(self, key: Any) -> Any:
        return self.lookup(key)

    def lookup(self, key: Any) -> Any:
        """The value of the first pair with that key: the exact query, whose weights are one-hot.

        Raises:
            MissingKey: a KeyError that names the nearest keys.

        Example:
            >>> Database(["a", "b"], [1, 2]).lookup("b")
            2
        """
        row = self._key_index.first(key)
        if row is None:
            raise missing_key(key, self._pairs.keys, self._pairs.values)
        return self._pairs.value(row)

    def lookup_all(self, key: Any) -> list[Any]:
        """The values of every pair with that key, in order.

        Example:
            >>> Database(["a", "b", "a"], [1, 2, 3]).lookup_all("a")
            [1, 3]
        """
        rows = self._key_index.all(key)
        if not rows:
            raise missing_key(key, self._pairs.keys, self._pairs.values)
        return [self._pairs.value(row) for row in rows]

    @overload
    def attend(
        self, query: Scalar, *, score: ScoreLike = None, weights: Weights | None = None, top: int = 10
    ) -> Answer: ...
    @overload
    def attend(
        self, query: ManyRows, *, score: ScoreLike = None, weights: Weights | None = None, top: int = 10
    ) -> Answers: ...
    @overload
    def attend(
        self, query: Any, *, score: ScoreLike = None, weights: Weights | None = None, top: int = 10
    ) -> Answer | Answers: ...
    def attend(
        self, query: Any, *, score: ScoreLike = None, weights: Weights | None = None, top: int = 10
    ) -> Answer | Answers:
        """The values of similar rows, weighted: Attention(q, D) = Σ α(q, k_i) v_i, as an `Answer`.

        Left to itself, the database compares quantities by a Gaussian with the bandwidths that predict hidden rows best
        (by leave-one-out; a key that does not help is ignored), texts that have an encoder by the cosine of their
        vectors, and everything else by equality; the choice is in the answer. Keys without any quantity are compared by
        equality alone, and every row with that key weighs the same. If even the nearest row is more than six bandwidths
        away (beyond what rows typically find among the others), the answer is that there are no similar rows.

        Args:
            query: one, or many. Columns that a query leaves out, or that are None, do not count; one query among many
                that says nothing at all gets an answer in its place that says so.
                With one key column, a scalar is one query, and any sequence of them (a list, a tuple, an array) is
                many; but where keys are vectors, a vector is one and a matrix is many, and where keys are text or
                objects, a tuple is one: it may be a key.
                With several, a tuple or a list with an entry for each column is one; a list of tuples, lists or dicts
                is many.
                A dict is one query by name; it is many where its entries are lists. A frame is a query for each row.
            score: a score of the quantities, or a dict with a score for each column. One column is compared in its own
                units (dates in days); several together, in standard deviations from their mean. The scores of columns
                add; kernels (Boxcar, Epanechnikov, Triangular, Equal, or any score that `is_kernel`) multiply.
            weights: `Softmax()` if left out; `Proportional()` for a kernel alone. Asked of text keys alone, Softmax()
                takes the exponential of an equality that is 0 or 1, so a row that differs still weighs 1/e, 37% of one
                that does not: leave it out unless you mean that.
            top: how many rows the answer lists at most.

        Returns:
            An `Answer`; many queries give `Answers`, one for each, also where there is one of them, or none.

        Example:
            >>> from regard import Boxcar
            >>> salaries = Database([3.0, 3.4, 3.5, 3.6, 4.0], [61_000, 69_000, 70_000, 72_000, 80_000])
            >>> answer = salaries.attend(3.5, score=Boxcar(0.15))
            >>> [row.key for row in answer.rows]
            [3.4, 3.5, 3.6]
            >>> round(answer.value)
            70333
        """
        queries, many = read_queries(query, self._pairs.keys)
        answers = self._attender.ask(queries, merged(self._score, score), weights, top)
        return Answers(answers) if many else answers[0]

    def parse(self, text: str) -> Any:
        """A query from text, as a command line or a line of CSV has it. An empty entry is None, and does not count.

        Example:
            >>> Database({"gpa": [3.5], "major": ["physics"]}, [70_000]).parse("3.5,physics")
            (3.5, 'physics')
        """
        entries = read_text(text, self._pairs.keys)
        return entries[0] if len(entries) == 1 else entries

    def average(self, *, top: int = 10) -> Answer:
        """The answer with equal weights: averaging across the entire database, or average pooling.

        It asks about no key, so that only rows without a value are left out.

        Example:
            >>> Database(["a", "b"], [1.0, 2.0]).average().value
            1.5
        """
        return self._attender.average(top)

    def swap(self) -> Database:
        """The database the other way round: values become keys, so that one can ask by them.

        Example:
            >>> Database(["John Doe"], ["psychology"]).swap()["psychology"]
            'John Doe'
        """
        pairs = self._pairs
        return self._of(Pairs(pairs.values, as_given(pairs.keys), pairs.index, pairs.index_name, pairs.said))

    def __repr__(self) -> str:
        from regard.database.render import as_text

        return as_text(self._report())

    def __rich__(self) -> RenderableType:
        from regard.database.render import as_rich

        return as_rich(self._report())

    def _repr_html_(self) -> str:
        from regard.database.render import as_html

        return as_html(self._report())

    def _report(self) -> Report:
        from regard.database.render import pairs_report

        pairs = self._pairs
        sides = [", ".join(f"{each.name} ({each.label})" for each in side) for side in (pairs.keys, pairs.values)]
        count = f"{len(pairs):,} pair" + ("s" if len(pairs) != 1 else "")
        first = list(pairs.listed(range(min(len(pairs), FIRST))))
        title = f"Database of {count}: {' → '.join(sides)}"
        return pairs_report(title, pairs.labels, first, len(pairs) - len(first), pairs.notes)

    @cached_property
    def _key_index(self) -> KeyIndex:
        return KeyIndex(self._pairs.keys)

    @cached_property
    def _attender(self) -> Attender:
        return Attender(self._pairs)


def database_of(pairs: Pairs) -> Database:
    """A database of columns that are there already."""
    return Database._of(pairs)


def pairs_of(database: Database) -> Pairs:
    """The columns of a database."""
    return database._pairs


def rows_of(database: Database, columns: Sequence[int]) -> Rows:
    """The rows in which some key columns are complete, with the matrices that answers are computed from."""
    return database._attender.rows(columns)
