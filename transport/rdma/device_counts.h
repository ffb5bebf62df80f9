// What goes by one device, counted. Any thread, but a Tally.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "core/units.h"
#include "transport/rdma/device_report.h"
#include "transport/rdma/verbs.h"

namespace sluice::transport::rdma {

class DeviceCounts {
 public:
  using Count = std::atomic<uint64_t>;

  void registered(uint64_t bytes) noexcept {
    add(registrations_, 1);
    add(registered_bytes_, bytes);
  }
  void deregistered(uint64_t bytes) noexcept {
    registered_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  void registration_failed() noexcept { add(registrations_failed_, 1); }
  void pair_made() noexcept {
    add(pairs_made_, 1);
    add(pairs_open_, 1);
  }
  void pair_unmade() noexcept { pairs_open_.fetch_sub(1, std::memory_order_relaxed); }
  void pair_failed() noexcept { add(pairs_failed_, 1); }
  // The first of a connection: those behind it say no more.
  void completion_failed(ibv_wc_status status) noexcept;
  Count& bytes_in() noexcept { return bytes_in_; }
  Count& bytes_out() noexcept { return bytes_out_; }

  // All but the device's name and its ports.
  void fill(DeviceReport& report) const;

 private:
  static void add(Count& to, uint64_t n) noexcept { to.fetch_add(n, std::memory_order_relaxed); }
  static constexpr size_t kStatuses = 25;  // those that verbs.h names, and one for others

  Count registrations_ = 0, registrations_failed_ = 0, registered_bytes_ = 0;
  Count pairs_made_ = 0, pairs_open_ = 0, pairs_failed_ = 0;
  std::array<Count, kStatuses> failures_{};
  alignas(64) Count bytes_in_ = 0;  // written by busy threads, at times
  Count bytes_out_ = 0;
};

// A connection's part of a count that all of a device share: plain, and added to that once a MiB has come
// together, or nothing goes. One thread at a time.
class Tally {
 public:
  explicit Tally(DeviceCounts::Count& total) noexcept : total_(total) {}
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;
  ~Tally() { settle(); }

  void add(uint64_t n) noexcept {
    own_ += n;
    if (own_ >= kMiB) settle();
  }
  void settle() noexcept {
    if (own_ > 0) total_.fetch_add(std::exchange(own_, 0), std::memory_order_relaxed);
  }

 private:
  DeviceCounts::Count& total_;
  uint64_t own_ = 0;
};

}  // namespace sluice::transport::rdma
