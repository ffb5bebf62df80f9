#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/conformance/transport/frames.h"
#include "transport/transport.h"

namespace sluice::transport::test {

// RecordingHandler records all callbacks of an endpoint and checks the contract of transport.h: no callback
// inside put() or close(), exactly one on_sent() per accepted put and in order, on_closed() once and last,
// payload only in the memory of on_header().
class RecordingHandler final : public Handler {
 public:
  struct Received {
    wire::FrameHeader header;
    Bytes extensions;
    Bytes payload;
  };

  // Call the endpoint and check that no callback runs inside the call. The endpoint is null after
  // on_closed().
  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload);
  void close(Errc reason);
  void shutdown();
  // Puts frame `sequence` with `size` pattern bytes of payload and keeps the payload until on_sent().
  Status put_pattern(size_t size, uint64_t sequence, size_t extension_bytes = 0);

  [[nodiscard]] size_t accepted() const { return accepted_; }
  [[nodiscard]] bool all_completed() const { return sent.size() == accepted_; }

  ReceiveTarget on_header(Endpoint& ep, const wire::FrameHeader& header,
                          std::span<const std::byte> extensions) noexcept override;
  void on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                std::span<std::byte> payload) noexcept override;
  void on_sent(Endpoint& ep, Cookie cookie, Status status) noexcept override;
  void on_closed(Endpoint& ep, Errc reason) noexcept override;

  Endpoint* endpoint = nullptr;
  std::vector<Received> received;
  std::vector<Status> sent;  // in the order of the cookies 0, 1, 2, ...
  std::optional<Errc> closed;
  size_t headers = 0;
  size_t bytes = 0;          // received payload bytes
  bool keep_payload = true;  // false: only counts the bytes
  EndpointCounters last_counters;

  bool no_buffer = false;  // on_header() returns kOk without memory
  // Called by the callbacks, after their checks.
  std::function<Status(const wire::FrameHeader&)> at_header;  // its result is the status of on_header()
  std::function<void(const wire::FrameHeader&, std::span<std::byte>)> at_frame;
  std::function<void(Cookie, Status)> at_sent;
  std::function<void(Errc)> at_closed;

 private:
  void check_callback(const Endpoint& ep) const;

  size_t accepted_ = 0;
  bool inside_call_ = false;
  std::optional<wire::FrameHeader> incoming_;
  std::unique_ptr<std::byte[]> buffer_;  // the payload between two guards
  size_t buffer_size_ = 0;
  std::vector<Bytes> put_payloads_;  // payloads of put_pattern(), indexed by cookie
};

}  // namespace sluice::transport::test
