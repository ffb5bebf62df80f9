#include "nccl_plugin/net/stream_drainer.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"

namespace sluice::nccl::net {
namespace {

constexpr std::chrono::milliseconds kPollInterval{1};

struct DrainingGroup {
  std::unique_ptr<StreamGroup> group;
  Nanos deadline;
};

// StreamDrainer owns the draining groups and the thread that polls them.
class StreamDrainer {
 public:
  void add(std::unique_ptr<StreamGroup> group) {
    const std::lock_guard lock(mutex_);
    added_.push_back({.group = std::move(group), .deadline = monotonic_now() + kCloseTimeout});
    if (!is_running_) start();
    added_signal_.notify_one();
  }

 private:
  void start() {
    // Blocks all signals in the thread: they are for the threads of the training process.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([this] { run(); }).detach();
      is_running_ = true;
    } catch (const std::system_error&) {
      // Without a thread, the kernel still sends what is queued. Unread data of the peer may cause a reset.
      for (const DrainingGroup& d : added_) d.group->close_streams(Errc::kClosed);
      added_.clear();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void run() {
    ::pthread_setname_np(::pthread_self(), "sluice-close");
    std::vector<DrainingGroup> groups;
    while (collect(groups)) {
      const Nanos now = monotonic_now();
      std::erase_if(groups, [now](const DrainingGroup& d) {
        d.group->poll(now);
        if (d.group->open_streams() == 0) return true;
        if (now < d.deadline) return false;
        d.group->close_streams(Errc::kReset);
        return true;
      });
    }
  }

  // Moves the added groups to `groups`. Returns false when there are none left; the thread then ends, and
  // add() starts another one.
  bool collect(std::vector<DrainingGroup>& groups) {
    std::unique_lock lock(mutex_);
    if (!groups.empty() && added_.empty()) added_signal_.wait_for(lock, kPollInterval);
    for (DrainingGroup& d : added_) groups.push_back(std::move(d));
    added_.clear();
    is_running_ = !groups.empty();
    return is_running_;
  }

  std::mutex mutex_;
  std::condition_variable added_signal_;
  std::vector<DrainingGroup> added_;
  bool is_running_ = false;
};

}  // namespace

void drain_in_background(std::unique_ptr<StreamGroup> group) noexcept {
  try {
    // Never destroyed: the thread may still run while static objects are destroyed.
    static auto* const drainer = std::make_unique<StreamDrainer>().release();
    drainer->add(std::move(group));
  } catch (...) {  // out of memory: the group is destroyed with its streams
  }
}

}  // namespace sluice::nccl::net
