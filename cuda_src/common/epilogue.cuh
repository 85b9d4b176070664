// The only place where an accumulator becomes an output: twin of sparsegpu/_epilogue.py.
//
//     out = act( beta * input + left_alpha[r] * (alpha * acc) * right_alpha[c] )
//
// A kernel takes its epilogue from common/kernel_epilogue.cuh:
//
//     extern "C" __global__ void k(..., const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
//       const KernelEpilogue<A, OUT> finish(epilogue, batch_shape, b);  // once a tile
//       out[element_offset(out_view, r, c)] = finish(acc, r, c);
//     }
//
// Threads that hold fragments of a tile in registers load the side operands with vector accesses
// where their layout allows it:
//
//       finish.times_alpha(sums);
//       finish.dispatch_access(first_col, TILE_N, columns, [&](auto access) {
//         const auto rows = finish.rows(access, r);
//         finish.columns<PAIRS>(scales, c);                        // not if Elementwise
//         finish.fragment<PAIRS>(access, rows, scales, sums, values, r, c);
//         finish.activated<4 * PAIRS>(values);
//         out[...] = round_to<Out>(values[i]);
//         out[...] = finish.after_alpha(sum, r, c);                // if Elementwise
//       });
#pragma once

#include "common/activation.cuh"
#include "common/offset_of.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

namespace sparsegpu {

struct none {};  // the type of an operand that is absent
template <typename S>
constexpr bool PRESENT = true;
template <>
constexpr bool PRESENT<none> = false;

template <typename S>
constexpr bool IS_F32 = false;
template <>
constexpr bool IS_F32<f32> = true;

// identity: out is the accumulator, rounded once (the argument is not read)
// scaled:   the formula in compute precision, then one rounding
// exact:    int32 accumulators to int32 output in 64-bit integers, saturating
enum class EpilogueMode { identity, scaled, exact };

// The type that the formula is computed in: int8 products dequantise in float32.
template <typename A, EpilogueMode Mode>
struct Compute {
  typedef A type;
};
template <EpilogueMode Mode>
struct Compute<s32, Mode> {
  typedef f32 type;
};
template <>
struct Compute<s32, EpilogueMode::exact> {
  typedef s64 type;
};

// input is any matrix that broadcasts to out; the alphas are vectors (`row` is their stride).
template <typename C>
struct EpilogueArgs {
  View input, left_alpha, right_alpha;
  int alpha_is_one;
  int padding;
  C alpha, beta;
};
template <typename C>
constexpr bool PACKED_EPILOGUE_ARGS =
    OFFSET_OF(EpilogueArgs<C>, input) == 0 && OFFSET_OF(EpilogueArgs<C>, left_alpha) == 56 &&
    OFFSET_OF(EpilogueArgs<C>, right_alpha) == 112 &&
    OFFSET_OF(EpilogueArgs<C>, alpha_is_one) == 168 && OFFSET_OF(EpilogueArgs<C>, alpha) == 176 &&
    OFFSET_OF(EpilogueArgs<C>, beta) == 176 + sizeof(C) &&
    sizeof(EpilogueArgs<C>) == 176 + 2 * sizeof(C);
static_assert(PACKED_EPILOGUE_ARGS<f32> && PACKED_EPILOGUE_ARGS<f64> && PACKED_EPILOGUE_ARGS<s64> &&
                  PACKED_EPILOGUE_ARGS<c64> && PACKED_EPILOGUE_ARGS<c128>,
              "_epilogue_args.py packs this");

// Products and sums that are not contracted, so that real results equal the definition's bit for
// bit (int8 results would otherwise flip at ties).
template <typename C>
__device__ __forceinline__ C mul_rn(C a, C b) {
  return a * b;
}
__device__ __forceinline__ f32 mul_rn(f32 a, f32 b) {
  return __fmul_rn(a, b);
}
__device__ __forceinline__ f64 mul_rn(f64 a, f64 b) {
  return __dmul_rn(a, b);
}
template <typename C>
__device__ __forceinline__ C add_rn(C a, C b) {
  return a + b;
}
__device__ __forceinline__ f32 add_rn(f32 a, f32 b) {
  return __fadd_rn(a, b);
}
__device__ __forceinline__ f64 add_rn(f64 a, f64 b) {
  return __dadd_rn(a, b);
}

// Two neighbouring elements of a row.
template <typename E>
struct alignas(2 * sizeof(E)) Pair {
  E low, high;
};

// How the side operands of a tile are loaded: PerRow where `input` has one value a row, Vec2 where
// one access takes two neighbouring elements of `input` (in both cases also of right_alpha), and
// Elementwise otherwise.
struct PerRow {
  static constexpr bool FRAGMENTS = true, PER_ROW = true;
};
struct Vec2 {
  static constexpr bool FRAGMENTS = true, PER_ROW = false;
};
struct Elementwise {
  static constexpr bool FRAGMENTS = false, PER_ROW = false;
};

// The epilogue of one matrix of the batch: called with (accumulator, row, column) it returns the
// output. Input, Left and Right are the element types of input, left_alpha and right_alpha.
template <typename A, typename OutType, EpilogueMode Mode, Activation F, typename Input = none,
          typename Left = none, typename Right = none>
struct EpilogueOp {
  static constexpr bool IDENTITY = Mode == EpilogueMode::identity;
  static constexpr Activation ACTIVATION = F;
  typedef OutType Out;
  typedef typename Compute<A, Mode>::type Argument;
  typedef EpilogueArgs<Argument> Args;
  // int32 to int32 must not pass through float32.
  typedef typename Conditional<IDENTITY && sizeof(A) == sizeof(Out), A, Argument>::type C;
  static constexpr bool HAS_INPUT = !IDENTITY && PRESENT<Input>;
  static constexpr bool HAS_LEFT = Mode == EpilogueMode::scaled && PRESENT<Left>;
  static constexpr bool HAS_RIGHT = Mode == EpilogueMode::scaled && PRESENT<Right>;
  static constexpr bool PRESCALED = LOGISTIC<F> && IS_F32<A>;  // fragment() multiplies by PRESCALE
  const Args& e;
  const Input* input;  // of this matrix of the batch
  const Left* left;
  const Right* right;

