"""A stand-in for ``nvmath.bindings.cusparseLt`` that takes notes and computes nothing."""

import ctypes
import enum


class Bindings:
    """The names of ``nvmath.bindings.cusparseLt``; addresses are numbers that count up."""

    class cuSPARSELtError(Exception):
        """What the library refuses."""

    MatmulAlg = enum.IntEnum("MatmulAlg", {"DEFAULT": 0})
    Sparsity = enum.IntEnum("Sparsity", {"SPARSITY_50_PERCENT": 0})
    ComputeType = enum.IntEnum("ComputeType", {"COMPUTE_32I": 0, "COMPUTE_32F": 2})
    MatmulDescAttribute = enum.IntEnum(
        "MatmulDescAttribute", {"ACTIVATION_RELU": 0, "BIAS_POINTER": 8}
    )
    MatmulAlgAttribute = enum.IntEnum(
        "MatmulAlgAttribute",
        {
            "CONFIG_ID": 0,
            "CONFIG_MAX_ID": 1,
            "SPLIT_K": 3,
            "SPLIT_K_MODE": 4,
            "SPLIT_K_BUFFERS": 5,
        },
    )

    def __init__(self, version=(0, 8, 1)):
        self.version, self.made, self.calls = version, 0, []
        self.alive, self.destroyed, self.selections = {}, [], {}
        self.refused_algorithms = set()

    def get_property(self, kind):
        return self.version[kind]

    def _new(self, kind, *arguments):
        self.made += 1
        self.alive[self.made] = kind, *arguments
        return self.made

    def _gone(self, address):
        self.destroyed.append(self.alive.pop(address)[0])

    def init(self):
        return self._new("handle")

    def structured_descriptor_init(
        self, handle, rows, cols, ld, alignment, value_type, order, sparsity
    ):
        return self._new("sparse", rows, cols, ld, alignment, value_type, order, sparsity)

    def dense_descriptor_init(self, handle, rows, cols, ld, alignment, value_type, order):
        return self._new("dense", rows, cols, ld, alignment, value_type, order)

    def matmul_descriptor_init(self, handle, op_a, op_b, mat_a, mat_b, mat_c, mat_d, compute_type):
        assert all(self.alive[m][0] in {"sparse", "dense"} for m in (mat_a, mat_b, mat_c, mat_d))
        return self._new("product", op_a, op_b, compute_type)

    def matmul_desc_set_attribute(self, handle, matmul_descr, attribute, data, data_size):
        value = {4: ctypes.c_int32, 8: ctypes.c_int64}[data_size].from_address(data).value
        self.calls.append((self.MatmulDescAttribute(attribute).name, value))

    def matmul_alg_selection_init(self, handle, matmul_descr, alg):
        address = self._new("selection")
        self.selections[address] = dict.fromkeys(self.MatmulAlgAttribute, 0) | {1: 8, 3: 1}
        return address

    def matmul_alg_get_attribute(self, handle, alg_selection, attribute, data, data_size):
        assert data_size == 4
        ctypes.c_int32.from_address(data).value = self.selections[alg_selection][attribute]

    def matmul_alg_set_attribute(self, handle, alg_selection, attribute, data, data_size):
        value = ctypes.c_int32.from_address(data).value
        self.selections[alg_selection][attribute] = value
        self.calls.append((self.MatmulAlgAttribute(attribute).name, value))

    def matmul_plan_init(self, handle, matmul_descr, alg_selection):
        if self.selections[alg_selection][0] in self.refused_algorithms:
            raise self.cuSPARSELtError("NOT_SUPPORTED")
        return self._new("plan", alg_selection)

    def matmul_get_workspace(self, handle, plan):
        return 1024

    def matmul(
        self, handle, plan, alpha, d_a, d_b, beta, d_c, d_d, workspace, streams, num_streams
    ):
        stream = ctypes.c_void_p.from_address(streams).value
        self.calls.append(("matmul", alpha, d_a, d_b, beta, d_c, d_d, workspace, stream))
        assert num_streams == 1

    def sp_mma_compressed_size2(self, handle, sparse_mat_descr):
        raise NotImplementedError

    def sp_mma_compress2(
        self,
        handle,
        sparse_mat_descr,
        is_sparse_a,
        op,
        d_dense,
        d_compressed,
        d_compressed_buffer,
        stream,
    ):
        raise NotImplementedError

    def destroy(self, handle_ptr):
        self._gone(handle_ptr)

    mat_descriptor_destroy = matmul_descriptor_destroy = destroy
    matmul_alg_selection_destroy = matmul_plan_destroy = destroy
