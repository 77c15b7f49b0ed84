"""Claims about names as sentences and pictures have them."""

from regard.wording import listed, told_apart


def test_words_are_told_apart_and_listed():
    assert told_apart(["he", "saw", "he"]) == ["he₁", "saw", "he₂"]
    assert told_apart(["a"] * 12)[-1] == "a₁₂"
    assert [listed("abc"[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
