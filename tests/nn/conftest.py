"""Small models that write, and what they write about three sources of different lengths."""

import pytest
import torch

from regard import nn

START, STOP, SOURCE, TARGET = 1, 2, 9, 5
SOURCES = torch.tensor([[3, 4, 5, 6], [7, 8, 3, 0], [4, 0, 0, 0]])
PADDING = SOURCES == 0


@pytest.fixture(scope="session")
def models():
    """By name, functions of a seed and options that make a model; each has outputs far apart."""
    return {"recurrent": _recurrent, "transformer": _transformer}


@pytest.fixture(scope="session")
def write():
    """`write(model, **options)`: what a model writes about the three sources."""
    return _write


@pytest.fixture(scope="session")
def log_probability():
    """`log_probability(model, place, tokens, complete)`: of a whole sequence about one source, by one forward pass."""
    return _log_probability


def _recurrent(seed=0, **options):
    torch.manual_seed(seed)
    return _sharpened(nn.Seq2Seq(SOURCE, TARGET, 8, **options).eval())


def _transformer(seed=0, **options):
    torch.manual_seed(seed)
    return _sharpened(nn.Seq2SeqTransformer(SOURCE, TARGET, 8, 2, 2, **options).eval())


def _sharpened(model):
    """With outputs far apart, so that what is likeliest depends on what was written."""
    with torch.no_grad():
        model.output.weight.mul_(4)
    return model.double()


def _write(model, **options):
    return nn.generate(model, SOURCES, start=START, stop=STOP, source_padding=PADDING, **options)


def _log_probability(model, place, tokens, complete):
    source = SOURCES[place : place + 1, : int((~PADDING[place]).sum())]
    wanted = [*tokens, STOP] if complete else list(tokens)
    with torch.no_grad():
        scores = model(source, torch.tensor([[START, *wanted[:-1]]]))
    steps = scores.log_softmax(-1)[0]
    return float(steps[range(len(wanted)), wanted].sum())
