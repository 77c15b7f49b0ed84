"""A score that a user writes, and what every score is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import regard
from regard import Causal, Softmax, Sparsemax, TopK, Uniform, attend, weigh
from regard.engines import Tiled
from regard.scores import ChannelForm, DotForm, Score, ScoreTerm, Step

LEARNED = {
    "Additive": (regard.Additive(2, 2, 3), {"W1", "W2", "b", "v"}),
    "Cosine": (regard.Cosine(nn.Parameter(torch.tensor(1.0))), {"temperature"}),
    "Epanechnikov": (regard.Epanechnikov(nn.Parameter(torch.tensor(1.0))), {"radius"}),
    "Gated": (regard.Gated(2, 2), {"W_g"}),
    "Gaussian": (regard.Gaussian(nn.Parameter(torch.ones(2))), {"bandwidth"}),
    "Laplacian": (regard.Laplacian(nn.Parameter(torch.ones(2))), {"bandwidth"}),
    "Multiplicative": (regard.Multiplicative(2, 2), {"W"}),
}


class Weighted(Score):
    """A user's score: Σ_c w_c (q_c − k_c)², negated, with the weights learned."""

    def __init__(self) -> None:
        super().__init__()
        self.importance = nn.Parameter(torch.tensor([0.5, 1.0, 2.0]).double())

    def form(self, queries, keys):
        return ChannelForm(queries, keys, "square", self.importance.unsqueeze(-2), scale=-1.0)


class Halved(Score):
    """A user's score with a dot form."""

    def form(self, queries, keys):
        return DotForm(queries, keys, scale=0.5)


@pytest.mark.parametrize("rule", [Softmax(), Sparsemax(), TopK(3), Uniform()])
@pytest.mark.parametrize("engine", ["reference", Tiled(tile_elements=64)])
def test_a_score_that_a_user_writes_runs_with_every_rule_and_learns(rule, engine, draw):
    q, k, v = draw(2, 12, 3), draw(20, 3, seed=1), draw(20, 2, seed=2)
    score = Weighted()
    output = attend(q, k, v, score=score, weights=rule, engine=engine)
    plain = score.importance.detach().clone().requires_grad_()
    expected = rule(-((q.unsqueeze(-2) - k.unsqueeze(-3)).square() * plain).sum(-1)) @ v
    torch.testing.assert_close(output, expected)
    if rule.kind != "uniform":
        output.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(score.importance.grad, plain.grad)


def test_a_users_dot_form_reaches_the_fused_kernels_and_the_view(draw):
    q, k, v = draw(12, 3), draw(12, 3, seed=1), draw(12, 3, seed=2)
    scores = (0.5 * q @ k.mT).masked_fill(~torch.ones(12, 12).tril().bool(), -torch.inf)
    output = attend(q, k, v, score=Halved(), mask=Causal(), engine="sdpa")
    torch.testing.assert_close(output, torch.softmax(scores, -1) @ v)
    torch.testing.assert_close(weigh(q, k, v, score=Halved(), mask=Causal()).dense(), torch.softmax(scores, -1))


@pytest.mark.parametrize("name", LEARNED)
def test_what_a_score_learns_is_found_under_the_documents_letters(name):
    score, letters = LEARNED[name]
    assert {name for name, _ in score.named_parameters()} == letters


def test_a_score_without_a_form_says_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"Empty must define form\(queries, keys\)\."):
        type("Empty", (Score,), {})()(torch.ones(1, 1), torch.ones(1, 1))


def test_a_term_without_a_step_says_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"Empty must define step\(grid\)\."):
        (Halved() + type("Empty", (ScoreTerm,), {})())(torch.ones(1, 1), torch.ones(1, 1))


def test_a_term_that_a_user_writes_is_added(draw):
    class Shift(Step):
        def __call__(self, scores):
            return scores + 2.0

    class Term(ScoreTerm):
        def step(self, grid):
            return Shift()

    q, k = draw(3, 2), draw(4, 2, seed=1)
    torch.testing.assert_close((Halved() + Term())(q, k), 0.5 * q @ k.mT + 2.0)
