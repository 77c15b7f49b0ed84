"""Compiled code alone: loops over rows, tiles and lists, called by `passes/` and `traversal/`."""
