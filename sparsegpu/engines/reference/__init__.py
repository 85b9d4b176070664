"""Plain NumPy: the definition of every operation, to be read beside its formula."""
