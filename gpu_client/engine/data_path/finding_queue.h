// Class FindingQueue keeps the latest findings of a session until the caller takes them. Any thread. Only
// operations with a finding take its lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "gpu_client/engine/data_path/finding.h"

namespace sluice::engine {

struct ReportedFinding {
  uint64_t request = 0;  // the caller's; 0: the operation has none
  OperationFinding finding;
};

class FindingQueue {
 public:
  static constexpr size_t kCapacity = 64;

  // Replaces the oldest finding if the queue is full.
  void push(const ReportedFinding& finding) noexcept {
    const std::lock_guard lock(mutex_);
    if (last_ - first_ == kCapacity) ++first_;
    entries_[last_++ % kCapacity] = finding;
  }
  [[nodiscard]] std::optional<ReportedFinding> pop() noexcept {
    const std::lock_guard lock(mutex_);
    if (first_ == last_) return std::nullopt;
    return entries_[first_++ % kCapacity];
  }

 private:
  std::mutex mutex_;
  std::array<ReportedFinding, kCapacity> entries_;
  uint64_t first_ = 0, last_ = 0;
};

}  // namespace sluice::engine
