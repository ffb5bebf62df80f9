#include "nccl_plugin/net/closer.h"

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

// Between two looks at streams that are ending.
constexpr std::chrono::milliseconds kPause{1};

struct Ending {
  std::unique_ptr<StreamGroup> group;
  Nanos deadline;
};

class Closer {
 public:
  void take(std::unique_ptr<StreamGroup> group) {
    const std::lock_guard lock(mutex_);
    incoming_.push_back({.group = std::move(group), .deadline = monotonic_now() + kCloseDeadline});
    if (!running_) start();
    came_.notify_one();
  }

 private:
  void start() {
    // Signals are the training process's business, on its own threads.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([this] { run(); }).detach();
      running_ = true;
    } catch (const std::system_error&) {  // no thread: what is queued in the kernel goes out, what the peer
                                          // sent may cost it
      for (const Ending& e : incoming_) e.group->cut(Errc::kClosed);
      incoming_.clear();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void run() {
    ::pthread_setname_np(::pthread_self(), "sluice-close");
    std::vector<Ending> endings;
    while (next(endings)) {
      const Nanos now = monotonic_now();
      std::erase_if(endings, [now](const Ending& e) {
        e.group->poll(now);
        if (e.group->streams_left() == 0) return true;
        if (now < e.deadline) return false;
        e.group->cut(Errc::kReset);
        return true;
      });
    }
  }

  // False when there is nothing left to do: the thread is then no longer counted on.
  bool next(std::vector<Ending>& endings) {
    std::unique_lock lock(mutex_);
    if (!endings.empty() && incoming_.empty()) came_.wait_for(lock, kPause);
    for (Ending& e : incoming_) endings.push_back(std::move(e));
    incoming_.clear();
    running_ = !endings.empty();
    return running_;
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Ending> incoming_;
  bool running_ = false;
};

}  // namespace

void end_in_background(std::unique_ptr<StreamGroup> group) noexcept {
  try {
    static auto* const closer =
        std::make_unique<Closer>().release();  // never destroyed: its thread may run on while statics end
    closer->take(std::move(group));
  } catch (...) {  // out of memory: the group is gone with its streams
  }
}

}  // namespace sluice::nccl::net
