"""Which pairs are visited, in which order: tile by tile, by the keys that rows list, by the support of entmax."""
