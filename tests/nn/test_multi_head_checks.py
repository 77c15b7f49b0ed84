"""What `MultiHeadAttention` refuses: what PyTorch's refuses, with an exception of its type, and in words that help."""

import pytest
import torch

from regard import Causal, nn
from regard.errors import DtypeError, RegardError

DIM, HEADS, BATCH, N_QUERIES, N_KEYS = 12, 3, 2, 5, 7
QUERY, KEY = torch.rand(BATCH, N_QUERIES, DIM), torch.rand(BATCH, N_KEYS, DIM)


def hidden(*shape, dtype=torch.bool):
    return torch.zeros(shape, dtype=dtype)


# Tokens and masks, with a batch axis first; then the same without one.
BATCHED = {
    "padding, keys": ((QUERY, KEY, KEY), {"key_padding_mask": hidden(2, 6)}),
    "padding, batch": ((QUERY, KEY, KEY), {"key_padding_mask": hidden(3, 7)}),
    "padding, axes swapped": ((QUERY, KEY, KEY), {"key_padding_mask": hidden(7, 2)}),
    "padding, one axis": ((QUERY, KEY, KEY), {"key_padding_mask": hidden(7)}),
    "padding, three axes": ((QUERY, KEY, KEY), {"key_padding_mask": hidden(2, 7, 1)}),
    "padding in numbers, keys": ((QUERY, KEY, KEY), {"key_padding_mask": hidden(2, 6, dtype=torch.float32)}),
    "padding, integers": ((QUERY, KEY, KEY), {"key_padding_mask": hidden(2, 7, dtype=torch.int64)}),
    "padding, a list": ((QUERY, KEY, KEY), {"key_padding_mask": [[False] * 7] * 2}),
    "mask, keys": ((QUERY, KEY, KEY), {"attn_mask": hidden(5, 6)}),
    "mask, queries": ((QUERY, KEY, KEY), {"attn_mask": hidden(4, 7)}),
    "mask, heads": ((QUERY, KEY, KEY), {"attn_mask": hidden(3, 5, 7)}),
    "mask by head, keys": ((QUERY, KEY, KEY), {"attn_mask": hidden(6, 5, 6)}),
    "mask, one axis": ((QUERY, KEY, KEY), {"attn_mask": hidden(7)}),
    "mask, four axes": ((QUERY, KEY, KEY), {"attn_mask": hidden(2, 3, 5, 7)}),
    "mask, integers": ((QUERY, KEY, KEY), {"attn_mask": hidden(5, 7, dtype=torch.int32)}),
    "mask, a list": ((QUERY, KEY, KEY), {"attn_mask": [[False] * 7] * 5}),
    "a hint without its mask": ((QUERY, KEY, KEY), {"is_causal": True}),
    "query, size": ((QUERY[..., :8], KEY, KEY), {}),
    "key, size": ((QUERY, KEY[..., :8], KEY), {}),
    "value, size": ((QUERY, KEY, KEY[..., :8]), {}),
    "key and value, length": ((QUERY, KEY, KEY[:, :6]), {}),
    "key and value, batch": ((QUERY, KEY, KEY[:1]), {}),
    "query and key, batch": ((QUERY[:1], KEY, KEY), {}),
    "query, four axes": ((QUERY[None], KEY, KEY), {}),
    "query, one axis": ((QUERY[0, 0], KEY, KEY), {}),
    "key without a batch": ((QUERY, KEY[0], KEY[0]), {}),
    "query without a batch": ((QUERY[0], KEY, KEY), {}),
    "float64": ((QUERY.double(), KEY.double(), KEY.double()), {}),
    "float64 keys": ((QUERY, KEY.double(), KEY), {}),
    "float16": ((QUERY.half(), KEY.half(), KEY.half()), {}),
    "integers": ((QUERY.long(), KEY.long(), KEY.long()), {}),
}
ALONE = {
    "padding, keys": {"key_padding_mask": hidden(6)},
    "padding, two axes": {"key_padding_mask": hidden(1, 7)},
    "mask, keys": {"attn_mask": hidden(5, 6)},
    "mask, heads": {"attn_mask": hidden(6, 5, 7)},
    "mask by head, keys": {"attn_mask": hidden(3, 5, 6)},
    "mask, one axis": {"attn_mask": hidden(7)},
    "mask, four axes": {"attn_mask": hidden(1, 3, 5, 7)},
}


