"""Arrays of libraries that are neither NumPy nor CuPy."""

from __future__ import annotations


class OfAnotherLibrary:
    """A host array that speaks DLPack (and, in a subclass, NumPy's protocol)."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
