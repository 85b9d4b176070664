"""NumPy at useful speed: numba where loops matter, BLAS per block where that wins."""