def error_of(layer, tokens, options):
    with pytest.raises(Exception) as caught:  # noqa: PT011  which one is compared
        layer(*tokens, **options)
    return caught.value


def in_layout(tokens, batch_first):
    return tokens if batch_first else [each.transpose(0, 1) if each.ndim == 3 else each for each in tokens]


@pytest.mark.parametrize("options", [{}, {"need_weights": False}], ids=["weights", "output"])
@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "length first"])
@pytest.mark.parametrize("case", BATCHED)
def test_what_pytorch_refuses_is_refused_with_an_exception_of_its_type(case, batch_first, options):
    tokens, given = BATCHED[case]
    theirs, ours = (
        error_of(kind(DIM, HEADS, batch_first=batch_first), in_layout(tokens, batch_first), {**given, **options})
        for kind in (torch.nn.MultiheadAttention, nn.MultiHeadAttention)
    )
    assert isinstance(ours, type(theirs))
    assert isinstance(ours, RegardError)


@pytest.mark.parametrize("case", ALONE)
def test_without_a_batch_the_type_is_pytorchs_and_the_shapes_are_those_that_were_passed(case):
    theirs, ours = (
        error_of(kind(DIM, HEADS), (QUERY[0], KEY[0], KEY[0]), ALONE[case])
        for kind in (torch.nn.MultiheadAttention, nn.MultiHeadAttention)
    )
    assert isinstance(ours, type(theirs))
    (mask,) = ALONE[case].values()
    wanted = "(7,)" if "key_padding_mask" in ALONE[case] else "(5, 7), or (3, 5, 7) for 3 heads"
    assert f"must be {wanted}" in str(ours)
    assert f"got {tuple(mask.shape)}" in str(ours)
    assert "sequence" not in str(ours)


@pytest.mark.parametrize("call", ["forward", "weigh", "attend_and_weigh"])
@pytest.mark.parametrize(
    "tokens", [(None, KEY, KEY), (QUERY, [[1.0]], KEY), (QUERY, KEY, Causal())], ids=["query", "key", "value"]
)
def test_what_is_no_tensor_is_refused_by_its_name(tokens, call):
    with pytest.raises(DtypeError, match=r"`(query|key|value)` must be a torch\.Tensor: got (NoneType|list|Causal)\."):
        getattr(nn.MultiHeadAttention(DIM, HEADS, batch_first=True), call)(*tokens)


def test_a_mask_of_regards_in_the_place_of_pytorchs_is_told_where_it_goes():
    with pytest.raises(DtypeError, match="mask="):
        nn.MultiHeadAttention(DIM, HEADS, batch_first=True)(QUERY, KEY, KEY, attn_mask=Causal())


def test_another_dtype_is_taken_under_autocast_as_pytorch_takes_it():
    layer = nn.MultiHeadAttention(DIM, HEADS, batch_first=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = layer(*(each.bfloat16() for each in (QUERY, KEY, KEY)))
    assert output.dtype == torch.bfloat16


def test_a_mask_that_is_refused_leaves_the_cache_as_it_was():
    layer, cache = nn.MultiHeadAttention(DIM, HEADS, batch_first=True), nn.LayerCache()
    layer(KEY, KEY, KEY, cache=cache)
    with pytest.raises(RegardError, match=r"must be \(2, 12\)"):
        layer(QUERY, QUERY, QUERY, key_padding_mask=hidden(2, 5), cache=cache)
    assert cache.length == N_KEYS
    output, _ = layer(QUERY, QUERY, QUERY, key_padding_mask=hidden(2, 12), cache=cache)
    assert output.shape == QUERY.shape
