"""What tests of databases share."""

from __future__ import annotations

import pytest

from regard import Database

GPA = [3.0, 3.2, 3.4, 3.5, 3.6, 3.8, 4.0]
SALARY = [61_000.0, 66_500.0, 69_000.0, 70_000.0, 72_000.0, 75_500.0, 80_000.0]


@pytest.fixture
def salaries() -> Database:
    return Database({"gpa": GPA}, {"salary": SALARY})
