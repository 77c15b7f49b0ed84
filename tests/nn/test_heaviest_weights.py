"""`attend_and_weigh(top=k)`: output and heaviest weights of every head, in one pass where there is no gradient."""

import pytest
import torch

from regard import Causal, Sparsemax, nn
from regard.engines import Sdpa
from regard.errors import OptionError


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 2}, {"mask": Causal()}, {"weights": Sparsemax()}], ids=str)
def test_the_heaviest_weights_asked_for_with_the_output_are_those_of_the_view(options, grad):
    torch.manual_seed(0)
    layer, x = nn.MultiHeadAttention(16, 4, batch_first=True, **options), torch.randn(2, 200, 16)
    with torch.set_grad_enabled(grad):
        output, view = layer.attend_and_weigh(x, x, x, top=8)
        expected = layer(x, x, x)[0]
        torch.testing.assert_close(output, expected)
        assert output.requires_grad == grad
        heaviest = layer.weigh(x, x, x).dense().topk(8)
    torch.testing.assert_close(view.top(8).weights, heaviest.values)
    live = heaviest.values > 0
    assert float((view.top(8).indices == heaviest.indices)[live].float().mean()) > 0.99  # ties within rounding
    assert view._top is not None


def test_without_a_gradient_one_pass_finds_output_and_heaviest_weights(monkeypatch):
    pytest.importorskip("numba")
    from regard.engines.cpu.passes import weight_readings

    def refuse(*arguments):
        raise AssertionError

    monkeypatch.setattr(weight_readings._Reading, "run", refuse)
    monkeypatch.setattr(Sdpa, "run", refuse)
    layer, x = nn.MultiHeadAttention(16, 4, batch_first=True), torch.randn(2, 200, 16)
    with torch.no_grad():
        output, view = layer.attend_and_weigh(x, x, x, top=8)
    assert output.shape == x.shape
    assert view.top(5).indices.shape == (2, 4, 200, 5)
    monkeypatch.undo()
    torch.testing.assert_close(output, layer(x, x, x, need_weights=False)[0].detach())


@pytest.mark.parametrize("top", [0, True, 2.5])
def test_a_top_that_is_no_positive_integer_is_refused(top):
    layer, x = nn.MultiHeadAttention(16, 4), torch.randn(3, 2, 16)
    with pytest.raises(OptionError, match=r"`k` of top\(\) must be an integer of at least 1: got"):
        layer.attend_and_weigh(x, x, x, top=top)
