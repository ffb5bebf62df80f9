// The contract of every transport: tcp, rdma and memory; inproc, the reference for tests; and fault, a test
// transport that wraps another one and injects errors.
//
// A transport has one primitive: put() sends a frame, and the handler of the peer says where the payload
// goes. The protocol grants credits for data frames, so the receiver always has memory for them. A transport
// holds no payload of its own; where it must copy, its counters say so.
//
// Threads. One thread, the owner, makes every call on a Context and on its endpoints, and every callback runs
// on that thread. Only Context::wake() may be called from any thread. Two contexts share no state.
//
// Buffers.
//   * put() copies the extensions before it returns.
//   * The transport owns the payload of an accepted put() until on_sent() for its cookie. Until then the
//     payload must stay valid and unchanged.
//   * The transport owns the memory that on_header() returns until on_frame() for that header or until
//     on_closed(), whichever comes first.
//   * The peer may write to an advertised buffer at any time, as Handler::advertise() describes.
//
// Callbacks run only inside Context::poll(), never inside put(), close() or the call that adopts a
// connection. A callback may call put(), shutdown() and close() on any endpoint of the context. A callback
// must not throw. For each endpoint:
//   * Every accepted put() gets exactly one on_sent(), in the order of the puts. When the endpoint closes,
//     the remaining puts get on_sent() with the reason.
//   * on_header() is followed by on_frame() for the same frame, or by on_closed().
//   * on_closed() is called exactly once and is the last callback. The Context destroys the Endpoint after
//     on_closed() returns.
//
// Completion. on_sent(kOk) means that the frame is handed to the network and that its payload buffer is free.
// It does not mean that the frame arrived. Only an answer of the peer proves that.
//
// Flow control. kWouldBlock is a normal result: the send queue is full. The caller tries again after
// progress.
//
// Errors. A transport checks everything that needs no knowledge of the session: magic, version, type,
// lengths, enumerations, header CRC and payload CRC. The CRC of the payload is computed while the bytes are
// in cache. The first violation closes this endpoint with its reason and affects nothing else. The handler
// checks the rest in on_header().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/status.h"
#include "core/units.h"
#include "wire/frame.h"

namespace sluice::transport {

// Identifies a put to its caller. on_sent() returns the cookie; a transport never interprets it.
using Cookie = uint64_t;

// Maximum extension bytes of a frame (protocol.md section 2); a longer announcement is kBadExtension.
inline constexpr size_t kMaxExtensionBytes = 64;

// True when the lengths in the header match the arguments of put().
[[nodiscard]] inline bool lengths_match(const wire::FrameHeader& header,
                                        std::span<const std::byte> extensions,
                                        std::span<const std::byte> payload) noexcept {
  return header.length == payload.size() && header.extension_bytes() == extensions.size() &&
         extensions.size() <= kMaxExtensionBytes;
}

// The answer of on_header(): memory for the payload, or a refusal.
struct ReceiveTarget {
  Status status;                 // any value but kOk closes the endpoint with that reason
  std::byte* payload = nullptr;  // receives header.length bytes; may be null when length is 0
};

// A frame that the handler expects to arrive. Length 0 means that the handler expects none.
struct ExpectedFrame {
  std::byte* payload = nullptr;  // the memory that on_header() would return
  uint32_t length = 0;           // of the payload
  uint32_t extension_bytes = 0;
};

// Memory of this process that this end advertises: the peer may write to it directly. The buffer is for the
// payload of one data frame (wire::is_data), which is named by its view version and sequence.
struct RemoteBuffer {
  std::byte* payload = nullptr;  // null: no buffer
  uint32_t capacity = 0;         // a longer payload arrives as an ordinary frame
  uint16_t view_version = 0;
  uint64_t sequence = 0;
};

class Endpoint;

// Handler receives the callbacks of one endpoint. The layer above owns it; it must outlive the endpoint.
class Handler {
 public:
  // A header has arrived and passed all checks of the transport. Returns the payload's memory, or refuses.
  [[nodiscard]] virtual ReceiveTarget on_header(Endpoint& ep, const wire::FrameHeader& header,
                                                std::span<const std::byte> extensions) noexcept = 0;

  // The whole frame has arrived, with the right CRC. `payload` is the memory that on_header() returned.
  virtual void on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                        std::span<std::byte> payload) noexcept = 0;

