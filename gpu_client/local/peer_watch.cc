#include "gpu_client/local/peer_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include "core/clock.h"
#include "gpu_client/local/futex.h"

namespace sluice::local {
namespace {

// Without futex_waitv(2), before Linux 5.16 and in some sandboxes, the states are read this often.
constexpr Nanos kPollInterval = 4 * kMillisecond;

// futex_waitv(2), which the headers of older systems lack.
constexpr long kFutexWaitv = 449;
constexpr uint32_t kFutex32 = 2;
struct WaitEntry {
  uint64_t value = 0;
  uint64_t address = 0;
  uint32_t flags = 0;
  uint32_t reserved = 0;
};

WaitEntry entry_for(const std::atomic<uint32_t>& word, uint32_t value) noexcept {
  return {.value = value, .address = reinterpret_cast<uint64_t>(&word), .flags = kFutex32};
}

}  // namespace

Result<void> PeerWatch::begin() {
  const auto thread = static_cast<uint32_t>(::gettid());
  // The kernel follows `next` from the head to the head.
  robust_list* last = &head_.list;
  for (Rank watcher = 0; watcher < segment_.ranks(); ++watcher) {
    if (watcher == rank_) continue;
    LifeWord& life = segment_.life(rank_, watcher);
    // With this bit the kernel wakes the waiter, whether there is one or not.
    life.word.store(thread | FUTEX_WAITERS, std::memory_order_seq_cst);
    auto* const node = reinterpret_cast<robust_list*>(&life);
    last->next = node;
    last = node;
  }
  last->next = &head_.list;
  head_.futex_offset = offsetof(LifeWord, word);
  head_.list_op_pending = nullptr;
  if (::syscall(SYS_get_robust_list, 0, &libc_head_, &libc_head_size_) != 0 ||
      ::syscall(SYS_set_robust_list, &head_, sizeof head_) != 0) {
    const std::string reason = std::strerror(errno);
    libc_head_ = nullptr;
    return fail(Errc::kUnsupported, "cannot register robust futexes: " + reason);
  }
  segment_.process(rank_).store(::getpid(), std::memory_order_seq_cst);
  return {};
}

void PeerWatch::end() noexcept {
  if (libc_head_ != nullptr) ::syscall(SYS_set_robust_list, libc_head_, libc_head_size_);
  libc_head_ = nullptr;
}

void PeerWatch::mark(uint32_t value) noexcept {
  for (Rank watcher = 0; watcher < segment_.ranks(); ++watcher) {
    if (watcher == rank_) continue;
    std::atomic<uint32_t>& word = segment_.life(rank_, watcher).word;
    word.store(value, std::memory_order_seq_cst);
    futex_wake(word);
  }
}

PeerState PeerWatch::state(Rank peer) const noexcept {
  if (peer == rank_) return PeerState::kAlive;
  const uint32_t word = segment_.life(peer, rank_).word.load(std::memory_order_seq_cst);
  if ((word & kDiedWord) != 0) return PeerState::kDied;
  return word == kLeftWord ? PeerState::kLeft : PeerState::kAlive;
}

void PeerWatch::wait(const std::atomic<uint32_t>& wake, uint32_t seen, Nanos timeout) noexcept {
  std::array<WaitEntry, kMaxRanks> entries;
  size_t count = 0;
  entries[count++] = entry_for(wake, seen);
  bool changed = false;
  for (Rank peer = 0; peer < segment_.ranks(); ++peer) {
    if (peer == rank_) continue;
    const std::atomic<uint32_t>& word = segment_.life(peer, rank_).word;
    const uint32_t value = word.load(std::memory_order_seq_cst);
    const PeerState now = state(peer);
    changed |= now != known_[peer];
    known_[peer] = now;
    if (now == PeerState::kAlive) entries[count++] = entry_for(word, value);
  }
  if (changed) return;
  if (has_waitv_) {
    const timespec until = to_timespec(monotonic_now() + timeout);
    if (::syscall(kFutexWaitv, entries.data(), count, 0, &until, CLOCK_MONOTONIC) >= 0) return;
    if (errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT) return;
    has_waitv_ = false;
  }
  futex_wait(wake, seen, std::min(timeout, kPollInterval));
}

}  // namespace sluice::local
