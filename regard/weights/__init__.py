"""Weights: rules that turn scores into weights, one per file; `rule.py` says what a rule is."""

from regard.weights.elementwise import Conic, Raw, Sigmoid
from regard.weights.entmax import Entmax, Sparsemax, entmax, sparsemax
from regard.weights.onehot import OneHot, one_hot
from regard.weights.onepass import OnePass
from regard.weights.proportional import Proportional, proportional
from regard.weights.rule import Fold, Kind, Monoid, Statistics, Weights
from regard.weights.softmax import Softmax, softmax
from regard.weights.topk import TopK, top_k
from regard.weights.uniform import Uniform

__all__ = [
    "Conic",
    "Entmax",
    "Fold",
    "Kind",
    "Monoid",
    "OneHot",
    "OnePass",
    "Proportional",
    "Raw",
    "Sigmoid",
    "Softmax",
    "Sparsemax",
    "Statistics",
    "TopK",
    "Uniform",
    "Weights",
    "entmax",
    "one_hot",
    "proportional",
    "softmax",
    "sparsemax",
    "top_k",
]
