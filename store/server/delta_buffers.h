// Class DeltaBuffers owns the buffers of one model in which pushes wait for a step. As many as create()
// reserved are kept for reuse. More than these count against the memory limit, and are freed after use.
//
// Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "store/server/memory_budget.h"

namespace sluice::store {

// The last owner returns the buffer to its DeltaBuffers, which lives until then.
using DeltaBuffer = std::shared_ptr<std::vector<float>>;

class DeltaBuffers : public std::enable_shared_from_this<DeltaBuffers> {
 public:
  DeltaBuffers(uint64_t elements, uint32_t reserved, std::shared_ptr<MemoryBudget> budget)
      : elements_(elements), reserved_(reserved), budget_(std::move(budget)) {}
  DeltaBuffers(const DeltaBuffers&) = delete;
  DeltaBuffers& operator=(const DeltaBuffers&) = delete;

  // A buffer of `elements` values, whose content is undefined. `shards`: that this reducer owns, each of
  // which may use the reserved number. Waits until the deadline for other pushes to end. kTooMany with the
  // numbers.
  [[nodiscard]] Result<DeltaBuffer> take(uint32_t shards, Nanos deadline);
  [[nodiscard]] uint32_t in_use() const;

 private:
  using Buffer = std::vector<float>;
  [[nodiscard]] uint64_t bytes() const noexcept { return elements_ * sizeof(float); }
  void give_back(std::unique_ptr<Buffer> buffer) noexcept;

  const uint64_t elements_;
  const uint32_t reserved_;
  const std::shared_ptr<MemoryBudget> budget_;
  // Protected by the mutex of the budget.
  uint32_t in_use_ = 0;
  uint32_t extra_ = 0;  // of those in use, those that count against the limit
  std::vector<std::unique_ptr<Buffer>> free_;
};

}  // namespace sluice::store
