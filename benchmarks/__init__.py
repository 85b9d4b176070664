"""Measurements beyond ``python -m sparsegpu bench``, run by hand; not part of the wheel."""
