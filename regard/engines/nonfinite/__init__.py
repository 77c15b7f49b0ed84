"""NaN and infinity among the inputs: where they show, and an ordinary run on what is left."""
