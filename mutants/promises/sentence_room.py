"""What the room of a sentence promises, and maps at the level of detail that is looked at."""

from __future__ import annotations

from mutants.hunt import Mutant

ANSWERS = "tests/web/test_sentence_answers.py"

SENTENCE_ROOM = (
    Mutant(
        "a part of a map is computed a strip of its own rows at a time",
        "regard/view/levels.py",
        "at_once = max(STRIP // (n_read * self.entries), 1)",
        "at_once = len(rows)",
        ("tests/test_levels.py -k once",),
    ),
    Mutant(
        "what is finer than the kept map is computed where it is looked at",
        "regard/view/levels.py",
        "if self.reads_whole and len(rows) / height >= cell_height and len(columns) / width >= cell_width:",
        "if self.reads_whole:",
        ("tests/test_levels.py -k dense_weights_pooled",),
    ),
    Mutant(
        "a cell of a kept map has what the average query gives to as many keys as the average cell has",
        "regard/view/levels.py",
        "Pooled(sums / pairs * across.sizes, down.span, across.span)",
        "Pooled(sums / down.counts[:, None], down.span, across.span)",
        ("tests/test_levels.py -k dense_weights_pooled",),
    ),
    Mutant(
        "the cells of a map stay where they are when it moves",
        "regard/view/levels.py",
        "self.first = first // self.group * self.group",
        "self.first = first",
        ("tests/test_levels.py -k dense_weights_pooled",),
    ),
    Mutant(
        "where keys of a long text are set aside, rows sum to 1 among the others",
        "regard/web/rooms/sentence_heads.py",
        "shown = without_keys(self._whole, hidden) if hidden else self._whole",
        "shown = self._whole",
        (f"{ANSWERS} -k sum_to_one",),
    ),
    Mutant(
        "the map of a long text is of the head that is named",
        "regard/web/rooms/sentence_heads.py",
        "alone = one_entry(view, (0, head))",
        "alone = one_entry(view, (0, 0))",
        (f"{ANSWERS} -k sum_to_one",),
    ),
    Mutant(
        "a head whose score knows of the others is read with them",
        "regard/view/one_entry.py",
        "whole = problem.form.captures or",
        "whole =",
        (f"{ANSWERS} -k among_the_others",),
    ),
    Mutant(
        "the share of what a long text has set aside is that of queries across it",
        "regard/web/rooms/sentence_heads.py",
        "self._of_entry(self._whole.rows(slice(None, None, step)))",
        "self._of_entry(self._whole.rows(slice(0, 1)))",
        (f"{ANSWERS} -k among_the_others",),
    ),
    Mutant(
        "small maps of a long text sum to 1 among the keys that are shown",
        "regard/web/rooms/sentence.py",
        "        weights /= weights.sum(-1, keepdim=True).clamp_min(1e-30)\n",
        "",
        (f"{ANSWERS} -k evenly",),
    ),
    Mutant(
        "a text is long where its weights are too many to compute them all",
        "regard/web/rooms/sentence_reading.py",
        "return len(self.look.pieces) * len(self.look.keys.word_of) > LONG",
        "return False",
        (f"{ANSWERS} -k told_by_pieces",),
    ),
    Mutant(
        "a text that was read is not read again",
        "regard/web/rooms/sentence_reading.py",
        "        if key not in self._kept:\n",
        "        if True:\n",
        (f"{ANSWERS} -k again",),
    ),
    Mutant(
        "texts that were read are kept within a budget",
        "regard/web/rooms/sentence_reading.py",
        "while len(self._kept) > 1 and sum(each.bytes for each in self._kept.values()) > self._budget:",
        "while False:",
        (f"{ANSWERS} -k within_a_budget",),
    ),
    Mutant(
        "maps and heads that are kept count among the bytes of a text",
        "regard/web/rooms/sentence_reading.py",
        "return self._recorded + sum(each.bytes for each in maps) + sum(each.bytes for each in heads)",
        "return self._recorded",
        (f"{ANSWERS} -k within_a_budget",),
    ),
    Mutant(
        "of a long text some heads are kept",
        "regard/web/rooms/sentence_reading.py",
        "while len(self._heads) > KEPT_HEADS:",
        "while False:",
        (f"{ANSWERS} -k latest_maps",),
    ),
    Mutant(
        "of a text some maps are kept",
        "regard/web/rooms/sentence_reading.py",
        "while len(self._maps) > KEPT_MAPS:",
        "while False:",
        (f"{ANSWERS} -k latest_maps",),
    ),
    Mutant(
        "the last cell of a kept map ends where its size says",
        "regard/view/levels.py",
        "self.span = (self.first * size / cells, (self.first + groups * self.group) * size / cells)",
        "self.span = (starts[0], starts[-1])",
        ("tests/test_levels.py -k last_cell",),
    ),
    Mutant(
        "rollout in the room goes through every layer",
        "regard/web/rooms/sentence_reading.py",
        "reached = rollout(self.views, places)[0]",
        "reached = rollout(self.views[1:], places)[0]",
        (f"{ANSWERS} -k rows_are_the_weights and rollout",),
    ),
    Mutant(
        "what one word attends to beyond those that are listed is told as their rest",
        "regard/web/rooms/sentence.py",
        '"rest": max(float(row.sum() - top.values.sum()), 0.0),',
        '"rest": 0.0,',
        (f"{ANSWERS} -k rows_are_the_weights",),
    ),
)
