"""Random calls of every public function, held against dense formulas or a documented error.

A *case* (`case.Case`) is one call: host values by argument, and an oracle, the dense formula over
the same values, written from the contract's text alone. `draws` draws well-formed arguments,
`defects` spoils one of them. The runner lays the arrays out in memory as no user would, calls, and
counts the outcome: *right* (within the accuracy rule) or *refused* (a spoiled argument met an
error that the docstring names, and nothing was written). Everything else is a failure, which
hypothesis minimises.

``python -m tools.fuzz`` runs many cases; ``tests/test_fuzz.py`` runs some in the suite.
"""