  __device__ __forceinline__ EpilogueOp(const Args& e, const Batch& shape, long long b) : e(e) {
    if constexpr (HAS_INPUT) input = batch_ptr<const Input>(e.input, shape, b);
    if constexpr (HAS_LEFT) left = batch_ptr<const Left>(e.left_alpha, shape, b);
    if constexpr (HAS_RIGHT) right = batch_ptr<const Right>(e.right_alpha, shape, b);
  }

  __device__ __forceinline__ Out operator()(A acc, long long r, long long c) const {
    A one[1] = {acc};
    times_alpha(one);
    return after_alpha(one[0], r, c);
  }

  // Multiply float32 sums by alpha, all of a tile behind one branch: a select for each sum would
  // cost an instruction even where alpha is one. Other types are multiplied in computed().
  template <int N>
  __device__ __forceinline__ void times_alpha(A (&sums)[N]) const {
    if constexpr (!IDENTITY && IS_F32<A>) {
      if (!e.alpha_is_one) {
#pragma unroll
        for (int n = 0; n < N; ++n) sums[n] = mul_rn(e.alpha, sums[n]);
      }
    }
  }

  // The output of a sum that times_alpha() has multiplied.
  __device__ __forceinline__ Out after_alpha(A acc, long long r, long long c) const {
    C scale_row = C(0), scale_col = C(0), term = C(0);  // not read where absent
    if constexpr (HAS_LEFT) scale_row = left_at(r);
    if constexpr (HAS_RIGHT) scale_col = widen(right[c * e.right_alpha.row]);
    if constexpr (HAS_INPUT) term = added(input[element_offset(e.input, r, c)]);
    return output(linear<false>(computed(acc), scale_row, scale_col, term));
  }

  // Call use(access) with how the side operands of columns c .. c + n - 1 are loaded: PerRow, Vec2
  // or Elementwise.
  template <typename Use>
  __device__ __forceinline__ void dispatch_access(long long c, int n, long long columns,
                                                  Use use) const {
    const bool inside = c + n <= columns;
    if constexpr (HAS_RIGHT) {
      if (!inside || e.right_alpha.row != 1 || !aligned(right + c)) return use(Elementwise());
    }
    if constexpr (HAS_INPUT) {
      if (e.input.col == 0) return use(PerRow());
      if constexpr (sizeof(C) <= 4) {  // 8-byte terms of a fragment do not fit registers
        if (inside && e.input.col == 1 && e.input.row % 2 == 0 && aligned(input + c))
          return use(Vec2());
      }
      use(Elementwise());
    } else {
      use(PerRow());
    }
  }

