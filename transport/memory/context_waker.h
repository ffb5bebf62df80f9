// Class ContextWaker ends the wait() of a context for its peers in this process when its thread sleeps. While
// the thread is awake, notify() costs two atomic accesses.
//
// Two pairs of sequentially consistent accesses prevent a lost notification. A peer stores a frame and then
// loads work_; take_work() clears work_, and the endpoints then load the frame: a peer that finds work_ set
// has stored its frame before that. A peer sets work_ and then loads sleeping_; may_sleep() stores sleeping_
// and then loads work_.
//
// Outlives the context: peers share it. detach() must precede the end of the context.
#pragma once

#include <atomic>
#include <mutex>

#include "transport/memory/waker.h"
#include "transport/transport.h"

namespace sluice::transport::memory {

class ContextWaker final : public Waker {
 public:
  explicit ContextWaker(Context& context) noexcept : context_(&context) {}

  void notify() noexcept override {
    // Only the call that sets work_ wakes the thread, so the frames that follow cost no system call either.
    if (work_.load(std::memory_order_seq_cst) || work_.exchange(true, std::memory_order_seq_cst)) return;
    if (!sleeping_.load(std::memory_order_seq_cst)) return;
    const std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->wake();
  }

  // ---- thread of the context ----
  [[nodiscard]] bool take_work() noexcept {
    if (!work_.load(std::memory_order_seq_cst)) return false;
    work_.store(false, std::memory_order_seq_cst);
    return true;
  }
  // False: there is work. end_sleep() must follow in both cases.
  [[nodiscard]] bool may_sleep() noexcept {
    sleeping_.store(true, std::memory_order_seq_cst);
    return !work_.load(std::memory_order_seq_cst);
  }
  void end_sleep() noexcept { sleeping_.store(false, std::memory_order_relaxed); }
  // The context is about to be destroyed.
  void detach() noexcept {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
  }

 private:
  std::atomic<bool> work_{false};
  std::atomic<bool> sleeping_{false};
  std::mutex mutex_;
  Context* context_;
};

}  // namespace sluice::transport::memory
