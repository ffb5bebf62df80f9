// The contract of every transport (inproc, tcp, rdma; fault stands in front of any of them).
//
// One primitive: put a frame into the remote slot it names and tell the slot's owner. A slot in hand is a
// credit: the layer above puts only what the peer has granted, so a receiver always has the place for what
// arrives and a transport never buffers payload of its own.
//
// Threads. A Context belongs to one thread, its owner; every call on it, on its endpoints, and every callback
// happens there. Context::wake() is the one exception: any thread. Two contexts share nothing.
//
// Buffers. Extensions are copied inside put(). Payload bytes belong to the transport from an accepted put()
// until on_sent() for its cookie: until then they must stay valid and unchanged. The memory a Handler returns
// from on_header() belongs to the transport until on_frame() for that header, or on_closed(), whichever comes
// first.
//
// Callbacks. They run inside Context::poll() and only there: never inside put(), close() or adopt. A callback
// may call put() and close() on any endpoint of the context. None may throw. Per endpoint:
//   * each accepted put() gets exactly one on_sent(), in the order of the puts, also when the endpoint closes
//   (with the reason);
//   * on_header() is followed by on_frame() for the same frame, or by on_closed();
//   * on_closed() comes exactly once, as the last callback; the Endpoint is destroyed by its Context after it
//   returns.
// A sent frame is a frame handed to the network: only the peer's answer proves arrival.
//
// Trust. A transport checks what needs no knowledge of the session: magic, version, type, lengths,
// enumerations, header CRC, payload CRC (as the bytes arrive, while they are in cache). The first breach
// closes that endpoint with its reason; nothing else notices. What needs the session is checked by
// on_header().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/status.h"
#include "core/units.h"
#include "wire/frame.h"

namespace sluice::transport {

// The caller's name for a put; returned by on_sent(), never interpreted.
using Cookie = uint64_t;

// Most extension bytes of a frame (PROTOCOL.md section 2). The header could announce more: such a frame is
// closed with bad_extension.
inline constexpr size_t kMaxExtensions = 64;

// What put() demands of its arguments.
[[nodiscard]] inline bool fits(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                               std::span<const std::byte> payload) noexcept {
  return header.length == payload.size() && header.extension_bytes() == extensions.size() &&
         extensions.size() <= kMaxExtensions;
}

struct Placement {
  Status status;                 // anything but kOk closes the endpoint with that reason
  std::byte* payload = nullptr;  // where header.length bytes go; may be null when length is 0
};

// A frame that is likely to come. Length 0: nobody knows.
struct Forecast {
  std::byte* payload = nullptr;  // what on_header() would say
  uint32_t length = 0;           // of the payload
  uint32_t extension_bytes = 0;
};

// A place that the peer may write payload to by itself, ahead of the frame that tells of it: of the data
// frame (wire::is_data) with this sequence in this view.
struct Loan {
  std::byte* place = nullptr;  // null: none
  uint32_t capacity = 0;       // a longer payload comes otherwise
  uint16_t view_version = 0;
  uint64_t sequence = 0;
};

class Endpoint;

// One per endpoint, owned by the layer above, outlives the endpoint.
class Handler {
 public:
  // A header that passed the transport's own checks, its CRC included. Say where the payload goes, or refuse.
  [[nodiscard]] virtual Placement on_header(Endpoint& ep, const wire::FrameHeader& header,
                                            std::span<const std::byte> extensions) noexcept = 0;
  // The whole frame is there and its payload CRC was right. `payload` is the memory given in on_header().
  virtual void on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                        std::span<std::byte> payload) noexcept = 0;
  // What on_header() is likely to be told of the frame that is the (`ahead` + 1)-th one after those that
  // on_frame() has told: with it a transport over streams receives several frames by one system call. A guess
  // that is wrong costs a copy; but until that frame is there, bytes that belong elsewhere may be written to
  // the place, so nobody else may
  // need it, and places of several frames do not overlap.
  [[nodiscard]] virtual Forecast forecast(Endpoint& /*ep*/, unsigned /*ahead*/) noexcept { return {}; }
  // The next place to be lent, in the order in which the frames will come; asked for again and again in
  // poll(), until there is none for now. A transport whose peer can write by itself (rdma) then receives the
  // payload where it belongs without a copy, when on_header() names that very place; another place costs a
  // copy. From then until the frame came, or one behind it, the peer may write there at any moment, so nobody
  // else may need it: recall() takes loans back.
  [[nodiscard]] virtual Loan lend(Endpoint& /*ep*/) noexcept { return {}; }
  // The transport has let go of the payload of the put named by `cookie`. kOk: handed to the network.
  // Anything else: not sent.
  virtual void on_sent(Endpoint& ep, Cookie cookie, Status status) noexcept = 0;
  // kClosed when the peer ended in order, the reason given to close(), or what broke: kReset; kTimeout also
  // where what was sent, or probes, have gone unanswered for so long that the system gave up.
  virtual void on_closed(Endpoint& ep, Errc reason) noexcept = 0;

