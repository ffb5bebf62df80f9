// Class Rails runs sessions of several hosts with several ranks each. SLUICE_HOST_ID makes hosts of this
// machine's ranks, which are processes, because a process has one environment.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>

#include "tests/functional/local_test_bed.h"
#include "tests/support/reducer_pool.h"
#include "tests/support/temporary_file.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"

namespace sluice::test {

class Rails : public LocalTestBed {
 protected:
  void SetUp() override {
    LocalTestBed::SetUp();
    ::setenv("SLUICE_HOSTS", "auto", 1);
  }
  void TearDown() override { ::unsetenv("SLUICE_HOSTS"); }

  // Runs a session. `body` returns 0 if all is well; `dies` is a rank that does not return. `before_join` is
  // called in each rank's process.
  void run_hosts(const std::vector<uint32_t>& host_of, size_t reducers,
                 const std::function<int(uint32_t rank, sluice_session*)>& body, uint32_t dies = ~0U,
                 const std::function<void(uint32_t rank, sluice_options&)>& before_join = nullptr) {
    const auto run = [&](uint32_t rank, sluice_options& o) {
      if (before_join) before_join(rank, o);
      const Created c = create_session(o);
      if (c.status != SLUICE_OK) {
        std::fprintf(stderr, "rank %u: %s\n", rank, c.error.c_str());
        return kRefused;
      }
      const int code = body(rank, c.session);
      const sluice_status closed = dies == ~0U ? closed_ : SLUICE_LOST;
      return sluice_session_close(c.session) == closed || code != 0 ? code : 4;
    };
    run_ranks(host_of, reducers, run, dies);
  }

  // Runs a process for each rank. Starts reducers after the ranks have been forked: a process with threads
  // must not fork. Without reducers, the ranks meet at rank 0.
  void run_ranks(const std::vector<uint32_t>& host_of, size_t reducers,
                 const std::function<int(uint32_t rank, sluice_options&)>& body, uint32_t dies = ~0U) {
    const auto ranks = static_cast<uint32_t>(host_of.size());
    const TemporaryFile log("");
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    if (reducers == 0) {
      const auto listener = transport::tcp::listen_on("127.0.0.1", 0, {});
      ASSERT_TRUE(listener.has_value());
      const uint16_t port = transport::tcp::bound_port(listener->fd()).value();
      ::setenv("SLUICE_RENDEZVOUS", ("127.0.0.1:" + std::to_string(port)).c_str(), 1);
    }
    std::vector<pid_t> children;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const pid_t child = ::fork();
      if (child != 0) {
        children.push_back(child);
        continue;
      }
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int log_file = ::open(log.path().c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
      if (log_file < 0 || ::dup2(log_file, STDERR_FILENO) != STDERR_FILENO) ::_exit(2);
      std::array<char, 256> list{};
      if (::read(pipe[0], list.data(), list.size()) != static_cast<ssize_t>(list.size())) ::_exit(2);
      ::setenv("SLUICE_HOST_ID", ("host" + std::to_string(host_of[rank])).c_str(), 1);
      sluice_options o = options_for(rank, ranks);
      o.reducers = list.data();
      list_ = list.data();
      const int code = body(rank, o);
      ::_exit(code == 0 && ::testing::Test::HasFailure() ? 5 : code);
    }
    ReducerPool pool;
    reducer::ReducerOptions options = ReducerPool::options();
    options.withheld_features = withheld_features_;
    const Result<void> started = pool.start(reducers, options);
    ASSERT_TRUE(started.has_value()) << started.error().text;
    std::string list = reducers == 0 ? "none" : pool.list();
    list.resize(256);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(::write(pipe[1], list.data(), list.size()), static_cast<ssize_t>(list.size()));
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      int exited = 0;
      ::waitpid(children[rank], &exited, 0);
      if (rank == dies) continue;
      EXPECT_TRUE(WIFEXITED(exited) && WEXITSTATUS(exited) == expected_exit_)
          << "rank " << rank << ": " << exited;
    }
    ::close(pipe[0]);
    ::close(pipe[1]);
    std::ifstream written(log.path());
    log_.assign(std::istreambuf_iterator<char>(written), {});
    std::fputs(log_.c_str(), stderr);
  }

  // How often the ranks of the last run have written this text.
  [[nodiscard]] size_t count_logged(std::string_view text) const {
    size_t count = 0;
    for (size_t at = log_.find(text); at != std::string::npos; at = log_.find(text, at + 1)) ++count;
    return count;
  }

  static constexpr int kRefused = 3;  // what a rank exits with that does not join, after writing why
  int expected_exit_ = 0;
  uint64_t withheld_features_ = 0;    // of the reducers, as earlier ones do
  sluice_status closed_ = SLUICE_OK;  // what sluice_session_close() returns
  std::string log_;                   // what the ranks of the last run have written
  std::string list_;                  // of the reducers; in the ranks
};

}  // namespace sluice::test
