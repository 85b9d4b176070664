// The only place where an accumulator becomes an output: twin of sparsegpu/_epilogue.py.
//
//     out = act( beta * input + left_alpha[r] * (alpha * acc) * right_alpha[c] )
//
// -DEPILOGUE=identity  out is the accumulator, rounded once (the argument is not looked at)
//            scaled    the formula in compute precision, then one rounding
//            exact     int32 accumulators to int32 output in 64-bit integers, saturating
// -DACT=none | relu | gelu | gelu_erf | silu
// -DINPUT, -DLEFT, -DRIGHT   element types of input, left_alpha and right_alpha; none: absent
//
// The host side is engines/cuda/_epilogue_args.py, which chooses all of them. In a kernel:
//
//     extern "C" __global__ void k(..., const __grid_constant__ Epilogue<Acc<T>::type> epilogue) {
//       Finish<Acc<T>::type, OUT> finish(epilogue, batch_shape, b);   // once a tile
//       out[element_offset(out_view, r, c)] = finish(acc, r, c);
//     }
//
// Threads that hold fragments of a tile in registers have the side operands fetched together
// where these lie well:
//
//       finish.times_alpha(sums);
//       finish.walk(first_col, TILE_N, columns, [&](auto walk) {   // OneOfRow, Pairwise, Anyhow
//         const auto rows = finish.rows(walk, r);
//         finish.columns<PAIRS>(scales, c);                        // not if Anyhow
//         finish.fragment<PAIRS>(walk, rows, scales, sums, values, r, c);
//         finish.activated<4 * PAIRS>(values);
//         out[...] = round_to<OUT>(values[i]);
//         out[...] = finish.after_alpha(sum, r, c);                // if Anyhow
//       });
#pragma once

#include "common/activation.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

#ifndef EPILOGUE
#define EPILOGUE identity
#endif
#ifndef ACT
#define ACT none
#endif
#ifndef INPUT
#define INPUT none
#endif
#ifndef LEFT
#define LEFT none
#endif
#ifndef RIGHT
#define RIGHT none
#endif

struct none {};  // the type of an operand that is absent
template <typename S>
constexpr bool PRESENT = true;
template <>
constexpr bool PRESENT<none> = false;

template <typename S>
constexpr bool IS_F32 = false;
template <>
constexpr bool IS_F32<f32> = true;

enum class EpilogueMode { identity, scaled, exact };

// The type that the formula is computed in: int8 products dequantise in float32.
template <typename A, EpilogueMode MODE = EpilogueMode::EPILOGUE>
struct Compute {
  typedef A type;
};
template <EpilogueMode MODE>
struct Compute<s32, MODE> {
  typedef f32 type;
};
template <>
struct Compute<s32, EpilogueMode::exact> {
  typedef s64 type;
};

template <bool FIRST, typename X, typename Y>
struct Either {
  typedef X type;
};
template <typename X, typename Y>
struct Either<false, X, Y> {
  typedef Y type;
};

// input is any matrix that broadcasts to out; the alphas are vectors (`row` is their stride).
template <typename C>
struct EpilogueArgs {
  View input, left_alpha, right_alpha;
  int alpha_is_one;
  int padding;
  C alpha, beta;
};
static_assert(sizeof(EpilogueArgs<f32>) == 184, "_epilogue_args.py packs this");
static_assert(sizeof(EpilogueArgs<c128>) == 208, "_epilogue_args.py packs this");

template <typename A>
using Epilogue = EpilogueArgs<typename Compute<A>::type>;

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

// How the side operands of a tile are fetched: `input` has one value for all of a row, or it has
// neighbours that one access takes, as right_alpha has in both cases; or element by element.
struct OneOfRow {
  static constexpr bool FRAGMENTS = true, ONE = true;
};
struct Pairwise {
  static constexpr bool FRAGMENTS = true, ONE = false;
};
struct Anyhow {
  static constexpr bool FRAGMENTS = false, ONE = false;
};

// The epilogue of one matrix of the batch: finish(accumulator, row, column) is the output.
template <typename A, typename OUT_TYPE, EpilogueMode MODE = EpilogueMode::EPILOGUE,
          Activation F = Activation::ACT>
struct Finish {
  static constexpr bool IDENTITY = MODE == EpilogueMode::identity;
  typedef typename Compute<A, MODE>::type Argument;
  // int32 to int32 must not pass through float32.
  typedef typename Either<IDENTITY && sizeof(A) == sizeof(OUT_TYPE), A, Argument>::type C;
  static constexpr bool HAS_INPUT = !IDENTITY && PRESENT<INPUT>;
  static constexpr bool HAS_LEFT = MODE == EpilogueMode::scaled && PRESENT<LEFT>;
  static constexpr bool HAS_RIGHT = MODE == EpilogueMode::scaled && PRESENT<RIGHT>;
  static constexpr bool STRETCHED = LOGISTIC<F> && IS_F32<A>;  // as fragment() gives values
  const EpilogueArgs<Argument>& e;
  const INPUT* input;  // of this matrix of the batch
  const LEFT* left;
  const RIGHT* right;

  __device__ __forceinline__ Finish(const EpilogueArgs<Argument>& e, const Batch& shape,
                                    long long b)
      : e(e) {
    if constexpr (HAS_INPUT) input = batch_ptr<const INPUT>(e.input, shape, b);
    if constexpr (HAS_LEFT) left = batch_ptr<const LEFT>(e.left_alpha, shape, b);
    if constexpr (HAS_RIGHT) right = batch_ptr<const RIGHT>(e.right_alpha, shape, b);
  }

