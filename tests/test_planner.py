"""Which engine, and why not the others."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch

import regard
from regard import ENGINES, Engine, attend, plan, planner
from regard.engines import Reference, Tiled
from regard.engines.costs import work_of
from regard.errors import EngineRefusal, OptionError
from regard.planner import readable_bytes, readable_seconds
from regard.problem import make_problem
from regard.testing import MASKS, RULES, SCORES, VARIANTS, Case


def rows(n: int, dim: int = 4, *batch: int) -> torch.Tensor:
    return torch.zeros(*batch, n, dim)


def test_a_dot_product_under_softmax_goes_to_the_fused_kernels():
    assert plan(rows(8), rows(8), rows(8)).engine == "sdpa"
    assert plan(rows(2000), rows(2000), rows(2000)).engine == "sdpa"


@pytest.mark.parametrize(
    "options", [{"weights": regard.Sparsemax()}, {"score": regard.Additive(4, 4, 2)}, {"dropout": 0.1}]
)
def test_what_the_kernels_refuse_is_dense_when_small_and_tiled_when_large(options):
    small = plan(rows(16), rows(16), rows(16), **options)
    assert small.engine == "reference"
    assert small.reason.startswith(f"{Reference.summary}; about ")
    large = plan(rows(1000), rows(1000), rows(1000), **options)
    assert large.engine == "tiled"
    assert large.reason.startswith(f"{Tiled.summary}; about ")


def test_the_batch_and_the_hidden_units_count_toward_the_size():
    rule = regard.Conic()
    assert plan(rows(64), rows(64), rows(64), weights=rule).engine == "reference"
    assert plan(rows(256, 4, 32), rows(256), rows(256), weights=rule).engine == "tiled"
    assert plan(rows(64), rows(64), rows(64), score=regard.Additive(4, 4, 256)).engine == "tiled"


def test_what_costs_less_time_but_much_more_memory_is_passed_over():
    large = torch.rand(4, 4, dtype=torch.float64).expand(1, 8, 4, 4).repeat(1, 1, 1000, 1)
    found = plan(large, large, large, weights=regard.Sigmoid())
    assert found.engine == "tiled"
    assert found.passed_over["reference"].endswith(": quicker, but more than 256.0 MiB where another needs less")
    asked = plan(large, large, large, weights=regard.Sigmoid(), engine="tiled")
    assert "quicker" not in asked.passed_over["reference"]


def test_gradients_and_masks_count_toward_the_cost():
    def estimate(n, **options):
        return work_of(make_problem(rows(n), rows(n), rows(n), score=regard.Dot(), weights=regard.Conic(), **options))

    dense, window = estimate(4096), estimate(4096, mask=regard.Window(before=63, after=64))
    assert ENGINES["tiled"].seconds(window) < ENGINES["tiled"].seconds(dense) / 4
    # The definition computes every pair, whatever a mask says, and then reads the mask.
    assert 1 < ENGINES["reference"].seconds(window) / ENGINES["reference"].seconds(dense) < 1.5
    with_gradient = replace(dense, training=True)
    assert all(each.seconds(with_gradient) > each.seconds(dense) for each in ENGINES.values())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 µs"), (5e-5, "50 µs"), (0.0123, "12 ms"), (0.5, "500 ms"), (12.0, "12 s"), (340.0, "340 s")],
)
def test_times_are_readable(seconds, text):
    assert readable_seconds(seconds) == text


def test_the_engine_that_attend_runs_is_the_one_that_the_plan_names(monkeypatch):
    ran = []
    for name, engine in ENGINES.items():
        run = type(engine).run
        monkeypatch.setattr(
            type(engine), "run", lambda self, problem, name=name, run=run: (ran.append(name), run(self, problem))[1]
        )
    for options in ({}, {"weights": regard.Sparsemax()}, {"score": regard.Additive(4, 4, 64)}):
        ran.clear()
        # Values of another width: the plainest calls go to PyTorch's kernels without an engine.
        attend(rows(64), rows(64), rows(64, 3), **options)
        assert ran == [plan(rows(64), rows(64), rows(64, 3), **options).engine]


@pytest.mark.parametrize("options", [{}, {"score": regard.Additive(4, 4, 64)}, {"weights": regard.Sparsemax()}])
def test_a_call_of_the_same_kind_and_shape_is_planned_once(options, monkeypatch):
    asked = []
    plans = planner._quickest
    monkeypatch.setattr(planner, "_quickest", lambda problem: (asked.append(problem), plans(problem))[1])
    for _ in range(3):
        attend(rows(64), rows(64), rows(64, 3), **options)
    assert len(asked) == 1
    attend(rows(64), rows(64), rows(64, 3).requires_grad_(), **options)
    attend(rows(65), rows(64), rows(64, 3), **options)
    attend(rows(64), rows(64), rows(64, 3), dropout=0.1, **options)
    assert len(asked) == 4


def test_a_plan_does_not_outlive_the_kernels_that_pytorch_may_use():
    inputs = rows(64), rows(64), rows(64, 3)
    problem = make_problem(*inputs, score=regard.ScaledDot(), weights=regard.Softmax())
    assert planner.choose(problem).name == "sdpa"
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        again = make_problem(*inputs, score=regard.ScaledDot(), weights=regard.Softmax())
        assert planner.choose(again).name == plan(*inputs).engine != "sdpa"


class _Alike(regard.Window):
    """A mask that equals every other of its kind."""

    def __eq__(self, other):
        return isinstance(other, _Alike)

    def __hash__(self):
        return 1


def test_what_a_user_wrote_is_planned_every_time_and_a_mask_once_a_shape(monkeypatch):
    asked = []
    plans = planner._quickest
    monkeypatch.setattr(planner, "_quickest", lambda problem: (asked.append(problem), plans(problem))[1])
    window = regard.Window(2, 2)
    for _ in range(2):
        attend(rows(64), rows(64), rows(64, 3), score=regard.Custom(lambda q, k: q @ k.mT))
        attend(rows(64), rows(64), rows(64, 3), mask=_Alike(2, 2))
    assert len(asked) == 4
    for n in (64, 65, 64, 65):
        attend(rows(n), rows(n), rows(n, 3), mask=window)
    assert len(asked) == 6
    attend(rows(64), rows(64), rows(64, 3), mask=regard.Window(2, 2))
    assert len(asked) == 7


def test_a_sink_for_each_head_is_another_plan():
    inputs = rows(330), rows(330), rows(330, 3)
    for sink in (torch.zeros(()), torch.zeros(4096)):
        rule = regard.Softmax(sink=sink)
        chosen = planner.choose(make_problem(*inputs, score=regard.ScaledDot(), weights=rule))
        assert chosen.name == plan(*inputs, weights=rule).engine


def test_the_plan_of_a_mask_goes_with_it():
    window = regard.Window(2, 2)
    attend(rows(64), rows(64), rows(64, 3), mask=window)
    assert len(planner._CHOSEN_BY_MASK) == 1
    del window
    gc.collect()
    assert not planner._CHOSEN_BY_MASK


def test_an_engine_that_was_asked_for_is_taken_by_name_or_as_an_object():
    assert plan(rows(8), rows(8), rows(8), engine="tiled").engine == "tiled"
    asked = plan(rows(8), rows(8), rows(8), engine=Tiled(tile_elements=64))
    assert (asked.engine, asked.reason) == ("tiled", "it was asked for")
    assert set(asked.passed_over) == {"sdpa", "reference"}


def test_the_text_names_the_choice_the_bytes_and_every_other_engine():
    text = str(
        plan(
            rows(300, 4, 2, 3),
            rows(500, 4, 3),
            rows(500),
            score=regard.Additive(4, 4, 8),
            mask=regard.Causal(align="end"),
        )
    )
    lines = text.splitlines()
    assert lines[0] == (
        "2 × 3 × 300 queries × 500 keys, float32 on cpu: Additive under Softmax, mask Causal(align='end')"
    )
    assert lines[1].startswith(f"  engine: tiled, because {Tiled.summary}; about ")
    assert lines[1].endswith("iB")
    assert lines[2].startswith("  reference: supported, would need ")
    assert lines[3:] == [
        "  sdpa: not supported: Additive is not a dot product of projected queries and keys; "
        "mask Causal(align='end') would have to be built as n × m",
    ]


def test_the_bytes_of_tiles_do_not_grow_with_n_times_m_and_those_of_the_definition_do():
    def needed(n: int, engine: str) -> int:
        return plan(rows(n), rows(n), rows(n), weights=regard.Sigmoid(), engine=engine).bytes

    assert needed(16384, "reference") == 16 * needed(4096, "reference")
    assert needed(16384, "tiled") < 4 * needed(4096, "tiled")
    assert needed(16384, "tiled") < needed(16384, "reference") / 100


def test_a_plan_says_how_many_bytes_the_definition_would_need():
    made = plan(rows(1000), rows(1000), rows(1000), score=regard.Additive(4, 4, 16))
    needed = readable_bytes(1000 * 1000 * (4 + 2 * 16) * 4)
    assert made.passed_over["reference"].startswith(f"supported, would need {needed} and about ")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 52, "4096.0 TiB"),
    ],
)
def test_bytes_are_readable(count, text):
    assert readable_bytes(count) == text


def test_an_unknown_engine_is_refused_with_the_names_of_the_others():
    text = r"`engine` must be one of sdpa, tiled, reference, or an Engine: got 'flash'\. Leave it out to let the"
    with pytest.raises(OptionError, match=text):
        attend(rows(2), rows(2), rows(2), engine="flash")


def test_an_engine_that_cannot_is_refused_with_its_reasons():
    text = r"Engine 'sdpa' cannot compute this problem: weights are Conic, not Softmax\. Leave `engine` out, or ask"
    with pytest.raises(EngineRefusal, match=text):
        attend(rows(2), rows(2), rows(2), weights=regard.Conic(), engine="sdpa")


def test_no_engine_at_all_is_an_error_with_every_reason(monkeypatch):
    for engine in ENGINES.values():
        monkeypatch.setattr(type(engine), "dtypes", frozenset({torch.float64}))
    with pytest.raises(
        EngineRefusal,
        match=r"No engine can compute this problem: sdpa: torch.float32 inputs: it takes torch.float64.* ref",
    ):
        attend(rows(2), rows(2), rows(2), weights=regard.Conic())


def test_an_engine_that_a_user_writes_runs_when_it_is_asked_for():
    class Zeros(Engine):
        name, summary = "zeros", "nothing at all"

        def unavailable(self):
            return None if self.here else "this machine has no zeros"

        def bytes(self, problem):
            return 0

        def run(self, problem):
            return problem.values.new_zeros(problem.output_shape)

    engine = Zeros()
    engine.here = True
    assert not attend(rows(2), rows(3), torch.ones(3, 5), engine=engine).any()
    assert (
        str(plan(rows(2), rows(3), rows(3), engine=engine)).splitlines()[1]
        == "  engine: zeros, because it was asked for; needs 0 bytes"
    )
    engine.here = False
    with pytest.raises(EngineRefusal, match=r"Engine 'zeros' cannot compute this problem: this machine has no zeros\."):
        attend(rows(2), rows(3), rows(3), engine=engine)
    assert repr(engine) == "<engine zeros>"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("score", SCORES)
def test_an_engine_accepts_exactly_what_it_has_no_reason_to_refuse(engine, score):
    cases = [Case(score, rule, mask) for rule in RULES for mask in MASKS]
    if score == "ScaledDot":
        cases += [Case(score, "Softmax", "no mask", variant=variant) for variant in VARIANTS]
    for case in cases:
        if not case.expected_error:
            problem = case.make(torch.float32)
            assert ENGINES[engine].accepts(problem) == (not ENGINES[engine].refusals(problem)), case


def test_a_plan_does_not_speak_of_kernels_where_numba_is_broken(monkeypatch):
    from regard.engines import cpu

    monkeypatch.setattr(cpu, "unusable", lambda: "Numba is installed but cannot be imported: too old")
    made = plan(rows(300), rows(300), rows(300), weights=regard.Sigmoid(), engine="tiled")
    assert made.reason.endswith("(in plain torch: Numba is installed but cannot be imported: too old)")
    chosen = plan(rows(1000), rows(1000), rows(1000), weights=regard.Sigmoid())
    assert "compiled kernels" not in chosen.reason
    assert "too old" in chosen.reason
    with pytest.raises(EngineRefusal, match="too old"):
        attend(rows(300), rows(300), rows(300), engine=Tiled(kernels=True))
