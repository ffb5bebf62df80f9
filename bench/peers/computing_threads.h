// Class ComputingThreads computes on the cores of this machine, as a training does beside its collectives:
// one thread on each core, divided among the ranks. It counts how far the threads come.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace sluice::bench {

class ComputingThreads {
 public:
  // Starts this rank's threads, which wait for resume(). A rank may have none.
  ComputingThreads(uint32_t rank, uint32_t ranks);
  ~ComputingThreads();
  ComputingThreads(const ComputingThreads&) = delete;
  ComputingThreads& operator=(const ComputingThreads&) = delete;

  void resume();
  void pause();  // returns when the threads wait

  struct Progress {
    uint64_t units = 0;      // of work, all of equal length
    double cpu_seconds = 0;  // of the threads
  };
  // Of all threads since their start.
  [[nodiscard]] Progress progress() const;

 private:
  struct Thread {
    std::atomic<uint64_t> units{0};
    std::atomic<bool> is_waiting{true};
    std::thread thread;
  };
  void compute(Thread& own, unsigned core);

  enum State : uint32_t { kPaused, kRunning, kEnding };
  std::atomic<uint32_t> state_{kPaused};
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace sluice::bench
