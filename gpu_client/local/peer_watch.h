// Class PeerWatch tells the ranks of a host apart that live, left, and died. Each rank owns a word for every
// other rank, a robust futex: the kernel marks it at once when the owning thread ends, for whatever reason,
// also while a large process is still being torn down, and whoever holds its descriptors. A socket's end is
// no such witness: a forked child may hold the socket. There is one word for each pair of ranks, because the
// kernel wakes one waiter of a word.
//
// All functions but leave() and abandon() belong to one thread, which must live as long as the session.
// The kernel's list of robust futexes is per thread; libc has no mutexes of its own on this one.
#pragma once

#include <linux/futex.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/ids.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/local/segment.h"

namespace sluice::local {

enum class PeerState : uint8_t { kAlive, kLeft, kDied };

class PeerWatch {
 public:
  // `segment` outlives the object.
  PeerWatch(const Segment& segment, Rank rank) noexcept : segment_(segment), rank_(rank) {}
  PeerWatch(const PeerWatch&) = delete;

  // Makes the calling thread the owner of this rank's words. Returns kUnsupported where the kernel refuses.
  [[nodiscard]] Result<void> begin();
  // Takes the words off the thread's list. Before the thread ends, after leave() or abandon().
  void end() noexcept;

  // Shows this rank as left, or as died, to the others. Any thread, once.
  void leave() noexcept { mark(kLeftWord); }
  void abandon() noexcept { mark(kDiedWord); }

  [[nodiscard]] PeerState state(Rank peer) const noexcept;
  // Sleeps until the state of a peer differs from that at the end of the last call, until `wake` differs from
  // `seen`, or for `timeout`. Sometimes returns earlier.
  void wait(const std::atomic<uint32_t>& wake, uint32_t seen, Nanos timeout) noexcept;

 private:
  static constexpr uint32_t kLeftWord = 1U << 29;          // more than any thread id
  static constexpr uint32_t kDiedWord = FUTEX_OWNER_DIED;  // as the kernel sets it
  void mark(uint32_t value) noexcept;

  const Segment& segment_;
  const Rank rank_;
  robust_list_head head_{};
  void* libc_head_ = nullptr;  // the thread's list before begin(); null: not begun
  size_t libc_head_size_ = 0;
  std::array<PeerState, kMaxRanks> known_{};
  bool has_waitv_ = true;
};

}  // namespace sluice::local
