"""Kernels on the host: their own source, compiled by a C++ compiler and run thread by thread.

What a GPU's memory order, timing and registers do is not emulated. What is: every index, layout,
swizzle, barrier and phase; asynchronous copies, which arrive late and in any order, and whose bytes
are wrong before; products of ``wgmma``, which are made when they are waited for, and whose sums are
wrong before; threads that wait for others for ever; arrays behind which no memory may be touched.
So a kernel is debugged before it first meets a GPU, and its logic is tested where there is none.
With a seed in the environment variable EMULATOR_ORDER warps get ahead of each other by as much as
barriers allow.

`include` has the parts of CUDA that kernels use, and twins of the headers in ``cuda_src/ptx`` that
are written in PTX. Everything else is included from ``cuda_src`` as it stands.
"""
