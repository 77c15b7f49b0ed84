"""What the room of a table keeps: the library's answers, tables that are none, and what a picture may show."""

from __future__ import annotations

from mutants.hunt import Mutant

ANSWERS, TROUBLES, ROOM = (f"tests/web/test_table_{name}.py" for name in ("answers", "troubles", "room"))

TABLE_ROOM = (
    Mutant(
        "a key that the query does not know does not count on the page",
        "regard/web/rooms/table.py",
        "for place in asked.known}\n",
        "for place in range(len(asked.keys))}\n",
        (f"{ANSWERS} -k known",),
    ),
    Mutant(
        "a width that is given is the one that answers",
        "regard/web/rooms/table.py",
        "scores[column.name] = Gaussian(width)",
        "scores[column.name] = Gaussian(2 * width)",
        (f"{ANSWERS} -k given",),
    ),
    Mutant(
        "a mismatch weighs what the page says",
        "regard/web/rooms/table.py",
        "else -math.log(width) * Equal()",
        "else Equal()",
        (f"{ANSWERS} -k given",),
    ),
    Mutant(
        "a curve moves along its own key alone",
        "regard/web/rooms/table.py",
        "{**query, along.name: entry_of(along, at)}",
        "{along.name: entry_of(along, at)}",
        (f"{ANSWERS} -k curve",),
    ),
    Mutant(
        "lines of Python name the width that answered",
        "regard/web/rooms/table_python.py",
        'score = f", score={{{scores}}}" if scores else ""',
        'score = ""',
        (f"{ANSWERS} -k lines", f"{ROOM} -k saved"),
    ),
    Mutant(
        "texts of a table are literals in the lines of Python",
        "regard/web/rooms/table_python.py",
        """return f'"{text}"' if plain else ascii(text)""",
        """return f'"{text}"'""",
        (f"{ANSWERS} -k steer",),
    ),
    Mutant(
        "errors of hidden rows are in the value's units",
        "regard/database/hidden_rows.py",
        '(unit if self.measure == "root mean square" else 1.0)',
        "1.0",
        (f"{ANSWERS} -k errors",),
    ),
    Mutant(
        "categories alone have no bandwidth to choose",
        "regard/database/hidden_rows.py",
        "        if not self._quantities:\n            return [0.0] * len(self._categories)",
        "        if False:\n            return [0.0] * len(self._categories)",
        ("tests/database/test_hidden_rows.py", f"{ANSWERS} -k best"),
    ),
    Mutant(
        "rows that lie outside are not in the picture",
        "regard/web/rooms/table_points.py",
        "    widths, heights = widths[inside], heights[inside]\n",
        "",
        (f"{ANSWERS} -k picture or outside",),
    ),
    Mutant(
        "a table of too many columns is refused before it is read",
        "regard/web/rooms/table_kept.py",
        "MOST_COLUMNS = 1000",
        "MOST_COLUMNS = 1 << 30",
        (f"{TROUBLES} -k million",),
    ),
    Mutant(
        "a worker keeps tables within its budget",
        "regard/web/rooms/table_kept.py",
        "            self._kept.popitem(last=False)\n",
        "            break\n",
        (f"{ANSWERS} -k budget",),
    ),
    Mutant(
        "a table keeps a few of its databases",
        "regard/web/rooms/table_kept.py",
        "            self._databases.popitem(last=False)\n",
        "            break\n",
        (f"{ANSWERS} -k databases",),
    ),
    Mutant(
        "who asks about a table does not wait behind long work while another worker rests",
        "regard/web/workers.py",
        "if known is None or (known.busy_for > LONG and idlest.load == 0):",
        "if known is None:",
        ("tests/web/test_hostile.py -k busy_for_long",),
    ),
    Mutant(
        "a width too narrow for numbers has no error",
        "regard/database/hidden_rows.py",
        "factors.append(ratio * ratio)",
        "factors.append(ratio**2)",
        ("tests/database/test_hidden_rows.py -k narrowest",),
    ),
    Mutant(
        "a mismatch above 1 is refused wherever it is asked",
        "regard/web/rooms/table.py",
        "width is not None and width > 1 and not",
        "width is not None and width > 1e999 and not",
        (f"{TROUBLES} -k width",),
    ),
    Mutant(
        "a curve along another key is not drawn",
        "regard/web/static/rooms/table.js",
        "      if (!found || along !== this.along) return;\n",
        "      if (!found) return;\n",
        (f"{ROOM} -k along_another",),
    ),
    Mutant(
        "an answer along another key is not drawn",
        "regard/web/static/rooms/table.js",
        "    if (!answer || along !== this.along) return;\n    this.answer = { ...answer, place: along };\n",
        "    if (!answer) return;\n    this.answer = { ...answer, place: this.along };\n",
        (f"{ROOM} -k along_another",),
    ),
    Mutant(
        "what is asked no more is ended",
        "regard/web/static/rooms/table.js",
        "    this.asking.abort();\n",
        "",
        (f"{ROOM} -k no_more",),
    ),
    Mutant(
        "a page is not told where a file lies",
        "regard/web/rooms/table_kept.py",
        'message.replace(str(file), "the file").replace(file.name, "The file")',
        "message",
        (f"{TROUBLES} -k none",),
    ),
    Mutant(
        "a cell of megabytes is cut where it is sent",
        "regard/web/rooms/table.py",
        "LONGEST_CELL = 2000",
        "LONGEST_CELL = 1 << 40",
        (f"{TROUBLES} -k megabytes",),
    ),
    Mutant(
        "a column that cannot be read does not take the others with it",
        "regard/database/whole_table.py",
        "        if not 1 < len(wanted) <= FEW:\n",
        "        if True:\n",
        ("tests/database/test_whole_table.py",),
    ),
)
