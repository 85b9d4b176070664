"""Kernels on the host: their own source, compiled by a C++ compiler and run thread by thread.

What a GPU's memory order, timing and registers do is not emulated, nor is a read of results of
``wgmma`` before they are waited for. What is: every index, layout, swizzle, barrier and phase;
asynchronous copies, which arrive late and in any order, and whose bytes are NaN before; threads
that wait for others for ever. So a kernel is debugged before it first meets a GPU, and its logic is
tested where there is none.

`include` has the parts of CUDA that kernels use, and twins of the headers in ``cuda_src/ptx`` that
are written in PTX. Everything else is included from ``cuda_src`` as it stands.
"""
