// The only place where an accumulator becomes an output: twin of sparsegpu/_epilogue.py.
//
//     out = act( beta * input + left_alpha[r] * (alpha * acc) * right_alpha[c] )
//
// -DEPILOGUE=identity  out is the accumulator, rounded once (the argument is not looked at)
//            scaled    the formula in compute precision, then one rounding
//            exact     int32 accumulators to int32 output in 64-bit integers, saturating
// -DACT=none | relu | gelu | gelu_erf | silu
//
// The host side is engines/cuda/_epilogue_args.py, which chooses both. In a kernel:
//
//     extern "C" __global__ void k(..., const __grid_constant__ Epilogue<Acc<T>::type> epilogue) {
//       Finish<Acc<T>::type, OUT> finish(epilogue, batch_shape, b);   // once a tile
//       out[element_offset(out_view, r, c)] = finish(acc, r, c);
//     }
#pragma once

#include "common/types.cuh"
#include "common/view.cuh"

#ifndef EPILOGUE
#define EPILOGUE identity
#endif
#ifndef ACT
#define ACT none
#endif

enum class Activation { none, relu, gelu, gelu_erf, silu };
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

// input is any matrix that broadcasts to out; the alphas are vectors (`row` is their stride).
// An absent one has ptr == nullptr. The `type`s are DtypeCode.
template <typename C>
struct EpilogueArgs {
  View input, left_alpha, right_alpha;
  int input_type, left_type, right_type;
  int alpha_is_one;
  int padding[2];
  C alpha, beta;
};
static_assert(sizeof(EpilogueArgs<f32>) == 200, "_epilogue_args.py packs this");
static_assert(sizeof(EpilogueArgs<c128>) == 224, "_epilogue_args.py packs this");

template <typename A>
using Epilogue = EpilogueArgs<typename Compute<A>::type>;

// Element i of an array whose type is known at run time only, in compute type C.
template <typename C>
struct LoadAs;
template <>
struct LoadAs<f32> {
  static __device__ __forceinline__ f32 at(const void* p, long long i, int type) {
    switch (type) {
      case CODE_F32:
        return static_cast<const f32*>(p)[i];
      case CODE_BF16:
        return to_acc(static_cast<const bf16*>(p)[i]);
      case CODE_F16:
        return to_acc(static_cast<const f16*>(p)[i]);
      case CODE_S32:
        return __int2float_rn(static_cast<const s32*>(p)[i]);
      case CODE_S8:
        return f32(static_cast<const s8*>(p)[i]);
      default:  // CODE_E4M3
        return to_acc(static_cast<const e4m3*>(p)[i]);
    }
  }
};
template <>
struct LoadAs<f64> {
  static __device__ __forceinline__ f64 at(const void* p, long long i, int type) {
    return type == CODE_F32 ? f64(static_cast<const f32*>(p)[i]) : static_cast<const f64*>(p)[i];
  }
};
template <>
struct LoadAs<s64> {
  static __device__ __forceinline__ s64 at(const void* p, long long i, int type) {
    return type == CODE_S8 ? s64(static_cast<const s8*>(p)[i]) : s64(static_cast<const s32*>(p)[i]);
  }
};
template <typename R>
struct LoadAs<Complex<R>> {
  static __device__ __forceinline__ Complex<R> at(const void* p, long long i, int type) {
    return type == CODE_F32 ? Complex<R>(static_cast<const f32*>(p)[i])
                            : static_cast<const Complex<R>*>(p)[i];
  }
};

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

__device__ __forceinline__ f32 exp_of(f32 x) {
  return expf(x);
}
__device__ __forceinline__ f64 exp_of(f64 x) {
  return exp(x);
}
__device__ __forceinline__ f32 tanh_of(f32 x) {
  return tanhf(x);
}
__device__ __forceinline__ f64 tanh_of(f64 x) {
  return tanh(x);
}
__device__ __forceinline__ f32 erf_of(f32 x) {
  return erff(x);
}
__device__ __forceinline__ f64 erf_of(f64 x) {
  return erf(x);
}

// NaN passes through every activation.
template <Activation F, typename C>
__device__ __forceinline__ C activate(C x) {
  if constexpr (F == Activation::none) {
    return x;
  } else if constexpr (F == Activation::relu) {
    return x < C(0) ? C(0) : x;
  } else if constexpr (F == Activation::silu) {
    return x / (C(1) + exp_of(-x));
  } else if constexpr (F == Activation::gelu) {
    const C inner = C(0.79788456080286535588) * (x + C(0.044715) * x * x * x);
    return C(0.5) * x * (C(1) + tanh_of(inner));
  } else {
    return C(0.5) * x * (C(1) + erf_of(x * C(0.70710678118654752440)));
  }
}

// The epilogue of one matrix of the batch: finish(accumulator, row, column) is the output.
template <typename A, typename OUT_TYPE, EpilogueMode MODE = EpilogueMode::EPILOGUE,
          Activation F = Activation::ACT>
struct Finish {
  typedef typename Compute<A, MODE>::type C;
  const EpilogueArgs<C>& e;
  long long input, left, right;  // offsets of this matrix of the batch, in elements

  __device__ __forceinline__ Finish(const EpilogueArgs<C>& e, const Batch& shape, long long b)
      : e(e), input(0), left(0), right(0) {
    if constexpr (MODE != EpilogueMode::identity) {
      if (b != 0) {
        input = batch_offset(e.input, shape, b);
        left = batch_offset(e.left_alpha, shape, b);
        right = batch_offset(e.right_alpha, shape, b);
      }
    }
  }

  __device__ __forceinline__ OUT_TYPE operator()(A acc, long long r, long long c) const {
    if constexpr (MODE == EpilogueMode::identity && sizeof(A) == sizeof(OUT_TYPE)) {
      return round_to<OUT_TYPE>(acc);  // int32 to int32 must not pass through float32
    } else {
      C value = C(acc);
      if constexpr (MODE != EpilogueMode::identity) {
        if (!e.alpha_is_one) value = mul_rn(e.alpha, value);
        if constexpr (MODE == EpilogueMode::scaled) {
          if (e.left_alpha.ptr)
            value = mul_rn(
                LoadAs<C>::at(e.left_alpha.ptr, left + r * e.left_alpha.row, e.left_type), value);
          if (e.right_alpha.ptr)
            value = mul_rn(value, LoadAs<C>::at(e.right_alpha.ptr, right + c * e.right_alpha.row,
                                                e.right_type));
        }
        if (e.input.ptr) {
          const long long at = input + element_offset(e.input, r, c);
          value = add_rn(mul_rn(e.beta, LoadAs<C>::at(e.input.ptr, at, e.input_type)), value);
        }
        value = activate<F>(value);
      }
      return round_to<OUT_TYPE>(value);
    }
  }
};
