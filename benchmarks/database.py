"""How long a million rows take to read and to ask.

    python -m benchmarks.database [--rows 1000000]

Mixed keys (two numbers, two categories), a numeric value and a category: seconds to build from an Arrow table, for the
first question (which chooses the bandwidth), for one more, for a hundred at once, and for a lookup by name.

And numbers as keys, 64 questions about 300,000 rows: in float32, which is what happens, and in float64, interleaved.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import pyarrow
import torch

from benchmarks.results import write
from regard import Database, Gaussian
from regard.database import attending

KEYS = ["gpa", "age", "major", "city"]


def table(n_rows: int) -> pyarrow.Table:
    """Students, invented: salaries that depend on everything but the city."""
    generator = torch.Generator().manual_seed(0)
    gpa = 2 + 2 * torch.rand(n_rows, generator=generator, dtype=torch.float64)
    age = torch.randint(20, 40, (n_rows,), generator=generator)
    major, city = (torch.randint(count, (n_rows,), generator=generator) for count in (12, 400))
    noise = 4000 * torch.randn(n_rows, generator=generator, dtype=torch.float64)
    return pyarrow.table(
        {
            "name": [f"student {row}" for row in range(n_rows)],
            "gpa": gpa.numpy(),
            "age": age.numpy(),
            "major": [f"major {code}" for code in major.tolist()],
            "city": [f"city {code}" for code in city.tolist()],
            "salary": (30_000 + 10_000 * gpa + 500 * age + 2000 * major + noise).numpy(),
        }
    )


def seconds(work: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """The least time of several runs, and what the last returned."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return min(times), result


def measure(n_rows: int) -> dict[str, float]:
    """Every figure, in seconds."""
    source = table(n_rows)
    figures: dict[str, float] = {}
    figures["build"], salaries = seconds(lambda: Database.from_table(source, key=KEYS, value="salary"))
    query = (3.5, 22, "major 3", "city 7")
    figures["first question"], _ = seconds(lambda: salaries.attend(query))
    figures["one question"], answer = seconds(lambda: salaries.attend(query), repeats=5)
    figures["part of a question"], _ = seconds(lambda: salaries.attend({"gpa": 3.5, "major": "major 3"}), repeats=3)
    many = [(2 + place / 50, 20 + place % 20, f"major {place % 12}", f"city {place}") for place in range(100)]
    figures["a hundred questions"], _ = seconds(lambda: salaries.attend(many))
    majors = Database.from_table(source, key=["gpa", "age", "city"], value="major")
    majors.attend((3.5, 22, "city 7"))
    figures["one question, categories"], _ = seconds(lambda: majors.attend((3.5, 22, "city 7")), repeats=3)
    figures["average"], _ = seconds(lambda: salaries.average(), repeats=3)
    names = Database.from_table(source, key="name", value="salary")
    figures["first lookup"], _ = seconds(lambda: names["student 12345"])
    figures["one lookup"], _ = seconds(lambda: names["student 54321"], repeats=5)
    print(answer)
    return figures


def of_numbers(n_rows: int = 300_000, n_queries: int = 64) -> dict[str, float]:
    """Seconds for questions about numbers, and what they would take in float64."""
    generator = torch.Generator().manual_seed(0)
    keys, queries = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (n_rows, n_queries))
    values = keys[:, 0].sin() + 0.1 * torch.randn(n_rows, generator=generator, dtype=torch.float64)
    database = Database({"a": keys[:, 0], "b": keys[:, 1]}, values)
    asked = [tuple(query) for query in queries.tolist()]
    times: dict[str, list[float]] = {"float32": [], "float64": []}
    possible = attending.is_possible
    for _ in range(4):
        for name, found in times.items():
            attending.is_possible = possible if name == "float32" else lambda: False
            found.append(seconds(lambda: database.attend(asked, score=Gaussian(0.2)))[0])
    attending.is_possible = possible
    return {"rows": n_rows, "queries": n_queries} | {name: min(found) for name, found in times.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    figures = measure(arguments.rows)
    for name, figure in figures.items():
        print(f"{name:>26}  {figure:10,.4f} s")
    numbers = of_numbers()
    print(f"{numbers['float64'] / numbers['float32']:.1f} × as fast in float32: {numbers['float32']:.4f} s")
    write("database", {"rows": arguments.rows, "seconds": figures, "numbers": numbers})
