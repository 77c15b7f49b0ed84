"""Words, sentences and sounds: real vectors, real weights."""

from regard.text.pieces import Pieces, by_words
from regard.text.pronouncer import Pronouncer, Pronunciation
from regard.text.sentence import Look, SentenceEncoder

__all__ = ["Look", "Pieces", "Pronouncer", "Pronunciation", "SentenceEncoder", "by_words"]