  // Predicts a frame: the next one after the last on_frame() for `ahead` 0, the one behind it for 1, and so
  // on. A transport over a byte stream (tcp) uses the prediction to receive several frames with one system
  // call. A wrong prediction costs a copy. Until the predicted frame arrives, bytes of other frames may be
  // written to its payload memory. So nothing else may use that memory, and the memory of several predicted
  // frames must not overlap.
  [[nodiscard]] virtual ExpectedFrame expected_frame(Endpoint& /*ep*/, unsigned /*ahead*/) noexcept {
    return {};
  }

  // Returns the next buffer to advertise to the peer, in the order in which the frames will arrive. poll()
  // calls this until the handler returns none. With a transport whose peer can write remotely (rdma), the
  // payload then arrives in place if on_header() returns the same memory; other memory costs a copy. The peer
  // may write to the buffer until its frame, or a later frame, has arrived, so nothing else may use the
  // buffer until then. Endpoint::recall() takes advertised buffers back earlier.
  [[nodiscard]] virtual RemoteBuffer advertise(Endpoint& /*ep*/) noexcept { return {}; }

  // The transport no longer uses the payload of the put that `cookie` identifies. kOk: the frame is handed to
  // the network. Any other status: the frame was not sent.
  virtual void on_sent(Endpoint& ep, Cookie cookie, Status status) noexcept = 0;

  // The endpoint has closed. `reason` is kClosed when the peer shut down in order, the argument of close(),
  // or the error: kReset for a broken connection, kTimeout for a missed deadline. kTimeout also covers sent
  // data or keepalive probes that stayed unacknowledged until the kernel gave up.
  virtual void on_closed(Endpoint& ep, Errc reason) noexcept = 0;

 protected:
  ~Handler() = default;
};

// EndpointCounters counts the traffic of one endpoint. Only the owner thread reads and writes the counters.
struct EndpointCounters {
  uint64_t frames_in = 0;
  uint64_t frames_out = 0;
  uint64_t payload_bytes_in = 0;
  uint64_t payload_bytes_out = 0;
  uint64_t wire_bytes_in = 0;  // headers and extensions included; 0 in memory
  uint64_t wire_bytes_out = 0;
  uint64_t receive_calls = 0;  // system calls (0 for inproc, memory and rdma)
  uint64_t send_calls = 0;
  uint64_t bytes_copied = 0;  // payload bytes copied in user space while receiving
  // tcp only: time during which frames were queued and the socket accepted no bytes, added when it does
  // again.
  uint64_t send_blocked_ns = 0;
  // rdma only.
  uint64_t bytes_copied_out = 0;  // payload bytes copied in user space while sending
  uint64_t work_requests = 0;     // posted sends, writes and receives
  uint64_t post_calls = 0;        // calls that posted them
  uint64_t completions = 0;

  friend bool operator==(const EndpointCounters&, const EndpointCounters&) = default;
  EndpointCounters& operator+=(const EndpointCounters& c) noexcept {
    frames_in += c.frames_in;
    frames_out += c.frames_out;
    payload_bytes_in += c.payload_bytes_in;
    payload_bytes_out += c.payload_bytes_out;
    wire_bytes_in += c.wire_bytes_in;
    wire_bytes_out += c.wire_bytes_out;
    receive_calls += c.receive_calls;
    send_calls += c.send_calls;
    bytes_copied += c.bytes_copied;
    send_blocked_ns += c.send_blocked_ns;
    bytes_copied_out += c.bytes_copied_out;
    work_requests += c.work_requests;
    post_calls += c.post_calls;
    completions += c.completions;
    return *this;
  }
};

// What the network does to the packets that one end sends, since the connection was opened.
struct PathStats {
  uint64_t packets = 0;       // data packets sent, repeated ones included
  uint64_t lost_packets = 0;  // sent again because they were lost
  uint64_t acked_bytes = 0;
  bool has_unacked = false;  // sent data is not acknowledged yet
  uint32_t mtu = 0;          // largest packet of the path, as far as this host knows
  Nanos round_trip = 0;      // the least so far; 0: unknown
};

