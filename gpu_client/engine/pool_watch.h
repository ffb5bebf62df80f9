// The reducers that a running session could use, looked for by rank 0 for all ranks (PROTOCOL.md section 11):
// the list, which may stand in a file that is read again when it changes; who answers at each of its
// addresses. A process that the session does not have is joined for this rank before anybody hears of it, so
// one that refuses (memory, draining) costs the session nothing.
//
// One thread of its own, started with the first thing to look for: files and connects may block, and
// losses can't wait for that.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "config/pool.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/greeting.h"
#include "gpu_client/engine/membership.h"
#include "gpu_client/engine/session_log.h"

namespace sluice::engine {

struct PoolWatchOptions {
  std::vector<config::Endpoint> reducers;  // the list, in the order of the first view
  std::string file;                        // where it stands; empty: nowhere
  Identity who;
  uint64_t incarnation = 0;
  wire::View first_view;
  uint32_t lanes = 0;          // as the user asked, 0: what a reducer offers
  Nanos join_timeout = 0;      // told in JOIN
  Nanos seat_timeout = 0;      // for a seat and all lane connections at one reducer
  Nanos file_pause = kSecond;  // between two looks at the file
  // A reducer that is restarted is back soon; a machine that is not comes back some day. Who refused, or
  // could not be joined by all, is given time.
  Nanos first_pause = 250 * kMillisecond;  // doubles up to the longest
  Nanos longest_pause = 2 * kSecond;
  Nanos longest_after_refusal = 30 * kSecond;
  // Of one that some rank could not join; each such try stops all ranks for as long as that one takes to
  // know.
  Nanos longest_after_failure = 300 * kSecond;
};

class PoolWatch {
 public:
  // Calls come from the watch's thread, which holds no lock then: every call but stop() may be made.
  class Listener {
   public:
    // A reducer that the session has not; this rank has a seat there. `address`: as the list has it.
    virtual void on_reducer_found(const config::Endpoint& address, Seat seat) = 0;
    // Reducers of the session that the list has no more, once those that are new in it have been tried and
    // another of the session's is still in it.
    virtual void on_unlisted(std::vector<uint64_t> reducers) = 0;

   protected:
    ~Listener() = default;
  };

  // `listener` lives until stop().
  PoolWatch(PoolWatchOptions options, Listener& listener);
  ~PoolWatch();
  PoolWatch(const PoolWatch&) = delete;

  // Any thread. Errors: the system has no thread.
  [[nodiscard]] Result<void> begin();  // looks at the file, if there is one
  // The session has removed this reducer: who is at its address now?
  [[nodiscard]] Result<void> gone(uint64_t reducer);
  // All ranks have taken it up.
  void seated(uint64_t reducer);
  // Another list; of a file, watched from now on in place of the one before.
  [[nodiscard]] Result<void> set(config::Pool pool);
  // The file is to be read now, changed or not. kInvalidArgument when there is none.
  [[nodiscard]] Result<void> reread();

  // Not from the listener. No call of it comes after this.
  void stop() noexcept;

 private:
  // A place where reducers of this session run, one after the other.
  struct Address {
    config::Endpoint endpoint;
    uint64_t reducer = 0;  // the last seen there; 0: none
    Nanos look_at = 0;     // when to look who is there now; 0: in use
    Nanos pause = 0;
    bool tried = false;    // since it came into the list
    bool refused = false;  // there is somebody whom the session can't have
    std::string said;      // what the log has of why not
  };
  [[nodiscard]] Result<void> wake();
  void run();
  void attempt(const std::function<void()>& work);
  void look_round();
  [[nodiscard]] Nanos next_due() const;
  void take_list(const std::vector<config::Endpoint>& list);
  void look_at_file(bool unchanged_too);
  void look(Address& address);
  [[nodiscard]] Result<uint64_t> who_is_at(const config::Endpoint& endpoint) const;
  [[nodiscard]] Result<Seat> take_seat_at(const config::Endpoint& endpoint, uint64_t reducer) const;
  void put_off(Address& address, bool refused, const std::string& why);
  void tell_unlisted();

  const PoolWatchOptions options_;
  const SessionLog log_;
  Listener& listener_;

  // The thread's own.
  std::vector<Address> addresses_;
  std::map<uint64_t, bool> members_;  // reducers of the session; whether they are seated
  std::set<uint64_t> removed_;        // that were
  std::optional<config::FileWatch> file_;
  Nanos file_at_ = 0;
  bool list_changed_ = false;  // or who is in use: those that it has no more are to be told

  std::mutex mutex_;  // of the rest
  std::condition_variable changed_;
  std::deque<std::function<void()>> orders_;
  bool has_file_ = false;
  std::atomic<bool> stopping_{false};  // written with the lock
  std::thread thread_;
  transport::tcp::Socket interrupt_;  // eventfd; readable from stop() on
};

}  // namespace sluice::engine
