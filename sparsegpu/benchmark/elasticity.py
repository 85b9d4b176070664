"""A plane-strain finite-element problem, assembled straight into blocks.

A cantilever of bilinear quadrilaterals, clamped on the left and bent by its own weight. Each
node has two displacements, so the stiffness matrix comes in 2 x 2 blocks by itself: the format is
the physics. Source of the element matrix: T. J. R. Hughes, "The Finite Element Method", Dover 2000,
sections 2.7 and 3.2 (B^T D B with 2 x 2 Gauss points).
"""

from __future__ import annotations

import numpy as np

from ..bsr import bsr_array


def element_stiffness(hx: float, hy: float, young: float, poisson: float) -> np.ndarray:
    """Return the (8, 8) stiffness of one hx x hy quadrilateral, unknowns (node, direction).

    Nodes go counterclockwise from the lower left; plane strain.
    """
    c = young / ((1 + poisson) * (1 - 2 * poisson))
    elastic = c * np.array(
        [
            [1 - poisson, poisson, 0],
            [poisson, 1 - poisson, 0],
            [0, 0, (1 - 2 * poisson) / 2],
        ]
    )
    corner = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    stiffness = np.zeros((8, 8))
    for xi, eta in corner / np.sqrt(3):
        dx = corner[:, 0] * (1 + corner[:, 1] * eta) / 4 * (2 / hx)
        dy = corner[:, 1] * (1 + corner[:, 0] * xi) / 4 * (2 / hy)
        strain = np.zeros((3, 8))
        strain[0, 0::2] = dx
        strain[1, 1::2] = dy
        strain[2, 0::2], strain[2, 1::2] = dy, dx
        stiffness += strain.T @ elastic @ strain * (hx * hy / 4)
    return stiffness


def cantilever(
    nx: int, ny: int, *, young: float = 1.0, poisson: float = 0.3
) -> tuple[bsr_array, np.ndarray]:
    """Return the stiffness matrix and the load of a clamped beam under its weight.

    Parameters
    ----------
    nx, ny : int
        Elements along and across the beam; they are unit squares.
    young, poisson : float
        Young's modulus and Poisson's ratio.

    Returns
    -------
    matrix : bsr_array (2 n, 2 n), float64, 2 x 2 blocks, n = nx * (ny + 1)
        Symmetric positive definite: the clamped nodes are eliminated.
    load : ndarray (2 n,)

    Examples
    --------
    >>> A, f = cantilever(3, 2)
    >>> A.shape, A.blocksize, bool(abs(A - A.T).max() < 1e-15)
    ((18, 18), (2, 2), True)
    """
    columns, rows = np.meshgrid(np.arange(nx), np.arange(ny), indexing="ij")
    # Node (i, j), i = 1..nx (column 0 is clamped), is unknown (i - 1) * (ny + 1) + j.
    step = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    node = (columns.ravel()[:, None] + step[:, 0] - 1) * (ny + 1) + rows.ravel()[:, None]
    node = node + step[:, 1]
    free = (columns.ravel()[:, None] + step[:, 0]) > 0

    stiffness = element_stiffness(1, 1, young, poisson).reshape(4, 2, 4, 2).transpose(0, 2, 1, 3)
    pair = free[:, :, None] & free[:, None, :]
    row = np.broadcast_to(node[:, :, None], pair.shape)[pair]
    column = np.broadcast_to(node[:, None, :], pair.shape)[pair]
    blocks = np.broadcast_to(stiffness, (len(node), *stiffness.shape))[pair]

    # Elements that share two nodes give the same block twice: duplicates mean the sum.
    order = np.argsort(row, kind="stable")
    n = nx * (ny + 1)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    matrix = bsr_array((blocks[order], column[order], indptr), shape=(2 * n, 2 * n))
    matrix.sum_duplicates()

    load = np.zeros((n, 2))
    np.subtract.at(load[:, 1], node[free], 0.25)  # a quarter of each element's weight to a node
    return matrix, load.ravel()