// Endpoint is one end of a connection. Its Context owns and destroys it.
class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Queues one frame. header.length must equal payload.size(), and header.ext_len8 * 8 must equal
  // extensions.size(), which is at most kMaxExtensionBytes. With kFlagPayloadCrc the caller sets
  // header.payload_crc, because only the caller knows when the bytes are in cache.
  //   kOk: accepted; exactly one on_sent() follows.
  //   kWouldBlock: the queue is full and nothing was accepted; try again after progress.
  //   kClosed: the endpoint is closing or shut down.
  //   kInvalidArgument: the lengths do not match.
  [[nodiscard]] virtual Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                                   std::span<const std::byte> payload, Cookie cookie) noexcept = 0;

  // Closes at once. A later poll() calls on_sent(reason) for each frame not yet handed to the network, then
  // on_closed(reason). With kReset the peer sees a broken connection. With any other reason the peer sees an
  // orderly end (kClosed), if this end sent only whole frames and has received all that the peer sent.
  virtual void close(Errc reason) noexcept = 0;

  // Shuts down in order.
  //   * This end refuses further puts, sends the queued frames, tells the peer that no more frames follow,
  //     and receives until the peer closes too; then on_closed(kClosed).
  //   * The caller limits the time: close() ends the shutdown at any point.
  //   * A shutdown by the peer has the same effect here without a call: after the peer's last frame, the
  //     endpoint refuses put(), sends its accepted frames, and closes with kClosed.
  //   * A transport over a byte stream closes with kTimeout when it can send no byte for the frame deadline.
  virtual void shutdown() noexcept = 0;

  // True when every accepted put has been handed to the network.
  [[nodiscard]] virtual bool all_sent() const noexcept = 0;
  [[nodiscard]] virtual const EndpointCounters& counters() const noexcept = 0;

  // Asks the peer to give up all advertised buffers. The peer may still write to them while
  // has_advertised_buffers() is true. Meanwhile frames arrive as usual and advertise() is not called.
  virtual void recall() noexcept {}
  // True while the peer may write to an advertised buffer. False once the endpoint has closed.
  [[nodiscard]] virtual bool has_advertised_buffers() const noexcept { return false; }

  // A count that grows when the network loses packets of this connection, in either direction, as far as this
  // end can tell. 0 where no packet can be lost or the loss is unknown. May cost a system call.
  [[nodiscard]] virtual uint64_t packet_losses() const noexcept { return 0; }
  // Time since the connection was opened in which the network limited what this end sends: sent data was not
  // acknowledged, and no buffer of either end was the limit. 0 where it is unknown. May cost a system call.
  [[nodiscard]] virtual Nanos network_limited_time() const noexcept { return 0; }
  // All 0 where packets cannot be lost or the transport does not know. May cost a system call.
  [[nodiscard]] virtual PathStats path_stats() const noexcept { return {}; }
  // True when both ends are in this process and frames move through its memory: nothing can damage a payload,
  // so the sender computes no payload CRC.
  [[nodiscard]] virtual bool is_in_memory() const noexcept { return false; }
  // "10.0.0.3:50112" or "inproc 4", for messages. Valid while the endpoint lives.
  [[nodiscard]] virtual std::string_view peer() const noexcept = 0;

 protected:
  ~Endpoint() = default;
};

struct EndpointOptions {
  uint32_t send_queue = 64;                  // maximum number of accepted puts without on_sent()
  uint32_t max_payload = wire::kMaxPayload;  // longer frames close the endpoint (kBadLength)
  Nanos frame_deadline = 10 * kSecond;       // longest pause within a started frame; 0: no limit
};

// Context drives the endpoints of one thread.
class Context {
 public:
  // Destroys the remaining endpoints without callbacks.
  virtual ~Context() = default;
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Makes progress once: hands queued frames to the network, receives, and runs callbacks. Receives about
  // `budget_bytes` of payload per endpoint at most, so that the owner can do its other work. Deadlines use
  // `now`. Returns the amount of work done; 0 means that there was none.
  virtual unsigned poll(Nanos now, size_t budget_bytes) noexcept = 0;

  // Sleeps until an endpoint has work, wake() is called, or `timeout` has passed (0: returns at once; < 0: no
  // limit). A wake() since the last wait() makes this one return at once.
  virtual void wait(Nanos timeout) noexcept = 0;

  // Ends a wait(). Any thread.
  virtual void wake() noexcept = 0;

  [[nodiscard]] virtual size_t endpoint_count() const noexcept = 0;
};

}  // namespace sluice::transport
