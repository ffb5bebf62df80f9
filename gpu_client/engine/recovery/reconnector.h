// Class Reconnector reopens the broken connections to one reducer of a fault-tolerant session (protocol.md
// section 11): the control connection and lane connections. It retries until a connection is open, the resume
// timeout has passed, or the reducer is certainly gone. It has its own thread, which exists only while there
// is a broken connection.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/control/control_connection.h"
#include "gpu_client/engine/join/handshake.h"
#include "gpu_client/engine/recovery/back_off.h"
#include "transport/tcp/socket.h"

namespace sluice::engine {

struct ReconnectorOptions {
  std::string name;          // "reducer 10.0.0.2:7470", for messages
  config::Endpoint address;  // ReducerReservation::address; if it is a name, stop() waits for the resolver
  Identity identity;
  uint64_t incarnation = 0;
  uint64_t view_hash = 0;  // of JOIN
  uint64_t reducer = 0;    // id of the process that must answer
  uint32_t handle = 0;
  uint32_t slots = 0;        // W of each lane connection
  Nanos resume_timeout = 0;  // from the request for a connection
  // How long refusals count as temporary: a reducer that has not received COMMIT yet does not know the
  // session, and its listener may be closed for a moment.
  Nanos refusal_grace = 100 * kMillisecond;
  Nanos try_timeout = 2 * kSecond;  // of one attempt, because lost packets may leave it without an answer
  Nanos first_pause = 10 * kMillisecond;  // between attempts; see BackOff
  // Also the time for which a new connection must stand: one that breaks earlier counts as never opened.
  Nanos longest_pause = 250 * kMillisecond;
};

class Reconnector {
 public:
  // Calls come from the reconnector's thread without any lock held: request() is allowed, stop() is not.
  class Listener {
   public:
    // ATTACHED was received and nothing sent since. The session must repeat what the reducer may have missed.
    virtual void on_control_reconnected(uint64_t reducer_id, ControlConnection connection) noexcept = 0;
    // ATTACHED was received and nothing sent since. The session must send RESUME.
    virtual void on_lane_reconnected(uint64_t reducer_id, uint32_t lane,
                                     transport::tcp::Socket socket) noexcept = 0;
    // The last call. kTimeout: the resume timeout has passed; kReset: nothing listens at the address;
    // kUnknownSession: the reducer has no such session; kReducerLost: another process answers.
    virtual void on_reconnect_failed(uint64_t reducer_id, Errc code, std::string text) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  // `listener` must live until stop() has returned.
  Reconnector(ReconnectorOptions options, Listener& listener);
  ~Reconnector() { stop(); }
  Reconnector(const Reconnector&) = delete;

  // Reopens the control connection, and the lane connections whose bits are set. The timeout of a connection
  // that is being reopened already, or broke again soon after it was opened, still counts from its first
  // request. Has no effect after on_reconnect_failed() and stop(). Returns kSystem when no thread can be
  // started; the call may then be repeated. Does not block. Any thread.
  Result<void> request(bool control, uint64_t lanes);
  // Tells that the new lane connection has received more than RESUME_ACK, so its next loss is a new one. To
  // be called before request(). Any thread.
  void mark_stable(uint32_t lane);
  // Cancels all attempts at once. The listener is not called after this returns. One thread.
  void stop();

 private:
  static constexpr size_t kControl = 0;  // lane connection i has index i + 1
  static constexpr size_t kConnections = 1 + wire::kMaxLanes;

  struct Attempt {
    enum class Outcome : uint8_t { kConnected, kRetry, kRefused, kReplaced };
    Outcome outcome = Outcome::kRetry;
    transport::tcp::Socket socket;
    Error error{};
  };
  struct Task {
    size_t index = 0;
    Nanos deadline = 0;  // of the connection that has been broken for longest
    bool repeated = false;
  };

  void run();
  // The next broken connection after index `last`, round robin. Returns nullopt when none is broken, or on
  // stop(): then the thread must end.
  [[nodiscard]] std::optional<Task> next_task(size_t last);
  [[nodiscard]] Attempt attempt(size_t index, const Deadline& deadline) const;
  // Returns false on stop().
  [[nodiscard]] bool report_connected(size_t index, transport::tcp::Socket socket);
  void report_failure(Errc code, std::string text);
  // Waits for one pause of the back-off, at most until `deadline` or stop().
  void pause(Nanos deadline);

  const ReconnectorOptions options_;
  Listener& listener_;
  BackOff back_off_;  // of the thread

  std::mutex mutex_;  // guards all below
  struct ConnectionState {
    bool broken = false;
    bool repeated = false;   // broke soon after it was reopened, and was not tried since
    Nanos since = 0;         // when it broke first; a short time of being open does not count
    Nanos connected_at = 0;  // 0: not reopened, or stable since
  };
  std::array<ConnectionState, kConnections> connections_{};
  bool running_ = false;  // the thread will look at connections_ again
  bool stopping_ = false;
  bool failed_ = false;
  transport::tcp::Socket interrupt_;  // eventfd; readable after stop()
  std::thread thread_;
};

}  // namespace sluice::engine
