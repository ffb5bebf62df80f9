// Places that one end of a queue pair lends and the other writes to (Handler::lend). Both sides keep them in
// the order of the frames they are for, and both let go of one in the same way: when its frame, or one behind
// it, goes by. So neither has to say what is over, and what the peer holds is never more than kMostLoans.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/status.h"

namespace sluice::transport::rdma {

inline constexpr uint32_t kMostLoans = 64;

// A frame by its name. Versions of a session's views only grow.
struct FrameName {
  uint16_t view_version = 0;
  uint64_t sequence = 0;
  friend bool operator==(const FrameName&, const FrameName&) = default;
  friend bool operator<(const FrameName& a, const FrameName& b) noexcept {
    return std::tie(a.view_version, a.sequence) < std::tie(b.view_version, b.sequence);
  }
};

struct LentPlace {
  FrameName frame;
  uint64_t address = 0;  // in the memory of who lends
  uint32_t key = 0;      // of the region that it is in
  uint32_t capacity = 0;
  bool only_here = false;  // the frame's payload can come nowhere else, however short it is
};

// As a segment has it, little endian: address u64, sequence u64, key u32, capacity u32, view version u16,
// flags u16 (bit 0: only here), and 4 bytes of 0.
inline constexpr size_t kLoanBytes = 32;
void encode(const LentPlace& loan, std::span<std::byte, kLoanBytes> out) noexcept;
[[nodiscard]] LentPlace decode_loan(std::span<const std::byte, kLoanBytes> in) noexcept;

class Loans {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == last_; }
  [[nodiscard]] bool full() const noexcept { return last_ - first_ == kMostLoans; }
  // False: there are too many, or it is not behind the one before it. One whose frame went by already, while
  // the word of it was on its way, is over: the peer, who has seen that frame, counts it no more either.
  [[nodiscard]] bool push(const LentPlace& loan) noexcept {
    if (newest_ && !(*newest_ < loan.frame)) return false;
    if (passed_ && !(*passed_ < loan.frame)) return true;
    if (full()) return false;
    newest_ = loan.frame;
    ring_[last_++ % kMostLoans] = loan;
    return true;
  }
  // The loan for this frame, if there is one. It is over, and so are those for frames before it.
  [[nodiscard]] std::optional<LentPlace> settle(const FrameName& frame) noexcept {
    if (find(frame) == nullptr) {
      passed_ = passed_ ? std::max(*passed_, frame) : frame;
      return std::nullopt;
    }
    passed_ = frame;
    return ring_[first_++ % kMostLoans];
  }
  // As settle(), to look only.
  [[nodiscard]] const LentPlace* find(const FrameName& frame) noexcept {
    while (!empty() && front().frame < frame) ++first_;
    return !empty() && front().frame == frame ? &front() : nullptr;
  }
  void clear() noexcept {
    first_ = last_;
    newest_.reset();
  }

  // ---- of the side that lends: which of them the peer knows of ----
  [[nodiscard]] const LentPlace* next_untold() noexcept {
    if (told_ < first_) told_ = first_;
    return told_ != last_ ? &ring_[told_ % kMostLoans] : nullptr;
  }
  void told() noexcept { ++told_; }
  void drop_untold() noexcept {
    if (next_untold() == nullptr) return;
    last_ = told_;
    newest_.reset();
    if (any_told()) newest_ = ring_[(told_ - 1) % kMostLoans].frame;
  }
  [[nodiscard]] bool any_told() const noexcept { return told_ > first_; }

 private:
  [[nodiscard]] const LentPlace& front() const noexcept { return ring_[first_ % kMostLoans]; }

  std::array<LentPlace, kMostLoans> ring_;
  uint64_t first_ = 0;  // counts run up for ever
  uint64_t last_ = 0;
  uint64_t told_ = 0;
  std::optional<FrameName> newest_;  // of those pushed
  std::optional<FrameName> passed_;  // the latest of the frames that went by
};

}  // namespace sluice::transport::rdma
