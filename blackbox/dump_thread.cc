#include "blackbox/dump_thread.h"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include "blackbox/process_dump.h"
#include "core/log.h"

namespace sluice::blackbox {
namespace {

// Sessions may fail as fast as clients create them, and each write blocks the disk.
constexpr auto kInterval = std::chrono::seconds(1);

}  // namespace

DumpThread::~DumpThread() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DumpThread::request(const char* why) noexcept {
  if (has_dump_path()) request(why, false);
}

void DumpThread::request_by_operator(const char* why) noexcept {
  request(why, true);
}

void DumpThread::request(const char* why, bool by_operator) noexcept {
  const std::lock_guard lock(mutex_);
  why_ = why;
  by_operator_ |= by_operator;
  if (is_running_) return by_operator ? changed_.notify_all() : void();
  try {
    if (thread_.joinable()) thread_.join();  // does not block: the thread has ended its work
    start();
    is_running_ = true;
  } catch (const std::exception&) {
    why_ = nullptr;
    log::warn("black box not written: cannot start a thread");
  }
}

void DumpThread::start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread inherits this mask
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "sluice-blackbox");
}

void DumpThread::run() noexcept {
  std::unique_lock lock(mutex_);
  while (const char* const why = std::exchange(why_, nullptr)) {
    const bool by_operator = std::exchange(by_operator_, false);
    lock.unlock();
    by_operator ? dump_on_request(why) : dump_after_failure(why);
    lock.lock();
    changed_.wait_for(lock, kInterval, [this] { return is_stopping_ || by_operator_; });
  }
  is_running_ = false;
}

}  // namespace sluice::blackbox
