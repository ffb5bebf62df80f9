#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "core/units.h"
#include "transport/rdma/device_report.h"
#include "transport/rdma/verbs.h"

namespace sluice::transport::rdma {

// DeviceCounters counts the queue pairs, registrations, bytes and errors of one RDMA device. Any thread.
class DeviceCounters {
 public:
  using Counter = std::atomic<uint64_t>;

  void add_registration(uint64_t bytes) noexcept {
    add(registrations_, 1);
    add(registered_bytes_, bytes);
  }
  void remove_registration(uint64_t bytes) noexcept {
    registered_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  void add_registration_failure() noexcept { add(registrations_failed_, 1); }
  void add_pair() noexcept {
    add(pairs_made_, 1);
    add(pairs_open_, 1);
  }
  void remove_pair() noexcept { pairs_open_.fetch_sub(1, std::memory_order_relaxed); }
  void add_pair_failure() noexcept { add(pairs_failed_, 1); }
  // Call for the first failed completion of a connection only: the others follow from it.
  void add_completion_error(ibv_wc_status status) noexcept;
  Counter& bytes_in() noexcept { return bytes_in_; }
  Counter& bytes_out() noexcept { return bytes_out_; }

  // Writes all fields of `report` except the device's name and port losses.
  void fill(DeviceReport& report) const;

 private:
  static void add(Counter& to, uint64_t n) noexcept { to.fetch_add(n, std::memory_order_relaxed); }
  static constexpr size_t kStatuses = 25;  // the statuses in verbs.h, and one entry for unknown statuses

  Counter registrations_ = 0, registrations_failed_ = 0, registered_bytes_ = 0;
  Counter pairs_made_ = 0, pairs_open_ = 0, pairs_failed_ = 0;
  std::array<Counter, kStatuses> failures_{};
  alignas(64) Counter bytes_in_ = 0;  // own cache line: busy threads write these two
  Counter bytes_out_ = 0;
};

// BatchedCounter counts the bytes of one connection and adds them to a counter that all connections of a
// device share, but rarely: after each MiB, on flush() and on destruction. One thread at a time.
class BatchedCounter {
 public:
  explicit BatchedCounter(DeviceCounters::Counter& total) noexcept : total_(total) {}
  BatchedCounter(const BatchedCounter&) = delete;
  BatchedCounter& operator=(const BatchedCounter&) = delete;
  ~BatchedCounter() { flush(); }

  void add(uint64_t n) noexcept {
    pending_ += n;
    if (pending_ >= kMiB) flush();
  }
  void flush() noexcept {
    if (pending_ > 0) total_.fetch_add(std::exchange(pending_, 0), std::memory_order_relaxed);
  }

 private:
  DeviceCounters::Counter& total_;
  uint64_t pending_ = 0;
};

}  // namespace sluice::transport::rdma
