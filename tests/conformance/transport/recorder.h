// A Handler that writes down what it sees and checks the contract while doing so: no callback inside put() or
// close(), every accepted put given back once and in order, on_closed() once and last, payload where
// on_header() wanted it and nowhere else.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/conformance/transport/frames.h"
#include "transport/transport.h"

namespace sluice::transport::test {

class Recorder final : public Handler {
 public:
  struct Received {
    wire::FrameHeader header;
    Bytes extensions;
    Bytes payload;
  };

  // The calls, watched. The endpoint is null after on_closed().
  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload);
  void close(Errc reason);
  void shutdown();
  // Puts frame number `sequence` with a payload of `size` pattern bytes and keeps the payload until it is
  // given back.
  Status put_pattern(size_t size, uint64_t sequence, size_t extension_bytes = 0);

  [[nodiscard]] size_t accepted() const { return accepted_; }
  [[nodiscard]] bool all_given_back() const { return sent.size() == accepted_; }

  Placement on_header(Endpoint& ep, const wire::FrameHeader& header,
                      std::span<const std::byte> extensions) noexcept override;
  void on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                std::span<std::byte> payload) noexcept override;
  void on_sent(Endpoint& ep, Cookie cookie, Status status) noexcept override;
  void on_closed(Endpoint& ep, Errc reason) noexcept override;

  Endpoint* endpoint = nullptr;
  std::vector<Received> received;
  std::vector<Status> sent;  // cookies are checked to be 0, 1, 2, ...
  std::optional<Errc> closed;
  size_t headers = 0;
  size_t bytes = 0;          // of payload received
  bool keep_payload = true;  // false: count only
  EndpointCounters last_counters;

  bool no_place = false;  // on_header() names no memory, and says kOk
  // Run inside the callback, after the checks.
  std::function<Status(const wire::FrameHeader&)> at_header;  // its status is the placement's
  std::function<void(const wire::FrameHeader&, std::span<std::byte>)> at_frame;
  std::function<void(Cookie, Status)> at_sent;
  std::function<void(Errc)> at_closed;

 private:
  void check_callback(const Endpoint& ep) const;

  size_t accepted_ = 0;
  bool inside_call_ = false;
  std::optional<wire::FrameHeader> arriving_;
  std::unique_ptr<std::byte[]> landing_;  // payload between two guards
  size_t landing_room_ = 0;
  std::vector<Bytes> lent_;  // payloads of put_pattern(), by cookie
};

}  // namespace sluice::transport::test
