#include "gpu_client/host/host_stream.h"

#include <unistd.h>

#include <atomic>
#include <set>
#include <utility>

#include "gpu_client/engine/base/thread.h"

namespace sluice::host {
namespace {

// The addresses of all live streams. A caller's handle is looked up here before it is dereferenced.
struct LiveStreams {
  explicit LiveStreams(pid_t p) : process(p) {}
  const pid_t process;
  std::mutex mutex;
  std::set<const void*> streams;
};

// Returns this process's registry. A child of fork() gets a new one: the parent's streams have no threads
// there, and the mutex may stay locked. Never destroyed, because a static destructor may still destroy a
// stream.
LiveStreams& live_streams() {
  static std::atomic<LiveStreams*> registry{nullptr};
  const pid_t process = getpid();
  LiveStreams* current = registry.load(std::memory_order_acquire);
  while (current == nullptr || current->process != process) {
    auto* const created = new LiveStreams(process);
    if (registry.compare_exchange_strong(current, created, std::memory_order_acq_rel)) return *created;
    delete created;
  }
  return *current;
}

}  // namespace

Result<std::unique_ptr<HostStream>> HostStream::start() {
  std::unique_ptr<HostStream> stream(new HostStream);
  {
    LiveStreams& live = live_streams();
    const std::lock_guard lock(live.mutex);
    live.streams.insert(stream.get());
  }
  auto thread = engine::start_thread("sluice-stream", [s = stream.get()] { s->run(); });
  if (!thread) return tl::unexpected(thread.error());
  stream->thread_ = std::move(*thread);
  return stream;
}

HostStream::~HostStream() {
  {
    LiveStreams& live = live_streams();
    const std::lock_guard lock(live.mutex);
    live.streams.erase(this);
  }
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  submitted_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void HostStream::submit(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ++submitted_count_;
  }
  submitted_.notify_one();
}

void HostStream::synchronize() noexcept {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this, last = submitted_count_] { return done_count_ >= last; });
}

bool HostStream::is_live(const void* handle) {
  LiveStreams& live = live_streams();
  const std::lock_guard lock(live.mutex);
  return live.streams.contains(handle);
}

void HostStream::run() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [this] { return ending_ || !work_.empty(); });
    if (work_.empty()) return;
    std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // destroys its captures before it counts as done
    lock.lock();
    ++done_count_;
    done_.notify_all();
  }
}

}  // namespace sluice::host
