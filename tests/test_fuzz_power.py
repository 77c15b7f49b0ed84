"""The fuzzer's bounds find something: a gradient of the wrong sign is noticed in most cases, in every dtype."""

from __future__ import annotations

import warnings

import pytest
import torch

from fuzz.cases import make_case
from fuzz.comparing import Broken, compare
from fuzz.expected import expect

# The share that must be noticed. In half precision projections are rounded, and large scores say little.
SHARES = {torch.float64: 0.7, torch.float32: 0.7, torch.bfloat16: 0.5, torch.float16: 0.4}


@pytest.mark.parametrize("dtype", SHARES, ids=str)
def test_a_result_of_the_wrong_sign_is_noticed(dtype):
    noticed = []
    seed = 0
    while len(noticed) < 40:
        seed += 1
        case = make_case(seed)
        if case.dtype != dtype or case.broken:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = expect(case)
        for name, exact in expected.exact.items():
            if exact.numel() and float(exact.abs().max()) > 0:
                try:
                    compare(name, -exact, expected)
                    noticed.append(False)
                except Broken:
                    noticed.append(True)
    assert sum(noticed) / len(noticed) >= SHARES[dtype]
