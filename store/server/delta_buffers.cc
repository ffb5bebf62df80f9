#include "store/server/delta_buffers.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <utility>

#include "core/clock.h"

namespace sluice::store {

Result<DeltaBuffer> DeltaBuffers::take(uint32_t shards, Nanos deadline) {
  std::unique_ptr<Buffer> buffer;
  {
    std::unique_lock lock(budget_->mutex_);
    const uint32_t reserved = reserved_ * std::max(shards, 1U);
    bool is_extra = false;
    const auto has_room = [&] {
      if (in_use_ - extra_ < reserved) return true;
      is_extra = budget_->try_add(bytes());
      return is_extra;
    };
    const std::chrono::nanoseconds wait(std::max<Nanos>(deadline - monotonic_now(), 0));
    if (!budget_->returned_.wait_for(lock, wait, has_room))
      return fail(Errc::kTooMany, std::to_string(in_use_) + " pushes wait for a step, " +
                                      std::to_string(reserved) + " are reserved, and one more of " +
                                      std::to_string(bytes()) + " bytes would exceed the memory limit of " +
                                      std::to_string(budget_->limit()) + " bytes");
    ++in_use_;
    extra_ += is_extra ? 1U : 0U;
    if (!free_.empty()) {
      buffer = std::move(free_.back());
      free_.pop_back();
    }
  }
  try {
    if (!buffer) buffer = std::make_unique<Buffer>(elements_);
  } catch (const std::bad_alloc&) {
    give_back(nullptr);
    return fail(Errc::kTooMany, "no memory for a push of " + std::to_string(bytes()) + " bytes");
  }
  Buffer* const raw = buffer.release();
  return DeltaBuffer(
      raw, [self = shared_from_this()](Buffer* values) { self->give_back(std::unique_ptr<Buffer>(values)); });
}

// A null buffer: it could not be allocated.
void DeltaBuffers::give_back(std::unique_ptr<Buffer> buffer) noexcept {
  {
    const std::scoped_lock lock(budget_->mutex_);
    --in_use_;
    if (extra_ > 0) {
      --extra_;
      budget_->used_.fetch_sub(bytes(), std::memory_order_relaxed);
    } else if (buffer) {
      free_.push_back(std::move(buffer));
    }
  }
  budget_->returned_.notify_all();
}

uint32_t DeltaBuffers::in_use() const {
  const std::scoped_lock lock(budget_->mutex_);
  return in_use_;
}

}  // namespace sluice::store