  // What depends on the row alone, for the rows r and r + 8 of a fragment.
  struct Rows {
    C scale[2], term[2];
  };
  template <typename Access>
  __device__ __forceinline__ Rows rows(Access, long long r) const {
    Rows rows = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows.scale[i] = prescaled(C(1));
      if constexpr (HAS_LEFT) rows.scale[i] = prescaled(left_at(r + 8 * i));
      if constexpr (HAS_INPUT && Access::PER_ROW)
        rows.term[i] = prescaled_term(input[(r + 8 * i) * e.input.row]);
    }
    return rows;
  }

  // What depends on the column alone: number 2 * j + k is of column c + 8 * j + k (k = 0, 1).
  template <int PAIRS>
  __device__ __forceinline__ void columns(C* scales, long long c) const {
    if constexpr (HAS_RIGHT) fetch<PAIRS>(scales, right + c, [](Right x) { return widen(x); });
  }

  // The formula without the activation, for a thread's share of a tensor-core fragment of PAIRS * 8
  // columns: number 4 * j + 2 * i + k is row r + 8 * i, column c + 8 * j + k (i, k = 0, 1).
  template <int PAIRS, typename Access>
  __device__ __forceinline__ void fragment(Access, const Rows& rows, const C* scales, const A* sums,
                                           C* values, long long r, long long c) const {
    C terms[2][2 * PAIRS] = {};
    if constexpr (HAS_INPUT && !Access::PER_ROW) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        fetch<PAIRS>(terms[i], input + (r + 8 * i) * e.input.row + c,
                     [&](Input x) { return prescaled_term(x); });
    }
#pragma unroll
    for (int n = 0; n < 4 * PAIRS; ++n) {
      const int i = n / 2 % 2, at = n / 4 * 2 + n % 2;
      values[n] = linear<PRESCALED>(computed(sums[n]), rows.scale[i], scales[at],
                                    Access::PER_ROW ? rows.term[i] : terms[i][at]);
    }
  }

  // The activations of values that fragment() returned.
  template <int N>
  __device__ __forceinline__ void activated(C* values) const {
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      if constexpr (PRESCALED) {
        activate_two<F>(values[n], values[n + 1]);
      } else {
        values[n] = activate<F>(values[n]);
        values[n + 1] = activate<F>(values[n + 1]);
      }
    }
  }

  // The last step: activation and rounding.
  __device__ __forceinline__ Out output(C value) const { return round_to<Out>(activate<F>(value)); }

 private:
  template <typename S>
  static __device__ __forceinline__ C widen(S x) {
    return C(to_acc(x));
  }
  __device__ __forceinline__ C left_at(long long r) const {
    return widen(left[r * e.left_alpha.row]);
  }
  __device__ __forceinline__ C computed(A acc) const {
    if (!IDENTITY && !IS_F32<A> && !e.alpha_is_one) return mul_rn(e.alpha, C(acc));
    return C(acc);
  }
  __device__ __forceinline__ C added(Input x) const { return mul_rn(e.beta, widen(x)); }

  static __device__ __forceinline__ C prescaled(C x) {
    if constexpr (PRESCALED) return PRESCALE<F> * x;
    return x;
  }
  __device__ __forceinline__ C prescaled_term(Input x) const {
    if constexpr (PRESCALED) return prescaled(e.beta * widen(x));
    return added(x);
  }

  template <bool Prescaled>
  static __device__ __forceinline__ C linear(C value, C scale_row, C scale_col, C term) {
    if constexpr (Prescaled) {  // the activation rounds anyway, so this may be contracted to fma
      value *= scale_row;
      if constexpr (HAS_RIGHT) value *= scale_col;
      if constexpr (HAS_INPUT) value += term;
    } else {
      if constexpr (HAS_LEFT) value = mul_rn(scale_row, value);
      if constexpr (HAS_RIGHT) value = mul_rn(value, scale_col);
      if constexpr (HAS_INPUT) value = add_rn(term, value);
    }
    return value;
  }

  template <typename S>
  static __device__ __forceinline__ bool aligned(const S* pair) {
    return reinterpret_cast<unsigned long long>(pair) % sizeof(Pair<S>) == 0;
  }

  // to[2 * j + k] = use(from[8 * j + k]) for k = 0, 1 and j < PAIRS.
  template <int PAIRS, typename S, typename Use>
  static __device__ __forceinline__ void fetch(C* to, const S* from, Use use) {
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) {
      const Pair<S> two = *reinterpret_cast<const Pair<S>*>(from + 8 * j);
      to[2 * j] = use(two.low);
      to[2 * j + 1] = use(two.high);
    }
  }
};

}  // namespace sparsegpu
