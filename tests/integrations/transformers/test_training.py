"""transformers' Trainer on regard: the losses of eager, and what is learned besides trains, is saved and goes on."""

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.nn import Parameter

from benchmarks.tiny_models import config_class, tiny_config
from regard import Entmax
from regard.integrations.transformers import replace

pytest.importorskip("accelerate", reason="Trainer needs accelerate")
STEPS = 10
TOKENS = torch.randint(3, 50, (8, 12), generator=torch.Generator().manual_seed(0))
PADDED = torch.ones_like(TOKENS)
PADDED[::3, 7:] = 0  # on the right, as in training
ROWS = [
    {"input_ids": tokens, "attention_mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}
    for tokens, mask in zip(TOKENS, PADDED, strict=True)
]


def writer(implementation, alpha=None):
    torch.manual_seed(0)
    config = tiny_config(config_class("llama"))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    if alpha is not None:
        replace(model, weights=Entmax(Parameter(torch.tensor(alpha))))
    return model


def trainer_of(model, folder, **options):
    arguments = transformers.TrainingArguments(
        str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **({"save_strategy": "no"} | options),
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=ROWS)
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    return trainer


def losses_of(trainer):
    return torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])


def alphas_of(model):
    return {name: float(each.detach()) for name, each in model.named_parameters() if ".regard." in name}


@pytest.mark.parametrize(
    ("options", "near"),
    [({}, 1e-4), ({"gradient_checkpointing": True}, 1e-4), ({"bf16": True}, 2e-2)],
    ids=["plain", "gradient checkpointing", "bfloat16"],
)
def test_losses_fall_as_those_of_eager(options, near, tmp_path):
    found = []
    for implementation in ("regard", "eager"):
        trainer = trainer_of(writer(implementation), tmp_path, **options)
        trainer.train()
        found.append(losses_of(trainer))
    ours, eager = found
    assert len(ours) == STEPS
    assert ours[-1] < ours[0] - 0.5
    torch.testing.assert_close(ours, eager, atol=near, rtol=0)


def test_a_learned_rule_trains_is_saved_and_is_loaded_again(tmp_path):
    model = writer("regard", alpha=1.5)
    trainer = trainer_of(model, tmp_path / "run")
    trainer.train()
    losses = losses_of(trainer)
    assert losses[-1] < losses[0] - 0.5
    learned = alphas_of(model)
    assert len(learned) == model.config.num_hidden_layers
    assert all(abs(each - 1.5) > 1e-3 for each in learned.values())
    assert len(set(learned.values())) > 1  # each layer has its own

    trainer.save_model(tmp_path / "saved")
    again = writer("regard", alpha=1.5)
    again.load_state_dict(load_file(tmp_path / "saved" / "model.safetensors"))
    assert alphas_of(again) == learned
    with torch.no_grad():
        assert torch.equal(again.eval()(TOKENS).logits, model.eval()(TOKENS).logits)


def test_a_run_goes_on_where_it_was_left(tmp_path):
    whole = writer("regard", alpha=1.5)
    trainer_of(whole, tmp_path, save_strategy="steps", save_steps=STEPS - 2).train()
    rest = writer("regard", alpha=1.9)  # what is loaded is what counts
    trainer_of(rest, tmp_path).train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS - 2}"))
    torch.testing.assert_close(dict(rest.named_parameters()), dict(whole.named_parameters()))
