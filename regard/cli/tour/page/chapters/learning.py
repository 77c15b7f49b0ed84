"""A head before and after training, in seconds; then the same head over ever longer texts."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from regard import nn
from regard.cli.tour.guide import Numbers
from regard.cli.tour.material import one_thread, seeded, word_vectors
from regard.cli.tour.page.chapter import Chapter, Stops
from regard.cli.tour.page.drawing import line, matrix, node, svg, write
from regard.text import WordVectors

KNOWN, NEW = ["dog", "cat", "horse", "bird", "fish"], ["bear", "tiger", "fox"]
OTHERS = [
    *("house", "river", "table", "door", "car", "tree", "book", "road", "stone", "garden", "church", "bridge"),
    *("mountain", "window", "chair", "ship", "wall", "field", "street", "lake", "forest", "hill", "box", "the", "of"),
    *("in", "old", "by", "small", "near", "white", "and", "with", "black", "its", "was", "over", "under", "green"),
    *("long", "great", "behind"),
]
ASKED = "animal"
SHOWN = ["the", "old", "bridge", "over", "the", "river", "and", "its", "white", "fox", "near", "the", "house"]
DIM, STEPS, BATCH, LENGTH, N_TESTED = 8, 120, 64, 9, 32
LENGTHS = (9, 99, 999)


class Texts:
    """Texts of random words with one animal among them, and the word “animal” as the last: it asks for it."""

    def __init__(self, known: WordVectors) -> None:
        mean = known.vectors.mean(dim=0)
        units = {
            word: torch.nn.functional.normalize(known[word] - mean, dim=-1) for word in {*KNOWN, *NEW, *OTHERS, ASKED}
        }
        # √d times as long, so that a coordinate has variance 1.
        self.vector = {word: 3 * unit for word, unit in units.items()}

    def of(self, words: list[str]) -> Tensor:
        return torch.stack([self.vector[word] for word in words])

    def some(self, animals: list[str], count: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """`count` texts `(count, length + 1, d)`, where the animal stands in each, and which it is."""
        others, asked = self.of(OTHERS), self.of([ASKED])
        x = others[torch.randint(len(others), (count, length))]
        place, which = torch.randint(length, (count,)), torch.randint(len(animals), (count,))
        x[torch.arange(count), place] = self.of(animals)[which]
        return torch.cat([x, asked.expand(count, 1, -1)], dim=1), place, which


@cache
def measure() -> Numbers:
    texts = Texts(word_vectors())
    with seeded(0), one_thread():
        head = nn.SelfAttention(word_vectors().dim, key_dim=DIM, value_dim=DIM)
        told = torch.nn.Linear(DIM, len(KNOWN), bias=False)
        shown = texts.of([*SHOWN, ASKED])
        before = head.weigh(shown).rows(len(SHOWN))[0].tolist()
        before_known = on_the_animal(head, texts, KNOWN, LENGTH)
        before_new = on_the_animal(head, texts, NEW, LENGTH)
        losses = train(head, told, texts)
        after = head.weigh(shown).rows(len(SHOWN))[0].tolist()
        found = {
            name: [on_the_animal(head, texts, animals, length) for length in LENGTHS]
            for name, animals in (("known", KNOWN), ("new", NEW))
        }
    return {
        "words": [*SHOWN, ASKED],
        "before": before,
        "after": after,
        "losses": losses,
        "before_known": before_known,
        "before_new": before_new,
        "found": found,
    }


def train(head: nn.SelfAttention, told: torch.nn.Linear, texts: Texts) -> list[float]:
    """Teach the head to say which animal a text has, and nothing of where it stands."""
    optimizer, losses = torch.optim.Adam([*head.parameters(), *told.parameters()], lr=1e-2), []
    for _ in range(STEPS):
        x, _, which = texts.some(KNOWN, BATCH, LENGTH)
        loss = torch.nn.functional.cross_entropy(told(head(x)[:, -1]), which)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def on_the_animal(head: nn.SelfAttention, texts: Texts, animals: list[str], length: int) -> float:
    """The weight that the last word gives to the animal, on average."""
    x, place, _ = texts.some(animals, N_TESTED, length)
    row = head.weigh(x).rows(length)[:, 0]
    return row[torch.arange(N_TESTED), place].mean().item()


def fill(_: Stops, own: Numbers) -> dict[str, str]:
    place = SHOWN.index("fox")
    known, new = own["found"]["known"], own["found"]["new"]
    return {
        "picture": matrix(
            [own["before"], own["after"]],
            ["before", "after"],
            own["words"],
            "What the last word attends to, before training and after it.",
            room=56,
        ),
        "curve": curve(own["losses"]),
        "steps": str(STEPS),
        "n_words": str(LENGTH + 1),
        "fox_before": f"{own['before'][place]:.0%}",
        "fox_after": f"{own['after'][place]:.0%}",
        "before_known": f"{own['before_known']:.0%}",
        "before_new": f"{own['before_new']:.0%}",
        "after_known": f"{known[0]:.0%}",
        "after_new": f"{new[0]:.0%}",
        "first_loss": f"{own['losses'][0]:.2f}",
        "last_loss": f"{own['losses'][-1]:.4f}",
        "known": ", ".join(KNOWN),
        "new": ", ".join(NEW),
    }


def curve(losses: list[float]) -> str:
    """The loss after each step."""
    top, bottom, left, right = 12.0, 132.0, 40.0, 396.0
    highest = max(losses)
    points = " ".join(
        f"{left + (right - left) * step / (len(losses) - 1):.1f},{bottom - (bottom - top) * loss / highest:.1f}"
        for step, loss in enumerate(losses)
    )
    parts = [line(left, bottom, right, bottom, "faint"), line(left, top, left, bottom, "faint")]
    parts.append(node("polyline", points=points, class_="curve"))
    parts.append(write(left - 6, top + 6, f"{highest:.1f}", "quiet small", "end"))
    parts.append(write(left - 6, bottom + 4, "0", "quiet small", "end"))
    parts.append(write(left, bottom + 16, "step 1", "quiet small"))
    parts.append(write(right, bottom + 16, f"step {len(losses)}", "quiet small", "end"))
    parts.append(write((left + right) / 2, top + 10, "loss", "quiet", "middle"))
    return svg(154, parts, f"The loss falls from {losses[0]:.2f} to {losses[-1]:.4f}.")


CHAPTER = Chapter("learning", "What training does", (), measure, fill)
