"""The Transformer: an encoder, and a decoder that attends to its output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import LayerRuntimeError
from regard.masks import Mask
from regard.nn.base_layer import AttentionLayer
from regard.nn.decoder import Decoder, DecoderLayer
from regard.nn.encoder import Encoder, EncoderLayer
from regard.nn.feed_forward import Activation
from regard.nn.input_checks import refuse_nested
from regard.nn.pytorch_layers import besides
from regard.nn.torch_masks import causal_mask
from regard.scores import Score
from regard.weights import Weights


class Transformer(nn.Module):
    """A drop-in for `torch.nn.Transformer`, for every score and rule.

    Args:
        d_model: The size of a token.
        nhead: How many heads.
        num_encoder_layers, num_decoder_layers: How many layers.
        dim_feedforward: The hidden size of the feed-forward parts.
        dropout: The share that is dropped in training.
        activation: "relu", "gelu" or a function.
        custom_encoder, custom_decoder: Taken in place of those made here.
        layer_norm_eps: ε of the normalisations.
        batch_first: Whether tensors are `(batch, length, dim)`, not `(length, batch, dim)`.
        norm_first: Whether each part is normalised before, not after.
        bias: Whether linear layers and normalisations add a bias.
        device, dtype: Of the parameters.
        score, weights: Of every attention, as `MultiHeadAttention`; each gets copies.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> model = nn.Transformer(16, 4, 2, 2, 32, batch_first=True)
        >>> mask = nn.Transformer.generate_square_subsequent_mask(5)
        >>> model(torch.rand(3, 7, 16), torch.rand(3, 5, 16), tgt_mask=mask).shape
        torch.Size([3, 5, 16])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = functional.relu,
        custom_encoder: nn.Module | None = None,
        custom_decoder: nn.Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        score: Score | None = None,
        weights: Weights | None = None,
    ) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)

        # Encoder and Decoder copy the layer, and with it the score and the rule.
        options: dict[str, Any] = {"score": score, "weights": weights, **kind}
        if custom_encoder is None:
            custom_encoder = Encoder(EncoderLayer(*sizes, **options), num_encoder_layers, norm())
        if custom_decoder is None:
            custom_decoder = Decoder(DecoderLayer(*sizes, **options), num_decoder_layers, norm())
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | Mask | None = None,
        tgt_mask: Tensor | Mask | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The target's tokens after the decoder; arguments as `Encoder` and `Decoder`."""
        self._check(src, tgt)
        for stack, mask in ((self.encoder, src_mask), (self.decoder, tgt_mask)):
            besides(stack, mask=mask if isinstance(mask, Mask) else None)
        memory = self.encoder(src, src_mask, src_key_padding_mask, is_causal=src_is_causal)
        decoded: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return decoded

    def _check(self, src: Tensor, tgt: Tensor) -> None:
        refuse_nested(src=src, tgt=tgt)
        batch_axis = 0 if self.batch_first else 1
        if src.ndim == 3 and tgt.ndim == 3 and src.shape[batch_axis] != tgt.shape[batch_axis]:
            raise LayerRuntimeError(
                f"`src` and `tgt` must have the same batch: got {src.shape[batch_axis]} and {tgt.shape[batch_axis]} "
                f"sequences, read with batch_first={self.batch_first}."
            )
        for name, each in (("src", src), ("tgt", tgt)):
            if each.shape[-1] != self.d_model:
                raise LayerRuntimeError(
                    f"`{name}` must have d_model = {self.d_model} numbers per token: got {tuple(each.shape)}."
                )

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """The causal mask as PyTorch writes it: −inf at the keys after each query, 0 elsewhere."""
        return causal_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        layers = [module for module in self.modules() if isinstance(module, AttentionLayer)]
        # What a score or a rule learns starts where it was told to: matrices of the layers alone are drawn.
        told = {id(each) for layer in layers for part in (layer.score, layer.weights) for each in part.parameters()}
        for parameter in self.parameters():
            if parameter.dim() > 1 and id(parameter) not in told:
                nn.init.xavier_uniform_(parameter)
