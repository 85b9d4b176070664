// mbarrier on the host. Asynchronous copies that count on a barrier arrive while a thread waits for
// it, in an order of their own.
#pragma once

#include <map>
#include <memory>

#include "ptx/cp_async.cuh"

namespace sparsegpu {

struct Barrier {
  int count, pending, phase;
  long bytes;

  void advance() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = count;
  }
};
struct BarrierCopy {
  virtual void arrive() = 0;
  virtual ~BarrierCopy() = default;
  unsigned barrier;
  long bytes;
};
static std::map<unsigned, Barrier> barriers;
static std::vector<std::unique_ptr<BarrierCopy>> copies_under_way;

inline Barrier& barrier_at(unsigned address) {
  const auto found = barriers.find(address);
  if (found == barriers.end()) emulator::fail("a barrier that was not initialised");
  return found->second;
}

inline void mbarrier_init(unsigned barrier, int count) {
  barriers[barrier] = {count, count, 0, 0};
}
inline void mbarrier_init_fence() {}

inline void mbarrier_arrive_expect_tx(unsigned barrier, int bytes) {
  Barrier& b = barrier_at(barrier);
  if (b.pending == 0) emulator::fail("more arrivals at a barrier than its phase waits for");
  b.bytes += bytes;
  --b.pending;
  b.advance();
}

// Let copies arrive, about three of four: those that count on a barrier, or all.
inline void let_copies_arrive(unsigned barrier, bool all = false) {
  static unsigned random = 1;
  for (size_t i = 0; i < copies_under_way.size();) {
    random = random * 1664525 + 1013904223;
    if ((!all && copies_under_way[i]->barrier != barrier) || random >> 30) {
      ++i;
      continue;
    }
    const std::unique_ptr<BarrierCopy> copy = std::move(copies_under_way[i]);
    copies_under_way.erase(copies_under_way.begin() + long(i));
    copy->arrive();
    Barrier& b = barrier_at(copy->barrier);
    b.bytes -= copy->bytes;
    b.advance();
  }
}

// Those that waited for the phase may go on before this thread does, and what they copy may arrive.
inline void mbarrier_arrive(unsigned barrier) {
  const int phase = barrier_at(barrier).phase;
  mbarrier_arrive_expect_tx(barrier, 0);
  if (barrier_at(barrier).phase == phase) return;
  emulator::give_way();
  let_copies_arrive(barrier, true);
}

inline void mbarrier_wait(unsigned barrier, int parity) {
  emulator::wait_until(
      [&] {
        let_copies_arrive(barrier);
        return barrier_at(barrier).phase != parity;
      },
      "a barrier's phase never ends");
}

}  // namespace sparsegpu
