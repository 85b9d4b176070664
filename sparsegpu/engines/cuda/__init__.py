"""The host side of the kernels in ``cuda_src``: the same functions as the other engines, on CuPy."""