  __device__ __forceinline__ OUT_TYPE operator()(A acc, long long r, long long c) const {
    A one[1] = {acc};
    times_alpha(one);
    return after_alpha(one[0], r, c);
  }

  // Multiply sums by alpha. Of a tile they are all multiplied behind one branch: one by one, each
  // would cost an instruction also where alpha is one. What is not float32, others multiply.
  template <int N>
  __device__ __forceinline__ void times_alpha(A (&sums)[N]) const {
    if constexpr (!IDENTITY && IS_F32<A>) {
      if (!e.alpha_is_one) {
#pragma unroll
        for (int n = 0; n < N; ++n) sums[n] = mul_rn(e.alpha, sums[n]);
      }
    }
  }

  __device__ __forceinline__ OUT_TYPE after_alpha(A acc, long long r, long long c) const {
    C scale_row = C(0), scale_col = C(0), term = C(0);  // not looked at where absent
    if constexpr (HAS_LEFT) scale_row = left_at(r);
    if constexpr (HAS_RIGHT) scale_col = widen(right[c * e.right_alpha.row]);
    if constexpr (HAS_INPUT) term = added(input[element_offset(e.input, r, c)]);
    return output(linear<false>(computed(acc), scale_row, scale_col, term));
  }

  // Call use(walk) with the way in which the side operands of columns c .. c + n - 1 are fetched.
  template <typename Use>
  __device__ __forceinline__ void walk(long long c, int n, long long columns, Use use) const {
    const bool inside = c + n <= columns;
    if constexpr (HAS_RIGHT) {
      if (!inside || e.right_alpha.row != 1 || !aligned(right + c)) return use(Anyhow());
    }
    if constexpr (HAS_INPUT) {
      if (e.input.col == 0) return use(OneOfRow());
      if constexpr (sizeof(C) <= 4) {  // twice as wide, a fragment's terms would not fit registers
        if (inside && e.input.col == 1 && e.input.row % 2 == 0 && aligned(input + c))
          return use(Pairwise());
      }
      use(Anyhow());
    } else {
      use(OneOfRow());
    }
  }

  // What depends on the row alone, for the rows r and r + 8 of a fragment.
  struct Rows {
    C scale[2], term[2];
  };
  template <typename Walk>
  __device__ __forceinline__ Rows rows(Walk, long long r) const {
    Rows rows = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows.scale[i] = stretched(C(1));
      if constexpr (HAS_LEFT) rows.scale[i] = stretched(left_at(r + 8 * i));
      if constexpr (HAS_INPUT && Walk::ONE)
        rows.term[i] = stretched_term(input[(r + 8 * i) * e.input.row]);
    }
    return rows;
  }

  // What depends on the column alone: number 2 * j + k is of column c + 8 * j + k (k = 0, 1).
  template <int PAIRS>
  __device__ __forceinline__ void columns(C* scales, long long c) const {
    if constexpr (HAS_RIGHT) fetch<PAIRS>(scales, right + c, [](RIGHT x) { return widen(x); });
  }

  // The formula but for the activation, for a thread's part of a tensor-core fragment of PAIRS * 8
  // columns: number 4 * j + 2 * i + k is row r + 8 * i, column c + 8 * j + k (i, k = 0, 1).
  template <int PAIRS, typename Walk>
  __device__ __forceinline__ void fragment(Walk, const Rows& rows, const C* scales, const A* sums,
                                           C* values, long long r, long long c) const {
    C terms[2][2 * PAIRS] = {};
    if constexpr (HAS_INPUT && !Walk::ONE) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        fetch<PAIRS>(terms[i], input + (r + 8 * i) * e.input.row + c,
                     [&](INPUT x) { return stretched_term(x); });
    }
#pragma unroll
    for (int n = 0; n < 4 * PAIRS; ++n) {
      const int i = n / 2 % 2, at = n / 4 * 2 + n % 2;
      values[n] = linear<STRETCHED>(computed(sums[n]), rows.scale[i], scales[at],
                                    Walk::ONE ? rows.term[i] : terms[i][at]);
    }
  }

  // The activations of what fragment() gave.
  template <int N>
  __device__ __forceinline__ void activated(C* values) const {
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      if constexpr (STRETCHED) {
        activate_two<F>(values[n], values[n + 1]);
      } else {
        values[n] = activate<F>(values[n]);
        values[n + 1] = activate<F>(values[n + 1]);
      }
    }
  }

  // The last step: activation and rounding.
  __device__ __forceinline__ OUT_TYPE output(C value) const {
    return round_to<OUT_TYPE>(activate<F>(value));
  }

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
  __device__ __forceinline__ C added(INPUT x) const { return mul_rn(e.beta, widen(x)); }

  static __device__ __forceinline__ C stretched(C x) {
    if constexpr (STRETCHED) return STRETCH<F> * x;
    return x;
  }
  __device__ __forceinline__ C stretched_term(INPUT x) const {
    if constexpr (STRETCHED) return stretched(e.beta * widen(x));
    return added(x);
  }

  template <bool STRETCHED>
  static __device__ __forceinline__ C linear(C value, C scale_row, C scale_col, C term) {
    if constexpr (STRETCHED) {  // rounded anyway, and so it may be contracted
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
