"""Files of word vectors: three formats, gzipped or not, whole or damaged."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import warnings

import pytest
import torch

from regard.errors import OptionError, RegardError, TableError
from regard.text import WordVectors, vector_files

WORDS = ["the", "naïve", "狗", "dog"]
VECTORS = torch.tensor([[0.5, -1.25, 3.0], [1e-5, 2.0, -0.0], [7.0, 8.0, 9.5], [-1.0, 0.25, 0.125]])


def text_lines(words=WORDS, vectors=VECTORS):
    return [" ".join([word, *map(str, row)]) for word, row in zip(words, vectors.tolist(), strict=True)]


def glove(words=WORDS, vectors=VECTORS):
    return ("\n".join(text_lines(words, vectors)) + "\n").encode()


def word2vec(words=WORDS, vectors=VECTORS):
    return f"{len(words)} {vectors.shape[1]}\n".encode() + glove(words, vectors)


def binary(words=WORDS, vectors=VECTORS, between=b"\n"):
    rows = [
        word.encode() + b" " + struct.pack(f"<{len(row)}f", *row) + between
        for word, row in zip(words, vectors.tolist(), strict=True)
    ]
    return f"{len(words)} {vectors.shape[1]}\n".encode() + b"".join(rows)


FORMATS = {
    "glove": glove(),
    "word2vec": word2vec(),
    "binary": binary(),
    "binary without newlines": binary(between=b""),
}


@pytest.fixture
def write(tmp_path):
    """Bytes as a file."""

    def write(data: bytes, name: str = "vectors.txt"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_recognised_and_gives_the_words_and_their_vectors(write, name, zipped):
    data = gzip.compress(FORMATS[name]) if zipped else FORMATS[name]
    read = WordVectors.read(write(data))
    assert read.words == WORDS
    assert torch.equal(read.vectors, VECTORS)
    told = WordVectors.read(write(data), format=name.split()[0])
    assert torch.equal(told.vectors, VECTORS)


@pytest.mark.parametrize("name", FORMATS)
def test_a_limit_reads_the_first_words_and_no_further(write, name):
    data = FORMATS[name]
    damaged = data[: -len(data) // 8]  # what is after the limit may be anything
    assert WordVectors.read(write(damaged), limit=2).words == WORDS[:2]


def test_many_words_go_through_in_binary(write):
    words = [f"w{number}" for number in range(3000)]
    vectors = torch.randn(3000, 50, generator=torch.Generator().manual_seed(0))
    read = WordVectors.read(write(binary(words, vectors)))
    assert read.words == words
    assert torch.equal(read.vectors, vectors)


def test_lines_may_end_as_windows_writes_them_and_empty_lines_do_no_harm(write):
    data = glove().replace(b"\n", b"\r\n") + b"\n"
    assert torch.equal(WordVectors.read(write(data)).vectors, VECTORS)


def test_a_word_with_a_space_in_it_is_read_whole(write):
    read = WordVectors.read(write(glove() + b". . . 1 2 3\n"))
    assert read.words[-1] == ". . ."
    assert read[". . ."].tolist() == [1.0, 2.0, 3.0]


BAD = {
    "too few": (b"cat 0.1 0.2", "must have a word and 3 numbers: got 'cat 0.1 0.2'"),
    "too many": (b"cat 0.1 0.2 0.3 0.4", "must have a word and 3 numbers: got 'cat 0.1 0.2 0.3 0.4'"),
    "underscore": (b"cat 1_0 0.2 0.3", "must have a word and 3 numbers"),
    "no number": (b"cat 0.1 0.2 x", "must have a word and 3 numbers: got 'cat 0.1 0.2 x'"),
    "no word": (b" 0.1 0.2 0.3", "must have a word and 3 numbers"),
    "not utf-8": (b"ca\xff 0.1 0.2 0.3", "must have a word in UTF-8"),
    "not finite": (b"cat 0.1 nan 0.3", "the vector of 'cat' must have finite numbers"),
    "beyond float32": (b"cat 0.1 1e39 0.3", "the vector of 'cat' must have finite numbers"),
    "two lines in one": (b"cat 0.1 0.2 0.3 mouse 0.4 0.5 0.6", "must have a word and 3 numbers"),
    "two lines without a space": (b"cat 0.1 0.2 0.3mouse 0.4 0.5 0.6", "must have a word and 3 numbers"),
    "again": (b"the 0.1 0.2 0.3", "a word must be there once: 'the' is in line 1 already"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_reported_with_its_number_or_skipped_and_counted(write, name):
    line, said = BAD[name]
    lines = glove().splitlines()
    path = write(b"\n".join([*lines[:2], line, *lines[2:], b""]))
    with pytest.raises(TableError, match=f'vectors.txt, line 3: {said}.*on_bad="skip"') as caught:
        WordVectors.read(path)
    assert isinstance(caught.value, RegardError)
    with pytest.warns(UserWarning, match=r"vectors.txt: 1 bad line skipped \(3\)\."):
        read = WordVectors.read(path, on_bad="skip")
    assert read.words == WORDS
    assert torch.equal(read.vectors, VECTORS)


def test_a_word_with_a_space_and_a_number_in_it_is_a_word(write):
    words = ["dog", ". . .", "2 much"]  # as GloVe has them
    assert WordVectors.read(write(glove(words, VECTORS[:3]))).words == words


def test_a_line_without_an_end_is_not_read_into_memory(write, monkeypatch):
    lines = glove().splitlines(keepends=True)
    monkeypatch.setattr(vector_files, "LONGEST_WORD", 100)
    path = write(gzip.compress(b"".join([lines[0], b"0" * 50_000_000 + b"\n", *lines[1:]])))
    tracemalloc.start()
    with pytest.warns(UserWarning, match=r"1 bad line skipped \(2\)"):
        assert WordVectors.read(path, on_bad="skip").words == WORDS
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


def test_empty_lines_without_end_are_refused(write):
    with pytest.raises(
        TableError, match="vectors.txt must be words with their vectors: line 1029 and the 1,024 before"
    ):
        WordVectors.read(write(gzip.compress(glove() + b"\n" * 1_000_000)))
    assert WordVectors.read(write(glove() + b"\n" * 1000 + b"cat 1 2 3\n")).words == [*WORDS, "cat"]


@pytest.mark.parametrize("between", [b"", b" "])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_lost_line_break_is_found_whatever_the_dimension(write, dim, between):
    lines = glove(WORDS, VECTORS[:, :dim]).splitlines(keepends=True)
    lines[1] = lines[1].rstrip() + between
    with pytest.raises(TableError, match="vectors.txt, line 2"):
        WordVectors.read(write(b"".join(lines)))


@pytest.mark.parametrize("cut", [1, 3])
def test_a_last_line_without_its_end_is_said(write, cut):
    with pytest.warns(UserWarning, match="its last line has no line break, so that it may be cut off"):
        assert WordVectors.read(write(glove()[:-cut])).words == WORDS
    assert WordVectors.read(write(glove()[:-cut]), limit=2).words == WORDS[:2]  # which does not read so far


@pytest.mark.parametrize("data", [glove(), word2vec()], ids=["glove", "word2vec"])
def test_a_byte_order_mark_belongs_to_no_word(write, data):
    read = WordVectors.read(write(b"\xef\xbb\xbf" + data))
    assert read.words == WORDS
    assert torch.equal(read.vectors, VECTORS)


@pytest.mark.parametrize("first", [b"4 2", b"4 4", b"cat 0.1"], ids=["fewer", "more", "no header"])
def test_a_first_line_of_another_dimension_does_not_make_numbers_into_words(write, first):
    with pytest.raises(TableError, match="line 2: must have a word and . numbers: got 'the 0.5 -1.25 3.0'"):
        WordVectors.read(write(first + b"\n" + glove()))


def test_a_number_alone_may_be_a_word_and_infinity_its_last_part(write):
    read = WordVectors.read(write(glove() + b"7 1 2 3\nto infinity 1 2 3\n"))
    assert read.words[-2:] == ["7", "to infinity"]


@pytest.mark.parametrize("number", [b"9" * 11, b"9" * 21, b"9" * 5000], ids=["eleven", "21", "5000"])
def test_a_first_line_with_an_absurd_dimension_is_no_header(write, number):
    path = write(b"2 " + number + b"\n" + binary().partition(b"\n")[2])
    with pytest.raises(TableError, match="line 1: must be the number of words and the dimension"):
        WordVectors.read(path, format="binary")
    with pytest.raises(TableError):
        WordVectors.read(path)


def test_the_header_counts_as_a_line(write):
    with pytest.raises(TableError, match="line 4:"):
        WordVectors.read(
            write(b"5 3\n" + b"\n".join([*glove().splitlines()[:2], b"cat 0.1", *glove().splitlines()[2:]]))
        )


def test_a_warning_names_the_first_bad_lines_and_the_place_that_read_them(write):
    path = write(glove() + b"bad\n" * 7)
    with pytest.warns(UserWarning, match=r"7 bad lines skipped \(5, 6, 7, 8, 9, …\)") as caught:
        WordVectors.read(path, on_bad="skip")
    assert caught[0].filename == __file__


def test_skipping_says_nothing_where_nothing_is_bad(write):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WordVectors.read(write(word2vec()), on_bad="skip")


@pytest.mark.parametrize("make", [word2vec, binary])
def test_a_file_with_fewer_words_than_it_says_is_refused_or_taken_with_a_warning(write, make):
    path = write(make().replace(b"4 3\n", b"6 3\n", 1))
    with pytest.raises(TableError, match="must be whole: its first line says 6 words, and there are 4"):
        WordVectors.read(path)
    with pytest.warns(UserWarning, match="its first line says 6 words, and there are 4"):
        assert WordVectors.read(path, on_bad="skip").words == WORDS


@pytest.mark.parametrize(("make", "got"), [(word2vec, "4"), (binary, "more")])
def test_a_file_with_more_words_than_it_says_is_refused_or_taken_with_a_warning(write, make, got):
    path = write(make().replace(b"4 3\n", b"2 3\n", 1))
    with pytest.raises(TableError, match=f"must be whole: its first line says 2 words, and there are {got}\\."):
        WordVectors.read(path)
    with pytest.warns(UserWarning, match=f"its first line says 2 words, and there are {got}"):
        assert WordVectors.read(path, on_bad="skip").words[:2] == WORDS[:2]


def test_what_was_skipped_counts_among_the_words_that_are_there(write):
    path = write(b"6 3\n" + glove() + b"cat 1\n")
    with pytest.warns(UserWarning, match=r"1 bad line skipped \(6\); its first line says 6 words, and there are 5"):
        assert WordVectors.read(path, on_bad="skip").words == WORDS


@pytest.mark.parametrize("start", [b"\n\x12\x80>", b"ab\n>", b"ab\xff>", b"a\x01b>"], ids=str)
def test_a_binary_file_is_recognised_whatever_bytes_its_first_number_has(write, start):
    vectors = VECTORS.clone()
    vectors[0] = torch.tensor([struct.unpack("<f", start)[0], 0.25, -1.5])
    assert torch.equal(WordVectors.read(write(binary(vectors=vectors))).vectors, vectors)


def test_a_word_of_no_letters_is_bad_in_a_binary_file(write):
    with pytest.raises(TableError, match="word 2: there must be a word before its numbers"):
        WordVectors.read(write(binary(["the", "", "狗", "dog"])))


def test_a_binary_file_that_breaks_off_is_reported_with_the_word_or_read_until_there(write):
    path = write(binary()[:-6])
    with pytest.raises(TableError, match="word 4: must be a word, a space and 12 bytes of numbers"):
        WordVectors.read(path)
    with pytest.warns(UserWarning, match=r"1 bad word skipped \(4\)"):
        assert WordVectors.read(path, on_bad="skip").words == WORDS[:3]


def test_bad_words_in_a_binary_file_have_their_number(write):
    vectors = VECTORS.clone()
    vectors[1, 2] = torch.inf
    path = write(binary(vectors=vectors).replace("狗".encode(), b"\xff\xfe\xfd"))
    with pytest.raises(TableError, match="word 2: the vector of 'naïve' must have finite numbers"):
        WordVectors.read(path)
    with pytest.warns(UserWarning, match=r"2 bad words skipped \(2, 3\)"):
        assert WordVectors.read(path, on_bad="skip").words == ["the", "dog"]


def test_a_gzipped_file_that_breaks_off_is_refused(write):
    with pytest.raises(TableError, match="must be a whole gzipped file"):
        WordVectors.read(write(gzip.compress(glove())[:-12]))


@pytest.mark.parametrize("data", [b"", b"\n", b"hello\n"], ids=["empty", "blank", "one word"])
def test_what_is_no_file_of_vectors_is_refused_at_its_first_line(write, data):
    with pytest.raises(TableError, match="line 1: must be a word and its numbers"):
        WordVectors.read(write(data))


def test_a_file_with_a_header_alone_has_no_words(write):
    with pytest.raises(TableError, match="must have at least one word"):
        WordVectors.read(write(b"0 3\n"))


def test_a_format_that_needs_a_header_says_so(write):
    with pytest.raises(TableError, match="line 1: must be the number of words and the dimension"):
        WordVectors.read(write(glove()), format="word2vec")


def test_a_glove_file_of_one_number_is_read_as_one_if_told(write):
    path = write(b"12 3\nthe 4\n")
    assert WordVectors.read(path, format="glove").words == ["12", "the"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limit": 0}, "`limit` must be a positive integer"),
        ({"limit": True}, "`limit` must be a positive integer"),
        ({"format": "fasttext"}, "`format` must be one of 'auto', 'glove', 'word2vec', 'binary': got 'fasttext'"),
        ({"on_bad": "ignore"}, "`on_bad` must be one of 'raise', 'skip'"),
    ],
)
def test_options_outside_their_range_are_refused(write, options, said):
    with pytest.raises(OptionError, match=said):
        WordVectors.read(write(glove()), **options)


def test_a_file_that_is_not_there_is_pythons_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        WordVectors.read(tmp_path / "none.txt")
