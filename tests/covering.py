"""Few combinations of what a test goes through, in which every two values still meet.

A value of one parameter is not expected to matter for two others at once. Of two parameters that
is the whole product; of more it is much less.
"""

from itertools import combinations, product

import pytest


def covering(tuples):
    """Return few of some tuples: each two values that one of them holds meet in one that is kept.

    The tuples need not be a whole product: what does not go together is left out before.
    """
    pairs = {values: set(combinations(enumerate(map(str, values)), 2)) for values in tuples}
    if any(len(values) < 2 for values in pairs):
        return list(pairs)
    kept, unmet = [], set().union(*pairs.values())
    while unmet:
        kept.append(max(pairs, key=lambda values: len(pairs[values] & unmet)))
        unmet -= pairs[kept[-1]]
    return kept


def named(values):
    """Return the name of a combination in a test's."""
    return "-".join(map(str, values)).replace(" ", "")


def covered(**lists):
    """Let a test go through lists of values, by argument name: every two values meet."""
    chosen = covering(product(*lists.values()))
    return pytest.mark.parametrize(list(lists), chosen, ids=map(named, chosen))
