"""Words, sentences and sounds: real vectors, real weights."""

from regard.text.look import Look
from regard.text.pieces import Pieces, by_words
from regard.text.pronouncer import Pronouncer, Pronunciation
from regard.text.sentence import SentenceEncoder
from regard.text.vectors import Neighbour, WordVectors

__all__ = [
    "Look",
    "Neighbour",
    "Pieces",
    "Pronouncer",
    "Pronunciation",
    "SentenceEncoder",
    "WordVectors",
    "by_words",
]
