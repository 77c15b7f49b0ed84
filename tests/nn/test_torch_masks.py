"""PyTorch's masks read as regard's."""

import pytest
import torch

from regard import nn


@pytest.mark.parametrize("added", [{}, {"add_bias_kv": True}, {"add_bias_kv": True, "add_zero_attn": True}], ids=str)
def test_a_causal_mask_leaves_the_keys_that_follow_every_sequence_in_sight(added):
    # PyTorch's layer, told that the mask is causal, forgets it and hides those keys: with the hint it gives another
    # result than without. Here a hint changes nothing.
    mask, found = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64), []
    for kind, is_causal in ((torch.nn.MultiheadAttention, False), (nn.MultiHeadAttention, True)):
        torch.manual_seed(3)
        layer, x = kind(8, 2, dtype=torch.float64, **added), torch.randn(5, 2, 8, dtype=torch.float64)
        found.append(layer(x, x, x, attn_mask=mask, is_causal=is_causal, need_weights=False)[0])
    torch.testing.assert_close(*found)
