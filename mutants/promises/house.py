"""What layers, tables and the command promise."""

from __future__ import annotations

from mutants.hunt import Mutant

HOUSE = (
    Mutant(
        "a key-value cache keeps what it has when it grows",
        "regard/nn/cache.py",
        "room[..., :start, :] = old[..., :start, :]",
        "room[..., :start, :] = 0",
        ("tests/nn/test_cache.py",),
    ),
    Mutant(
        "a fixed cache refuses another memory",
        "regard/nn/cache.py",
        "if (keys.shape[0], keys.shape[-2]) != (batch, length):",
        "if False:",
        ("tests/nn/test_cache.py",),
    ),
    Mutant(
        "beam search follows each sequence's own state",
        "regard/nn/beam_search.py",
        "self.state.reorder(torch.tensor(chosen, device=self.device))",
        "self.state.reorder(torch.arange(self.batch * self.beams, device=self.device))",
        ("tests/nn/test_beam_search.py",),
    ),
    Mutant(
        "beam search ends when nothing better can come",
        "regard/nn/beam_search.py",
        "reachable = self._rank(max(each.score for each in following), self.max_length + 1)",
        "reachable = self._rank(max(each.score for each in following), 1)",
        ("tests/nn/test_beam_search.py",),
    ),
    Mutant(
        "at the limit beam search compares whole sequences",
        "regard/nn/beam_search.py",
        "        else:\n            self._end()",
        "        else:\n            pass",
        ("tests/nn/test_beam_search.py",),
    ),
    Mutant(
        "top-p keeps the first token",
        "regard/nn/generation.py",
        "before = ordered.cumsum(-1) - ordered  # the first is always kept",
        "before = ordered.cumsum(-1)",
        ("tests/nn/test_generation.py",),
    ),
    Mutant(
        "PyTorch's True means that a query may not look",
        "regard/nn/torch_masks.py",
        "allowed = ~pad(attn_mask, (0, added_keys))",
        "allowed = pad(attn_mask, (0, added_keys))",
        ("tests/nn/test_multi_head.py",),
    ),
    Mutant(
        "keys that follow every sequence stay in sight",
        "regard/nn/torch_masks.py",
        "if is_causal and not added_keys:",
        "if is_causal:",
        ("tests/nn/test_torch_masks.py", "tests/nn/test_multi_head.py"),
    ),
    Mutant(
        "leave-one-out leaves the row out",
        "regard/database/bandwidth.py",
        "self.scores[: len(places.quantities)].diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)",
        "pass",
        ("tests/database/test_bandwidth.py",),
    ),
    Mutant(
        "a sorted table is not judged by its first rows",
        "regard/database/bandwidth.py",
        "return torch.randperm(n_rows, generator=torch.Generator().manual_seed(0))",
        "return torch.arange(n_rows)",
        ("tests/database/test_bandwidth.py",),
    ),
    Mutant(
        "rows with a missing key or value are left out",
        "regard/database/pairs.py",
        "return (~missing).nonzero().flatten()",
        "return torch.arange(len(missing))",
        ("tests/database/test_database.py tests/database/test_asking.py",),
    ),
    Mutant(
        "NaN in a column counts as missing",
        "regard/database/entries.py",
        "return isinstance(entry, float) and entry != entry",
        "return False",
        ("tests/database/test_lookup.py tests/database/test_inference.py tests/database/test_database.py",),
    ),
    Mutant(
        "names on a terminal have no control characters",
        "regard/plots/reading.py",
        'line = "".join(each if each.isprintable() or each in JOINERS else "�" for each in line)',
        "line = line",
        ("tests/plots/test_terminal.py", "tests/plots", "tests/cli/test_see.py"),
    ),
    Mutant(
        "a user's mistake is one line and no traceback",
        "regard/cli/__init__.py",
        "        except RegardError as error:",
        "        except ZeroDivisionError as error:",
        ("tests/cli/test_ask.py", "tests/cli/test_command.py"),
    ),
    Mutant(
        "a closed pipe is no failure",
        "regard/cli/console.py",
        "    except BrokenPipeError:\n        _leave()",
        "    except ZeroDivisionError:\n        _leave()",
        ("tests/cli/test_command.py",),
    ),
)
