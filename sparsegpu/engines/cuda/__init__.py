"""The host side of the kernels in ``cuda_src``: the other engines' functions, on CuPy."""