 protected:
  ~Handler() = default;
};

// Plain counters, written by the owner thread; read them there.
struct EndpointCounters {
  uint64_t frames_in = 0;
  uint64_t frames_out = 0;
  uint64_t payload_bytes_in = 0;
  uint64_t payload_bytes_out = 0;
  uint64_t wire_bytes_in = 0;  // headers and extensions included
  uint64_t wire_bytes_out = 0;
  uint64_t receive_calls = 0;  // system calls (0 for inproc and rdma)
  uint64_t send_calls = 0;
  uint64_t bytes_copied = 0;  // payload bytes copied in user space on the way in
  // Of tcp alone: time in which frames were queued and the socket took nothing, counted when it takes again.
  uint64_t send_blocked_ns = 0;
  // Of rdma alone.
  uint64_t bytes_copied_out = 0;  // payload bytes copied in user space on the way out
  uint64_t work_requests = 0;     // posted: sends, writes, receives
  uint64_t doorbells = 0;         // calls that posted them
  uint64_t completions = 0;

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
    doorbells += c.doorbells;
    completions += c.completions;
    return *this;
  }
};

class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Queue one frame. header.length must equal payload.size(), header.ext_len8 * 8 must equal
  // extensions.size() (<= kMaxExtensions); header.payload_crc is the caller's business when kFlagPayloadCrc
  // is set (it knows when the bytes are in cache). kOk: accepted, exactly one on_sent follows. kWouldBlock:
  // queue full, nothing taken, try after progress. kClosed: closing.
  [[nodiscard]] virtual Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                                   std::span<const std::byte> payload, Cookie cookie) noexcept = 0;

  // Closes now; frames not yet handed to the network are given back by on_sent(reason), then
  // on_closed(reason), from a later poll. With kReset the peer sees the connection break; with any other
  // reason an end, which is in order (kClosed) for it where it falls between two frames and nothing was on
  // its way to us.
  virtual void close(Errc reason) noexcept = 0;

  // Sends what is queued, tells the peer that nothing more comes, and keeps receiving until the peer closes
  // too; then on_closed(kClosed). No put() after this. The caller bounds it: close() ends it at any time. The
  // peer's end of it is the same by itself: with its last frame received, an endpoint refuses put(), sends
  // what it had accepted, and closes with kClosed. A transport over streams closes with kTimeout when the
  // frame deadline passes without a byte taken.
  virtual void shutdown() noexcept = 0;

  // True when every accepted put has been handed to the network.
  [[nodiscard]] virtual bool idle() const noexcept = 0;
  [[nodiscard]] virtual const EndpointCounters& counters() const noexcept = 0;
  // Asks the peer for what lend() gave; until lent() is false it may still be written to. Meanwhile frames
  // come as ever, and lend() is not asked.
  virtual void recall() noexcept {}
  // The peer may write to a place that lend() gave. False once the endpoint has closed.
  [[nodiscard]] virtual bool lent() const noexcept { return false; }
  // A number that goes up when packets of this connection were lost in the network, either way, as far as
  // this end can see; 0 where nothing can be lost or nobody tells. May cost a system call.
  [[nodiscard]] virtual uint64_t losses() const noexcept { return 0; }
  // "10.0.0.3:50112" or "inproc 4": for messages. Valid while the endpoint lives.
  [[nodiscard]] virtual std::string_view peer() const noexcept = 0;

 protected:
  ~Endpoint() = default;  // owned and destroyed by the Context
};

struct EndpointOptions {
  uint32_t send_queue = 64;                  // most puts accepted and not yet given back
  uint32_t max_payload = wire::kMaxPayload;  // longer frames are closed with bad_length before on_header
  Nanos frame_deadline =
      10 * kSecond;  // a started frame must end within this much time without a byte; 0 = none
};

class Context {
 public:
  // Endpoints that are left end with it, without callbacks.
  virtual ~Context() = default;
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // One turn: hand queued frames to the network, take in what is there, run callbacks. At most about
  // `budget_bytes` of payload are received per endpoint, so that the owner gets to its other work. `now`
  // feeds deadlines. Returns how much was done (0 = nothing to do).
  virtual unsigned poll(Nanos now, size_t budget_bytes) noexcept = 0;

  // Sleeps until an endpoint has something to do, wake() is called, or `timeout` has passed (0: returns at
  // once; < 0: no limit). A wake() before or during the wait ends it.
  virtual void wait(Nanos timeout) noexcept = 0;

  // Ends a wait(). Any thread.
  virtual void wake() noexcept = 0;

  [[nodiscard]] virtual size_t endpoint_count() const noexcept = 0;
};

}  // namespace sluice::transport
