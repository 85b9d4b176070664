// wgmma on the host (cuda_src/ptx/wgmma.cuh).
// Products are made when a thread waits for them: only then shared memory is read, and until then
// their sums are others and must stay so.
#pragma once

#include <functional>

#include "ptx/bulk_tensor.cuh"
#include "ptx/mma.cuh"

namespace sparsegpu {

template <int Width>
unsigned long long smem_descriptor(unsigned address, int stride, int leading) {
  if (address >= emulator::SHARED_BYTES) emulator::fail("a descriptor beyond shared memory");
  const unsigned long long mode = Width == 128 ? 1 : Width == 64 ? 2 : 3;
  return mode << 62 | (unsigned long long)(stride >> 4) << 32 |
         (unsigned long long)(leading >> 4) << 16 | address >> 4;
}

inline void wgmma_fence() {
  emulator::sync_warp();
}
inline unsigned long long smem_further(unsigned long long descriptor, int bytes) {
  return descriptor + (bytes >> 4);
}
// The products that a thread has under way.
struct Products {
  struct Sums {
    std::vector<unsigned char> bytes;
    int products;
  };
  std::map<void*, Sums> sums;  // by where they will be
  std::vector<std::function<void()>> open;
  std::vector<std::vector<std::function<void()>>> groups;
};
static Products products_of[1024];

// Start a product: add(d), later.
template <typename A, int N, typename Add>
void start_product(A (&d)[N], Add add) {
  Products& mine = products_of[threadIdx.x];
  unsigned char* const place = reinterpret_cast<unsigned char*>(d);
  const auto made = mine.sums.try_emplace(place);
  if (made.second) {
    made.first->second.bytes.assign(place, place + sizeof d);
    std::memset(place, emulator::NOT_YET, sizeof d);
  }
  ++made.first->second.products;
  mine.open.push_back([&mine, place, add] {
    Products::Sums& sums = mine.sums.at(place);
    add(*reinterpret_cast<A(*)[N]>(sums.bytes.data()));
    if (--sums.products > 0) return;
    for (size_t i = 0; i < sizeof d; ++i)
      if (place[i] != emulator::NOT_YET) emulator::fail("sums that were written under a product");
    std::memcpy(place, sums.bytes.data(), sizeof d);
    mine.sums.erase(place);
  });
}
inline void wgmma_commit() {
  Products& mine = products_of[threadIdx.x];
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}
template <int N>
void wgmma_wait() {
  Products& mine = products_of[threadIdx.x];
  if (!mine.open.empty()) emulator::fail("products of no group");
  emulator::give_way();
  for (; int(mine.groups.size()) > N; mine.groups.erase(mine.groups.begin()))
    for (const auto& product : mine.groups.front()) product();
  emulator::sync_warp();
}
template <int N>
void wgmma_wait_behind(float) {
  wgmma_wait<N>();
}
template <int Registers>
void setmaxnreg_dec() {}
template <int Registers>
void setmaxnreg_inc() {}

// Element k of row (of b: column) n of an operand in shared memory.
template <typename E, bool MN_MAJOR>
typename Acc<E>::type operand_element(unsigned long long descriptor, int n, int k) {
  const unsigned start = (descriptor & 0x3FFF) << 4;
  const unsigned leading = (descriptor >> 16 & 0x3FFF) << 4;
  const unsigned stride = (descriptor >> 32 & 0x3FFF) << 4;
  const unsigned width = 256 >> (descriptor >> 62), wide = width / sizeof(E);
  unsigned at = MN_MAJOR
                    ? start + k / 8 * stride + k % 8 * width + n % wide * 2 + n / wide * leading
                    : start + n / 8 * stride + n % 8 * width + k * unsigned(sizeof(E));
  at = swizzled(at, width);
  unsigned word = 0;
  std::memcpy(&word, shared_pointer(at), sizeof(E));
  return element_of<E>(word, 0);
}

template <typename E, bool B_MN_MAJOR, typename A, int N>
void add_products(A (&d)[N], const A (&a)[2][Mma<E>::k], unsigned long long b) {
  for (int i = 0; i < N; ++i) {
    const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    double sum = double(d[i]);
    for (int k = 0; k < Mma<E>::k; ++k)
      sum += double(a[i / 2 % 2][k]) * double(operand_element<E, B_MN_MAJOR>(b, column, k));
    d[i] = A(sum);
  }
}

template <typename E, bool A_MN_MAJOR, bool B_MN_MAJOR, typename A, int N>
void wgmma(A (&d)[N], unsigned long long a, unsigned long long b) {
  start_product(d, [a, b](A(&sums)[N]) {
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    A rows[2][Mma<E>::k];
    for (int r = 0; r < 2; ++r)
      for (int k = 0; k < Mma<E>::k; ++k)
        rows[r][k] = operand_element<E, A_MN_MAJOR>(a, row + 8 * r, k);
    add_products<E, B_MN_MAJOR>(sums, rows, b);
  });
}

template <typename E, bool B_MN_MAJOR, typename A, int N>
void wgmma(A (&d)[N], const unsigned (&a)[4], unsigned long long b) {
  typedef emulator::Exchange<Fragments> Warp;
  const Fragments* warp = Warp::post({{a[0], a[1], a[2], a[3]}, {0, 0}});
  struct Rows {
    A at[2][Mma<E>::k];
  } rows;
  for (int r = 0; r < 2; ++r)
    for (int k = 0; k < Mma<E>::k; ++k)
      rows.at[r][k] = element_of_a<E>(warp, threadIdx.x % 32 / 4, r, k);
  Warp::leave();
  start_product(d, [rows, b](A(&sums)[N]) { add_products<E, B_MN_MAJOR>(sums, rows.at, b); });
}

}  // namespace sparsegpu
