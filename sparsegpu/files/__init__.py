"""Sparse arrays of every class to files and back."""
