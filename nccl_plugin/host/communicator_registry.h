// Class CommunicatorRegistry records what the tuners and the CollNet communicators of this process know, for
// each other: NCCL creates both for one communicator, but connects them by no id in every release.
//
// Threads: any. has_tuner(), and has_failure() without a failure, are one atomic read, for calls of every
// collective.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace sluice::nccl {

class CommunicatorRegistry {
 public:
  // A communicator that has CollNet, as a tuner or a CollNet communicator sees it.
  struct Offloaded {
    const void* owner = nullptr;
    size_t nodes = 0;
    uint64_t comm_id = 0;   // NCCL's commId; 0: not known
    std::string transport;  // "TCP"; empty: not known, as at a tuner
    uint64_t failure = 0;   // number of its failure; 0: none
  };

  void add_tuner() noexcept { tuners_.fetch_add(1, std::memory_order_relaxed); }
  void remove_tuner() noexcept { tuners_.fetch_sub(1, std::memory_order_relaxed); }
  // False: NCCL asks no tuner of this plugin, so no tuner logs the verdict of a communicator.
  [[nodiscard]] bool has_tuner() const noexcept { return tuners_.load(std::memory_order_relaxed) > 0; }

  void add(Offloaded communicator);
  // Does nothing for an unknown owner.
  void remove(const void* owner) noexcept;
  // Returns a live communicator of `nodes` nodes; one with a transport or a comm_id is preferred.
  [[nodiscard]] std::optional<Offloaded> find(size_t nodes) const;

  // Records that the session of `owner` ended with an error; until remove(owner).
  void mark_failed(const void* owner) noexcept;
  // The number of failures so far, for has_failure().
  [[nodiscard]] uint64_t failures() const noexcept { return failures_.load(std::memory_order_relaxed); }
  // True when a communicator of `nodes` nodes has failed after failures() returned `since`, and is still
  // open.
  [[nodiscard]] bool has_failure(size_t nodes, uint64_t since) const noexcept;

 private:
  std::atomic<int> tuners_{0};
  std::atomic<uint64_t> failures_{0};
  mutable std::mutex mutex_;
  std::vector<Offloaded> offloaded_;
};

// Never destroyed: NCCL may close communicators while the process ends.
[[nodiscard]] CommunicatorRegistry& communicator_registry() noexcept;

}  // namespace sluice::nccl
