// A sender and a receiver over loopback in one process, driven by the test, and a recorder of the plugin's
// warnings.
#pragma once

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/net/connector.h"
#include "nccl_plugin/net/listener.h"
#include "nccl_plugin/net/recv_comm.h"
#include "nccl_plugin/net/send_comm.h"
#include "nccl_plugin/net/stream_settings.h"

namespace sluice::nccl::test {

using namespace net;  // the tested code

inline constexpr Nanos kTestTimeout = 20 * kSecond;

// Calls `step` until it returns true. Returns false after kTestTimeout.
template <typename Step>
[[nodiscard]] bool poll_until(Step step) {
  const Nanos deadline = monotonic_now() + kTestTimeout;
  while (!step()) {
    if (monotonic_now() > deadline) return false;
  }
  return true;
}

// The settings of the process: in a guest with RDMA, all these tests can run over RDMA.
inline const StreamSettings& default_settings() {
  return stream_settings().value();
}

// For tests that read and write the sockets themselves.
inline const StreamSettings& tcp_settings() {
  static const StreamSettings tcp;
  return tcp;
}

struct HandleMemory {
  std::array<std::byte, abi::kHandleBytes> bytes{};
  [[nodiscard]] Handle handle() { return Handle(bytes); }
};

// Starts a connector to the listener that has written `memory`.
inline Result<std::unique_ptr<Connector>> start_connector(HandleMemory& memory, unsigned streams,
                                                          const StreamSettings& settings,
                                                          Nanos now = monotonic_now()) {
  return Connector::start(*decode_listen_handle(memory.handle()), "127.0.0.1", streams, settings, now);
}

// Both ends of the streams of a comm.
struct ConnectedEnds {
  std::optional<ConnectedStreams> sender, receiver;
};
// Polls both sides until they are connected.
inline ConnectedEnds connect_ends(Connector& connector, Listener& listener) {
  ConnectedEnds ends;
  EXPECT_TRUE(poll_until([&] {
    if (!ends.sender) {
      if (auto connected = connector.progress(monotonic_now())) ends.sender = std::move(*connected);
    }
    if (!ends.receiver) {
      if (auto connected = listener.accept(monotonic_now())) ends.receiver = std::move(*connected);
    }
    return ends.sender && ends.receiver;
  }));
  return ends;
}
// The same for new ones.
inline ConnectedEnds connect_ends(unsigned streams, const StreamSettings& settings) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", settings, memory.handle());
  EXPECT_TRUE(listener.has_value()) << (listener ? "" : listener.error().text);
  auto connector = start_connector(memory, streams, settings);
  EXPECT_TRUE(connector.has_value()) << (connector ? "" : connector.error().text);
  return connect_ends(**connector, **listener);
}

// WarningRecorder records the warnings of the plugin since its construction. One at a time.
class WarningRecorder {
 public:
  WarningRecorder() {
    {
      const std::lock_guard lock(mutex());
      lines().clear();
    }
    set_logger(&WarningRecorder::record);
  }
  [[nodiscard]] static std::string all() {
    const std::lock_guard lock(mutex());
    std::string out;
    for (const std::string& line : lines()) out += line + "\n";
    return out;
  }

 private:
  static void record(int level, unsigned long, const char*, int, const char* format, ...) {
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

// A connected sender and receiver. Tests close them with net::close(), like NCCL.
struct NetPair {
  explicit NetPair(unsigned streams = 4) {
    ConnectedEnds ends = connect_ends(streams, default_settings());
    send = std::move(*SendComm::make(std::move(*ends.sender)));
    recv = std::move(*RecvComm::make(std::move(*ends.receiver)));
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

  std::unique_ptr<SendComm> send;
  std::unique_ptr<RecvComm> recv;
};

// The result of a request: done, or failed with a status.
struct Outcome {
  Request* request = nullptr;
  bool done = false;
  size_t bytes = 0;
  Status status{};
  [[nodiscard]] bool ended() const { return done || !status.ok(); }
};
// Tests the request, or each of them, and returns true when all have ended.
inline bool update(Outcome& outcome) {
  if (!outcome.ended()) outcome.status = net::test(*outcome.request, &outcome.done, &outcome.bytes);
  return outcome.ended();
}
template <typename Range>
bool update(Range& outcomes) {
  bool all = true;
  for (Outcome& outcome : outcomes) all = update(outcome) && all;
  return all;
}
// Each argument is an Outcome or a range of them. Returns false after kTestTimeout.
template <typename... Outcomes>
[[nodiscard]] bool poll_until_ended(Outcomes&... outcomes) {
  return poll_until([&] { return (... & static_cast<int>(update(outcomes))) != 0; });
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
