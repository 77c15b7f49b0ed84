"""What the room of the formula promises, of `regard explore`."""

from __future__ import annotations

from mutants.hunt import Mutant

ROOM = "regard/web/rooms/"
PAGE = "regard/web/static/rooms/"
NUMBERS, HANDS, SCREENS = (f"tests/web/test_formula_{name}.py" for name in ("numbers", "room", "screens"))

FORMULA_ROOM = (
    Mutant(
        "of a grid only what the rule refuses is a blank",
        f"{ROOM}formula.py",
        "return ((scores >= 0) | ~_allowed(asked, queries, keys)).all(-1)",
        "return (scores >= 0).all(-1)",
        (f"{NUMBERS} -k picture_are",),
    ),
    Mutant(
        "a key that is off is none of the nearest",
        f"{ROOM}formula.py",
        ".masked_fill(~on, torch.inf)",
        "",
        (f"{NUMBERS} -k server",),
    ),
    Mutant(
        "the lines of Python have the mask",
        f"{ROOM}formula_python.py",
        'mask = ", mask=mask"',
        'mask = ""',
        (f"{NUMBERS} -k lines",),
    ),
    Mutant(
        "the page's softmax has a temperature",
        f"{PAGE}formula-attention.js",
        "Math.exp((scores[key] - peak) / temperature)",
        "Math.exp(scores[key] - peak)",
        (f"{NUMBERS} -k computes",),
    ),
    Mutant(
        "where rounding decides which key is the best, the library does",
        f"{PAGE}formula-attention.js",
        'if (settings.rule === "onehot" && isTied(query, points, settings)) return null;',
        "",
        (f"{NUMBERS} -k computes",),
    ),
    Mutant(
        "what is saved waits for the answer to what is seen",
        f"{PAGE}formula.js",
        "    await Promise.all(this.shownColumns().map(({ answering }) => answering));\n",
        "",
        (f"{NUMBERS} -k lines",),
    ),
    Mutant(
        "weights are not shown over other keys",
        f"{PAGE}formula-column.js",
        "      this.result = null;\n      if (isAnew)",
        "      if (isAnew)",
        (f"{HANDS} -k late",),
    ),
    Mutant(
        "lines are as thick as weights are heavy",
        f"{PAGE}formula-plane.js",
        "wide = scale * Math.abs(weight), isShown",
        "wide = scale * Math.sqrt(most * Math.abs(weight)), isShown",
        (f"{HANDS} -k follows",),
    ),
    Mutant(
        "a double click adds a key and leaves the query",
        f"{PAGE}formula-hands.js",
        "if (pressed) room.points.query = pressed.query;",
        "",
        (f"{HANDS} -k double",),
    ),
    Mutant(
        "a finger drags what it holds",
        f"{PAGE}formula-hands.js",
        "if (isHandle) event.preventDefault();",
        "",
        (f"{HANDS} -k finger",),
    ),
    Mutant(
        "a finger that scrolls the page leaves the query",
        f"{PAGE}formula-hands.js",
        "if (held && !isHandle) room.move(held, start);",
        "",
        (f"{HANDS} -k finger",),
    ),
    Mutant(
        "what keys have done is told",
        f"{PAGE}formula.js",
        "tell(this.news ? `${this.news} ${said}` : said);",
        "tell(said);",
        (f"{HANDS} -k keys_alone",),
    ),
    Mutant(
        "who chooses a beginning by keyboard goes on from there",
        f"{PAGE}formula.js",
        "    this.begins.input.focus();\n",
        "",
        (f"{HANDS} -k beginning",),
    ),
    Mutant(
        "a mask comes back with the address",
        f"{PAGE}formula-state.js",
        "  Object.assign(found.shared, taken(SHARED, state));\n",
        "",
        (f"{SCREENS} -k address",),
    ),
    Mutant(
        "paper is light where it is painted, too",
        "regard/web/static/numbers.js",
        "dark.matches && !isPaper",
        "dark.matches",
        (f"{SCREENS} -k paper",),
    ),
    Mutant(
        "how many keys are in effect is not told of weights below 0",
        f"{PAGE}formula-readings.js",
        "weights.every(each => each >= 0)",
        "true",
        (f"{SCREENS} -k below_0",),
    ),
)
