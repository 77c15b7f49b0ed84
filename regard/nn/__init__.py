"""Layers on attention: drop-ins for PyTorch's, for every score, rule and mask; and what they build up to."""

from regard.nn.attention_layer import Attention
from regard.nn.base_layer import AttentionLayer
from regard.nn.cache import KeyValueCache, LayerCache
from regard.nn.conversion import convert
from regard.nn.decoder import Decoder, DecoderLayer
from regard.nn.decoding_step import Writer, Written
from regard.nn.encoder import Encoder, EncoderLayer
from regard.nn.feed_forward import FeedForward
from regard.nn.generation import generate
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.positional_encoding import LearnedPositions, Rotary, SinusoidalPositions
from regard.nn.recording import Recording, record
from regard.nn.self_attention import SelfAttention
from regard.nn.seq2seq import Seq2Seq
from regard.nn.seq2seq_transformer import Seq2SeqTransformer
from regard.nn.transformer import Transformer

__all__ = [
    "Attention",
    "AttentionLayer",
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "KeyValueCache",
    "LayerCache",
    "LearnedPositions",
    "MultiHeadAttention",
    "Recording",
    "Rotary",
    "SelfAttention",
    "Seq2Seq",
    "Seq2SeqTransformer",
    "SinusoidalPositions",
    "Transformer",
    "Writer",
    "Written",
    "convert",
    "generate",
    "record",
]
