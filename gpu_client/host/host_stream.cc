#include "gpu_client/host/host_stream.h"

#include <unistd.h>

#include <atomic>
#include <set>
#include <utility>

#include "gpu_client/engine/thread.h"

namespace sluice::host {
namespace {

// The streams that live, by address: a handle that comes from outside is looked up before it is followed.
struct Living {
  explicit Living(pid_t p) : process(p) {}
  const pid_t process;
  std::mutex mutex;
  std::set<const void*> streams;
};

// A child of fork() has none of its parent's, whose lock may be held there for ever: it begins anew. Outlives
// static destructors, since a stream may be destroyed by one.
Living& living() {
  static std::atomic<Living*> all{nullptr};
  const pid_t process = getpid();
  Living* now = all.load(std::memory_order_acquire);
  while (now == nullptr || now->process != process) {
    auto* const made = new Living(process);
    if (all.compare_exchange_strong(now, made, std::memory_order_acq_rel)) return *made;
    delete made;
  }
  return *now;
}

}  // namespace

Result<std::unique_ptr<HostStream>> HostStream::start() {
  std::unique_ptr<HostStream> stream(new HostStream);
  {
    Living& all = living();
    const std::lock_guard lock(all.mutex);
    all.streams.insert(stream.get());
  }
  auto thread = engine::start_thread("sluice-stream", [s = stream.get()] { s->run(); });
  if (!thread) return tl::unexpected(thread.error());
  stream->thread_ = std::move(*thread);
  return stream;
}

HostStream::~HostStream() {
  {
    Living& all = living();
    const std::lock_guard lock(all.mutex);
    all.streams.erase(this);
  }
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  given_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void HostStream::submit(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ++count_given_;
  }
  given_.notify_one();
}

void HostStream::synchronize() noexcept {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this, last = count_given_] { return count_done_ >= last; });
}

bool HostStream::is_one(const void* handle) {
  Living& all = living();
  const std::lock_guard lock(all.mutex);
  return all.streams.contains(handle);
}

void HostStream::run() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    given_.wait(lock, [this] { return ending_ || !work_.empty(); });
    if (work_.empty()) return;
    std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it holds is let go of before it counts as done
    lock.lock();
    ++count_done_;
    done_.notify_all();
  }
}

}  // namespace sluice::host
