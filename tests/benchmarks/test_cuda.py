"""The rows for GPUs run, at small sizes on a CPU too, and everybody in them computes the same."""

from __future__ import annotations

import pytest

from benchmarks import cuda
from benchmarks.cuda_contests import OURS


@pytest.mark.filterwarnings("ignore:.*flex_attention:UserWarning")
@pytest.mark.parametrize("row", cuda.ROWS, ids=lambda row: row.name)
def test_peers_compute_what_we_compute(row):
    calls = row.build(True)
    assert next(iter(calls)) == OURS
    assert row.peer in calls
    for quantity in ("forward", "training"):
        able = {n: cuda.runner(call, quantity) for n, call in calls.items() if quantity == "forward" or call.leaves}
        if OURS in able:
            cuda.check(calls, able)


def test_a_peer_that_computes_something_else_is_noticed():
    calls = dict(cuda.ROWS[0].build(True))
    wrong = calls["SDPA"].compute
    calls["SDPA"] = type(calls["SDPA"])(lambda: wrong() * 1.1)
    with pytest.raises(AssertionError, match="disagree"):
        cuda.check(calls, {name: cuda.runner(call, "forward") for name, call in calls.items()})


def test_without_a_gpu_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr(cuda.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        cuda.main([])
    assert "there is no GPU here" in capsys.readouterr().err
    assert cuda.main(["--quick", "--only", "dot"]) == 0
    assert "regard" in capsys.readouterr().out


def test_rows_are_prepared_together_and_timed_one_after_another(capsys):
    assert cuda.main(["--quick", "--processes", "--only", "dot", "causal"]) == 0
    said = capsys.readouterr().out
    assert said.index("dot\n") < said.index("causal\n")
    assert said.count("SDPA") == 4
