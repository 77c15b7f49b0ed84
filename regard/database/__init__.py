"""Database: where the pairs live, and how to ask them."""

from regard.database.answer import Answer, Answers, Row
from regard.database.database import Database

__all__ = ["Answer", "Answers", "Database", "Row"]
