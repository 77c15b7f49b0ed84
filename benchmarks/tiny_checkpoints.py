"""Tiny random checkpoints of transformers with a tokenizer, one for each way of cutting text and of attending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

TEXT = "The dog wagged its tail, so he didn't pay 3.50 for it. When he saw his owner the 🐶 was happy"
KINDS = ("bert", "gpt2", "llama", "t5", "bart")
SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
BART = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_layers": 2, "decoder_layers": 3}


def save_tiny(kind: str, folder: Path, length: int | None = None) -> Path:
    """A model of that kind and its tokenizer, saved in a folder; with positions for so many tokens."""
    import transformers

    tokenizer = _tokenizer(kind)
    tokenizer.save_pretrained(folder)
    size = {"vocab_size": len(tokenizer)}
    numbers = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    torch.manual_seed(0)
    model: Any
    if kind == "bert":
        config = transformers.BertConfig(**size, **SIZES, max_position_embeddings=length or 64, pad_token_id=0)
        model = transformers.BertForMaskedLM(config)
    elif kind == "gpt2":
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**size, **numbers, n_embd=32, n_layer=3, n_head=4, n_positions=length or 128)
        )
    elif kind == "llama":
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                **size, **numbers, **SIZES, num_key_value_heads=2, max_position_embeddings=length or 128
            )
        )
    elif kind == "t5":
        config = transformers.T5Config(
            **size, d_model=32, num_layers=2, num_heads=4, d_kv=8, d_ff=64, decoder_start_token_id=0
        )
        model = transformers.T5ForConditionalGeneration(config)
    else:
        heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
        config = transformers.BartConfig(
            **size, **numbers, **BART, **heads, decoder_start_token_id=1, forced_eos_token_id=1
        )
        model = transformers.BartForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and "embed" not in name:
                weight.mul_(2 if kind == "t5" else 6)  # attention far from uniform
    model.save_pretrained(folder)
    return folder


def _tokenizer(kind: str) -> Any:
    """Words and their parts, bytes, pieces with blanks of their own, and pieces cut without regard to blanks."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    text = [TEXT.replace("🐶", "cat")] * 20
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    made: Any
    if kind == "bert":
        names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=70, special_tokens=list(names.values()))
        ends = [("[CLS]", 1), ("[SEP]", 2)]
        made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    elif kind in ("gpt2", "bart"):
        made = Tokenizer(models.BPE())
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=300, special_tokens=list(names.values()), initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "llama":
        # As Llama 2 has it: no group is told from another, blanks are letters, and what is unknown is spelled in bytes.
        names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
        made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        made.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        special = [*names.values(), *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, max_token_length=3, show_progress=False)
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    else:
        names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=60, special_tokens=list(names.values()), unk_token="<unk>", show_progress=False
        )
        made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    if kind == "llama":  # whose pieces would join letters to the signs behind them
        text = [each.replace(",", " ,").replace(" it.", " it .") for each in text]
    made.train_from_iterator(text, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)
