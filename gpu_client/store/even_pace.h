// Class EvenPace keeps the transfers of one push to all owners together. A step can use a value once all
// workers have sent it. So a connection that is faster than the others of its worker would take their share
// of the link for values that no step can use yet. Any thread.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace sluice::store_client {

class EvenPace {
 public:
  EvenPace(uint32_t transfers, uint64_t max_lead) : sent_(transfers, kNotRunning), max_lead_(max_lead) {}

  // Called with the bytes that the transfer has sent. Waits while they are more than `max_lead` beyond those
  // of the slowest transfer that has begun.
  void wait(uint32_t transfer, uint64_t sent) {
    std::unique_lock lock(mutex_);
    sent_[transfer] = sent;
    changed_.notify_all();
    changed_.wait(lock, [&] { return sent <= std::ranges::min(sent_) + max_lead_; });
  }
  // Ends a transfer, also a failed one: no other one waits for it.
  class Ended {
   public:
    Ended(EvenPace& pace, uint32_t transfer) noexcept : pace_(pace), transfer_(transfer) {}
    Ended(const Ended&) = delete;
    ~Ended() { pace_.end(transfer_); }

   private:
    EvenPace& pace_;
    const uint32_t transfer_;
  };
  void end(uint32_t transfer) {
    {
      const std::scoped_lock lock(mutex_);
      sent_[transfer] = kNotRunning;
    }
    changed_.notify_all();
  }

 private:
  static constexpr uint64_t kNotRunning = ~uint64_t{0} / 2;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> sent_;  // bytes
  const uint64_t max_lead_;
};

}  // namespace sluice::store_client
