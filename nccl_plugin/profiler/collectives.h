// Class Collectives follows the collectives of one communicator from their launch until their kernels have
// stopped, and reports them to the traces of its sessions.
//
// The kernels of a communicator run in the order of their launch, so an operation belongs to the oldest
// offloaded collective that runs. In a group (ncclGroupStart) several run at once; then the oldest gets the
// operations of all.
//
// Threads: one at a time. A collective whose end is not reported is forgotten when a newer one has a kernel,
// at the latest when kMost newer ones have started. Allocates in the constructor only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "gpu_client/engine/trace/collective_observer.h"
#include "nccl_plugin/profiler/profiler.h"

namespace sluice::nccl::profiler {

class Collectives {
 public:
  static constexpr size_t kMost = 256;
  using Observers = std::span<engine::CollectiveObserver* const>;

  explicit Collectives(const CommunicatorInfo& info) : name_(info.name), info_(info) { info_.name = name_; }
  Collectives(const Collectives&) = delete;

  [[nodiscard]] uint64_t communicator_id() const noexcept { return info_.id; }

  // Returns the number of the collective in the communicator, from 1.
  [[nodiscard]] uint64_t start(const CollectiveInfo& collective, Observers observers) noexcept;
  // Calls with an unknown number have no effect.
  void start_network(uint64_t number) noexcept;
  // False: the number is unknown.
  [[nodiscard]] bool start_kernel(uint64_t number, uint64_t gpu_time, Observers observers) noexcept;
  void set_kernel_end(uint64_t number, uint64_t gpu_time) noexcept;
  void stop_kernel(uint64_t number, Observers observers) noexcept;

 private:
  struct Collective {
    engine::CollectiveRecord record;  // number 0: a free entry
    bool is_offloaded = false;
    uint32_t kernels = 0;          // started
    uint32_t stopped_kernels = 0;  // of them
    uint64_t gpu_begin = 0;
    uint64_t gpu_end = 0;
  };

  // Null for an unknown number.
  [[nodiscard]] Collective* find(uint64_t number) noexcept {
    Collective& c = entries_[number % kMost];
    return number != 0 && c.record.number == number ? &c : nullptr;
  }
  void announce_running(Observers observers) noexcept;

  const std::string name_;
  CommunicatorInfo info_;
  std::array<Collective, kMost> entries_{};
  uint64_t last_ = 0;    // the number of the newest collective
  uint64_t oldest_ = 1;  // no offloaded collective before this number runs
};

}  // namespace sluice::nccl::profiler
