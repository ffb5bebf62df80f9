#include "bench/peers/computing_threads.h"

#include <pthread.h>
#include <sched.h>

#include <ctime>

namespace sluice::bench {
namespace {

// What a thread works on fits the L2 cache of a core, from which a sum on that core displaces it.
constexpr size_t kFloats = size_t{128} * 1024 / sizeof(float);

void pin_to(unsigned core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  static_cast<void>(pthread_setaffinity_np(pthread_self(), sizeof cores, &cores));
}

std::vector<unsigned> usable_cores() {
  cpu_set_t cores;
  std::vector<unsigned> found;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return found;
  for (unsigned core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores)) found.push_back(core);
  }
  return found;
}

double cpu_seconds_of(std::thread& thread) {
  clockid_t clock{};
  timespec t{};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

ComputingThreads::ComputingThreads(uint32_t rank, uint32_t ranks) {
  const std::vector<unsigned> cores = usable_cores();
  for (size_t i = rank; i < cores.size(); i += ranks) {
    threads_.push_back(std::make_unique<Thread>());
    Thread& own = *threads_.back();
    own.thread = std::thread([this, &own, core = cores[i]] { compute(own, core); });
  }
}

ComputingThreads::~ComputingThreads() {
  state_ = kEnding;
  state_.notify_all();
  for (const auto& thread : threads_) thread->thread.join();
}

void ComputingThreads::resume() {
  state_ = kRunning;
  state_.notify_all();
}

void ComputingThreads::pause() {
  state_ = kPaused;
  for (const auto& thread : threads_) thread->is_waiting.wait(false);
}

ComputingThreads::Progress ComputingThreads::progress() const {
  Progress sum;
  for (const auto& thread : threads_) {
    sum.units += thread->units;
    sum.cpu_seconds += cpu_seconds_of(thread->thread);
  }
  return sum;
}

void ComputingThreads::compute(Thread& own, unsigned core) {
  pin_to(core);
  std::vector<float> values(kFloats, 1);
  while (true) {
    const uint32_t state = state_;
    if (state == kEnding) return;
    if (state == kPaused) {
      own.is_waiting = true;
      own.is_waiting.notify_all();
      state_.wait(kPaused);
      continue;
    }
    own.is_waiting = false;
    for (float& value : values) value = value * 0.5F + 0.5F;  // stays 1
    own.units.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace sluice::bench
