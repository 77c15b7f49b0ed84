"""A database whose keys are sentences, asked in other words, with the real encoder."""

from __future__ import annotations

import pytest

from regard import Database

QUESTIONS = {
    "How do I reset my password?": "account",
    "Where is my parcel?": "delivery",
    "I want my money back": "refund",
    "The app crashes when I open it": "bug",
}


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        ("I forgot my login", "account"),
        ("my package has not arrived", "delivery"),
        ("please return the payment", "refund"),
        ("it closes at start", "bug"),
    ],
)
def test_a_question_in_other_words_finds_its_answer(encoder, asked, value):
    database = Database(list(QUESTIONS), list(QUESTIONS.values()), encoder=encoder)
    answer = database.attend(asked)
    assert answer.value == value
    assert answer.rows[0].weight > 0.5
    assert QUESTIONS[answer.rows[0].key] == value
