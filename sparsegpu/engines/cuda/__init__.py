"""The host side of the kernels in ``cuda_src``: the functions of the other engines, on CuPy."""
