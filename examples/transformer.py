"""A Transformer learns to translate; each word that it writes attends to other words of the source."""

from itertools import product

import torch

from regard import nn
from regard.plots import draw_matrix

# Spanish puts the adjective after its noun, and both the article and the adjective follow the noun's gender.
NOUNS = {
    "dog": "el perro",
    "cat": "el gato",
    "book": "el libro",
    "cow": "la vaca",
    "house": "la casa",
    "door": "la puerta",
}
ADJECTIVES = {"black": "negr", "white": "blanc", "small": "pequeñ", "old": "viej", "red": "roj"}
pairs = {
    f"the {adjective} {noun}": f"{spanish} {stem}{'a' if spanish.startswith('la') else 'o'}"
    for (noun, spanish), (adjective, stem) in product(NOUNS.items(), ADJECTIVES.items())
}
english = sorted({word for each in pairs for word in each.split()})
spanish = ["<start>", "<stop>", *sorted({word for each in pairs.values() for word in each.split()})]
source = torch.tensor([[english.index(word) for word in each.split()] for each in pairs])
target = torch.tensor([[0, *map(spanish.index, each.split()), 1] for each in pairs.values()])
sentence = "the white house"
unseen = list(pairs).index(sentence)
known = torch.arange(len(pairs)) != unseen  # it learns from all but this one

torch.manual_seed(3)
torch.set_num_threads(1)  # threads would only wait for each other on tensors so small
model = nn.Seq2SeqTransformer(len(english), len(spanish), dim=32, heads=1, layers=1, dropout=0.0)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(150):
    scores = model(source[known], target[known, :-1])  # of the token after each
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), target[known, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

[written] = nn.generate(model.eval(), source[unseen : unseen + 1], start=0, stop=1, max_length=5, attention=True)
words = [spanish[token] for token in written.tokens]
print(sentence, "→", " ".join(words))
assert " ".join(words) == pairs[sentence]
print(draw_matrix(written.attention[0, 0], words, sentence.split(), colour=False))
