"""What layers are given by mistake: an error of regard's, which names it and says what to do, never one from within."""

import pytest
import torch

import regard
from regard import nn
from regard.errors import DtypeError, OptionError, RegardError, ShapeError

X, Y = torch.rand(2, 5, 8), torch.rand(2, 3, 8)
TOKENS = torch.randint(0, 10, (2, 5))
LAYERS = {
    "attention": nn.Attention,
    "self-attention": lambda: nn.SelfAttention(8),
    "multi-head": lambda: nn.MultiHeadAttention(8, 2, batch_first=True),
    "encoder layer": lambda: nn.EncoderLayer(8, 2, 16, batch_first=True),
    "encoder": lambda: nn.Encoder(nn.EncoderLayer(8, 2, 16, batch_first=True), 1),
    "decoder layer": lambda: nn.DecoderLayer(8, 2, 16, batch_first=True),
    "decoder": lambda: nn.Decoder(nn.DecoderLayer(8, 2, 16, batch_first=True), 1),
    "transformer": lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
    "feed-forward": lambda: nn.FeedForward(8, 16),
    "waves": lambda: nn.SinusoidalPositions(8),
    "learned positions": lambda: nn.LearnedPositions(9, 8),
    "rotary": lambda: nn.Rotary(8),
    "recurrent": lambda: nn.Seq2Seq(10, 10, 8),
    "writing transformer": lambda: nn.Seq2SeqTransformer(10, 10, 8, 2, 1),
}
ARGUMENTS = {
    "attention": (X, Y, Y),
    "multi-head": (X, Y, Y),
    "decoder layer": (X, Y),
    "decoder": (X, Y),
    "transformer": (X, Y),
    "recurrent": (TOKENS, TOKENS),
    "writing transformer": (TOKENS, TOKENS),
}
PLACES = [(name, place) for name in LAYERS for place in range(len(ARGUMENTS.get(name, (X,))))]
NO_TENSORS = {"None": None, "list": [[1.0]], "text": "tokens"}


def call(name, place, wrong, **options):
    arguments = list(ARGUMENTS.get(name, (X,)))
    arguments[place] = wrong
    return LAYERS[name]()(*arguments, **options)


@pytest.mark.parametrize("wrong", NO_TENSORS)
@pytest.mark.parametrize(("name", "place"), PLACES)
def test_what_is_no_tensor_is_refused(name, place, wrong):
    with pytest.raises(DtypeError, match=r"`\w+` must be a (torch\.T|t)ensor.*got (NoneType|list|str)\."):
        call(name, place, NO_TENSORS[wrong])


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_tokens_of_another_size_are_refused(name, place):
    wrong = torch.zeros(3, 4, 1, dtype=torch.int64) if ARGUMENTS.get(name, (X,))[0] is TOKENS else torch.rand(2, 5, 7)
    with pytest.raises(ShapeError, match="got"):
        call(name, place, wrong)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize(
    ("name", "place"), [each for each in PLACES if each[0] not in ("waves", "learned positions", "rotary")]
)
def test_tokens_of_another_dtype_are_refused(name, place, dtype):
    if ARGUMENTS.get(name, (X,))[0] is TOKENS:
        wrong = TOKENS.to(torch.uint8 if dtype == torch.int64 else dtype)  # an embedding takes int64
    else:
        wrong = X.to(dtype) if (name == "attention" and place == 0) or place == 0 else Y.to(dtype)
    with pytest.raises(RegardError, match=r"(torch\.)?(float|u?int|bool|complex)\d*"):
        call(name, place, wrong)


@pytest.mark.parametrize("wrong", [TOKENS + 9, TOKENS - 12], ids=["above", "below"])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", ["recurrent", "writing transformer"])
def test_token_numbers_that_a_vocabulary_does_not_have_are_refused(name, place, wrong):
    wrong[0, 0] = 9 if wrong.max() < 9 else wrong[0, 0]
    with pytest.raises(OptionError, match="must be from 0 to 9"):
        call(name, place, wrong)


@pytest.mark.parametrize(
    "mask", ["causal", torch.ones(5, 5, dtype=torch.bool), [[True]]], ids=["text", "tensor", "list"]
)
@pytest.mark.parametrize("name", ["attention", "self-attention", "multi-head", "encoder layer", "decoder layer"])
def test_what_is_no_mask_of_regards_is_refused(name, mask):
    with pytest.raises(RegardError, match="mask"):
        call(name, 0, X, mask=mask)


@pytest.mark.parametrize("name", ["encoder", "decoder", "transformer"])
def test_what_is_no_mask_at_all_is_refused(name):
    with pytest.raises(DtypeError, match="`attn_mask` must be a tensor, as in PyTorch: got str"):
        call(name, 0, X, **{"mask" if name == "encoder" else "tgt_mask": "causal"})


@pytest.mark.parametrize("name", ["recurrent", "writing transformer"])
@pytest.mark.parametrize(
    "padding", [[[False] * 5] * 2, torch.zeros(2, 5), torch.zeros(2, 4, dtype=torch.bool)], ids=str
)
def test_padding_that_does_not_fit_is_refused(name, padding):
    with pytest.raises(RegardError, match="adding"):
        LAYERS[name]()(TOKENS, TOKENS, padding)


@pytest.mark.parametrize("make", [nn.SelfAttention, lambda size, **mask: nn.MultiHeadAttention(size, 2, **mask)])
def test_a_word_is_no_mask(make):
    with pytest.raises(OptionError, match=r"`mask` must be a regard Mask: got 'causal'\. Pass one such as Causal\(\)"):
        make(4, mask="causal")


@pytest.mark.parametrize("wrong", [{"weights": "softmax"}, {"score": regard.Gaussian}, {"mask": torch.ones(2, 2)}])
def test_a_layer_refuses_an_option_in_the_words_of_attend(wrong):
    with pytest.raises(OptionError) as by_attend:
        regard.attend(torch.ones(2, 4), torch.ones(2, 4), torch.ones(2, 4), **wrong)
    with pytest.raises(OptionError) as by_layer:
        nn.MultiHeadAttention(4, 2, **wrong)
    assert str(by_layer.value) == str(by_attend.value)
