"""The commands of ``python -m sparsegpu``."""
