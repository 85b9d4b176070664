"""The vendor's 2:4 library as a backend: a declared subset of the operations."""
