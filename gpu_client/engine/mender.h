// Opens again what broke at one reducer of a session that survives losses (PROTOCOL.md section 11): the
// control connection, lane connections. Tries until it is done, the resume deadline has passed, or it is
// plain that the reducer is gone. A thread of its own, which exists only while there is something to mend.
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
#include "gpu_client/engine/back_off.h"
#include "gpu_client/engine/control_link.h"
#include "gpu_client/engine/greeting.h"
#include "transport/tcp/socket.h"

namespace sluice::engine {

struct MenderOptions {
  std::string name;          // "reducer 10.0.0.2:7470", for messages
  config::Endpoint address;  // Seat::address: stop() waits for a resolver where this is a name
  Identity who;
  uint64_t incarnation = 0;
  uint64_t view_hash = 0;  // JOIN's
  uint64_t reducer = 0;    // its id: another process does not do
  uint32_t handle = 0;
  uint32_t slots = 0;        // W of each lane connection
  Nanos resume_timeout = 0;  // from the moment something is asked for
  // How long refusals alone are taken for passing: a reducer that has not yet heard of the commit does not
  // know the session, and a listener may be away for a moment.
  Nanos refusal_grace = 100 * kMillisecond;
  Nanos try_timeout = 2 * kSecond;           // of one try: what was lost on the way is not answered later
  Nanos first_pause = 10 * kMillisecond;     // between tries, as BackOff has it
  Nanos longest_pause = 250 * kMillisecond;  // what breaks sooner after it was mended never was
};

class Mender {
 public:
  // Calls come from the mender's thread, which holds no lock then: request() may be called, stop() may not.
  class Listener {
   public:
    // ATTACHED has been received and nothing sent since: what stands is the session's to say again.
    virtual void on_control_mended(uint64_t reducer, ControlLink link) noexcept = 0;
    // ... RESUME is the session's to send.
    virtual void on_lane_mended(uint64_t reducer, uint32_t lane, transport::tcp::Socket socket) noexcept = 0;
    // The last call. kTimeout at the deadline; kReset: nobody listens there; kUnknownSession; kReducerLost:
    // another process answers.
    virtual void on_reducer_gone(uint64_t reducer, Errc code, std::string text) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  // `listener` must live until stop() has returned.
  Mender(MenderOptions options, Listener& listener);
  ~Mender() { stop(); }
  Mender(const Mender&) = delete;

  // These are to be opened again: the control connection, the lanes whose bits are set. What was asked for
  // already and is not yet mended counts from then, and so does what was mended only just now. Any thread;
  // does not block. Nothing happens after the reducer was found gone, and after stop(). kSystem when no
  // thread could be had: it may be asked again.
  Result<void> request(bool control, uint64_t lanes);
  // The lane has carried more than the answer to RESUME since it was mended: if it breaks, it breaks anew. To
  // be said before request(). Any thread.
  void proven(uint32_t lane);
  // Gives up whatever is under way, at once. No call of the listener comes after this has returned. One
  // thread.
  void stop();

 private:
  static constexpr size_t kControl = 0;  // lane i is item i + 1
  static constexpr size_t kItems = 1 + wire::kMaxLanes;

  struct Attempt {
    enum class Outcome : uint8_t { kMended, kAgain, kRefused, kGone };
    Outcome outcome = Outcome::kAgain;
    transport::tcp::Socket socket;
    Error why{};
  };
  struct Job {
    size_t item = 0;
    Nanos deadline = 0;  // of what has been broken for longest
    bool relapse = false;
  };

  void run();
  // The next broken item after `last`, going round; nothing when all are whole, or on stop(): then the thread
  // must end.
  [[nodiscard]] std::optional<Job> next_job(size_t last);
  [[nodiscard]] Attempt attempt(size_t item, const Until& until) const;
  // False on stop().
  [[nodiscard]] bool mended(size_t item, transport::tcp::Socket socket);
  void give_up(Errc code, std::string text);
  // One pause of the back-off, no further than `until`, or to stop().
  void pause(Nanos until);

  const MenderOptions options_;
  Listener& listener_;
  BackOff back_off_;  // the thread's

  std::mutex mutex_;
  struct Item {
    bool broken = false;
    bool relapse = false;  // it broke a moment after it was mended, and has not been tried since
    Nanos since = 0;       // when it broke first: a moment of being whole does not count
    Nanos mended_at = 0;   // 0: never, or it has been of use since
  };
  std::array<Item, kItems> items_{};
  bool running_ = false;  // the thread will look at items_ again
  bool stopping_ = false;
  bool gone_ = false;
  transport::tcp::Socket interrupt_;  // eventfd; readable from stop() on
  std::thread thread_;
};

}  // namespace sluice::engine
