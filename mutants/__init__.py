"""Mutants: the library with one promise taken away, and the tests that must notice.

    python -m mutants                     # all of them, two at a time; at most an hour
    python -m mutants --only "ties" dropout
    python -m mutants --list

`promises/` names each promise with the text that keeps it and the text that breaks it. A mutant is killed if a test
fails, and survives if none does: then the promise has no test. A text that is no longer found, or found twice, is an
error: the table cannot rot in silence.

An entry names the tests that run first. For what survives them, `--map` runs the suite once under a tracer, which notes
which tests reach which lines (`.mutants/map.json`), and tries those; what compiled kernels run no tracer sees.
"""
