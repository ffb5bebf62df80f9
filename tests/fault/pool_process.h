// Class PoolProcess runs reducers in a process of their own, so that the test's process has no threads and
// may fork.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "core/clock.h"
#include "core/log.h"
#include "tests/support/reducer_pool.h"

namespace sluice::test {

class PoolProcess {
 public:
  explicit PoolProcess(size_t reducers) {
    if (::pipe(to_pool_.data()) != 0 || ::pipe(from_pool_.data()) != 0) std::abort();
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(to_pool_[1]);
      log::set_sink([](log::Level, std::string_view) noexcept {});  // each lost rank causes many lines
      serve(reducers);
      ::_exit(0);
    }
    ::close(to_pool_[0]);
    ::close(from_pool_[1]);
    std::array<char, 256> list{};
    if (::read(from_pool_[0], list.data(), list.size()) == static_cast<ssize_t>(list.size()))
      list_ = list.data();
  }
  ~PoolProcess() {
    ::close(to_pool_[1]);
    ::close(from_pool_[0]);
    ::waitpid(process_, nullptr, 0);
  }
  PoolProcess(const PoolProcess&) = delete;
  PoolProcess& operator=(const PoolProcess&) = delete;

  // The reducers, for sluice_options. Empty if they did not start.
  [[nodiscard]] const std::string& list() const { return list_; }
  // Waits up to 20 s until no reducer holds a session or memory of one.
  [[nodiscard]] bool wait_until_idle() const {
    char answer = 0;
    return ::write(to_pool_[1], "?", 1) == 1 && ::read(from_pool_[0], &answer, 1) == 1 && answer == 'y';
  }

 private:
  void serve(size_t reducers) const {
    ReducerPool pool;
    if (!pool.start(reducers)) ::_exit(1);
    std::string list = pool.list();
    list.resize(256);
    if (::write(from_pool_[1], list.data(), list.size()) != static_cast<ssize_t>(list.size())) ::_exit(1);
    for (char question = 0; ::read(to_pool_[0], &question, 1) == 1;) {
      const Nanos deadline = monotonic_now() + 20 * kSecond;
      while (!is_idle(pool) && monotonic_now() < deadline) std::this_thread::yield();
      const char answer = is_idle(pool) ? 'y' : 'n';
      if (::write(from_pool_[1], &answer, 1) != 1) ::_exit(1);
    }
  }

  static bool is_idle(const ReducerPool& pool) {
    for (const auto& reducer : pool.reducers()) {
      const auto status = nlohmann::json::parse(reducer->status_json());
      if (status["sessions"]["open"] != 0 || status["sessions"]["ending"] != 0 ||
          status["memory"]["reserved_bytes"] != 0)
        return false;
    }
    return true;
  }

  std::array<int, 2> to_pool_{}, from_pool_{};
  pid_t process_ = 0;
  std::string list_;
};

}  // namespace sluice::test
