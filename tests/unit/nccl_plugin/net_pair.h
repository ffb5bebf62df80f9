// A sender and a receiver over loopback in one process, driven by the test; and what the plugin logged
// meanwhile.
#pragma once

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/clock.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/net/connector.h"
#include "nccl_plugin/net/listener.h"
#include "nccl_plugin/net/recv_comm.h"
#include "nccl_plugin/net/send_comm.h"
#include "nccl_plugin/net/stream_terms.h"

namespace sluice::nccl::test {

using namespace net;  // what is tested

inline constexpr Nanos kPatience = 20 * kSecond;

// Calls `step` until it is true; false when that takes too long.
template <typename Step>
[[nodiscard]] bool until(Step step) {
  const Nanos deadline = monotonic_now() + kPatience;
  while (!step()) {
    if (monotonic_now() > deadline) return false;
  }
  return true;
}

// Those of the process: in a guest with RDMA, all these tests may be played over it.
inline const StreamTerms& terms() {
  return stream_terms().value();
}

// For who speaks by hand on the connections.
inline const StreamTerms& tcp_terms() {
  static const StreamTerms tcp;
  return tcp;
}

struct HandleMemory {
  std::array<std::byte, abi::kHandleBytes> bytes{};
  [[nodiscard]] Handle handle() { return Handle(bytes); }
};

// Warnings since it was made. One at a time.
class Warnings {
 public:
  Warnings() {
    lines().clear();
    set_logger(&Warnings::keep);
  }
  [[nodiscard]] static std::string all() {
    const std::lock_guard lock(mutex());
    std::string out;
    for (const std::string& line : lines()) out += line + "\n";
    return out;
  }

 private:
  static void keep(int level, unsigned long, const char*, int, const char* format, ...) {
    if (level != abi::kLogWarn) return;
    std::array<char, 1024> line{};
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line.data(), line.size(), format, arguments);
    va_end(arguments);
    const std::lock_guard lock(mutex());
    lines().emplace_back(line.data());
  }
  static std::vector<std::string>& lines() {
    static std::vector<std::string> all;
    return all;
  }
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
};

// close() gives what was let go of here to the same functions that NCCL's calls go to.
struct Pair {
  explicit Pair(unsigned streams = 4) {
    auto opened = Listener::open("127.0.0.1", terms(), memory.handle());
    EXPECT_TRUE(opened.has_value()) << (opened ? "" : opened.error().text);
    const auto invitation = read_invitation(memory.handle());
    EXPECT_TRUE(invitation.has_value());
    auto connector = Connector::start(*invitation, "127.0.0.1", streams, terms(), monotonic_now());
    EXPECT_TRUE(connector.has_value()) << (connector ? "" : connector.error().text);
    EXPECT_TRUE(until([&] {
      if (!send) {
        auto greeted = (*connector)->progress(monotonic_now());
        if (greeted) send = std::move(*SendComm::make(std::move(*greeted)));
      }
      if (!recv) {
        auto greeted = (*opened)->accept(monotonic_now());
        if (greeted) recv = std::move(*RecvComm::make(std::move(*greeted)));
      }
      return send && recv;
    }));
  }

  [[nodiscard]] Request* isend(const std::vector<std::byte>& data, int tag = 0) {
    Request* request = nullptr;
    EXPECT_TRUE(net::isend(*send, data.data(), data.size(), tag, &request).ok());
    return request;
  }
  [[nodiscard]] Request* irecv(std::vector<std::byte>& data, int tag = 0) {
    Request* request = nullptr;
    EXPECT_TRUE(net::irecv(*recv, data.data(), data.size(), tag, &request).ok());
    return request;
  }

  HandleMemory memory;
  std::unique_ptr<SendComm> send;
  std::unique_ptr<RecvComm> recv;
};

// True, and the request over, when it is done; its error ends the wait too.
struct Outcome {
  bool done = false;
  size_t bytes = 0;
  Status status;
  [[nodiscard]] bool over() const { return done || !status.ok(); }
};
inline void look(Request* request, Outcome& outcome) {
  if (!outcome.over()) outcome.status = net::test(*request, &outcome.done, &outcome.bytes);
}

inline std::vector<std::byte> pattern(size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  uint32_t x = seed * 2654435761u + 1;
  for (std::byte& b : out) {
    x = x * 1664525u + 1013904223u;
    b = static_cast<std::byte>(x >> 24);
  }
  return out;
}

}  // namespace sluice::nccl::test
