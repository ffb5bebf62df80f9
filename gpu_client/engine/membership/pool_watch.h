// Class PoolWatch finds reducers that a running session could use; rank 0 does this for all ranks
// (protocol.md section 11). It watches the list of reducers, which may be a file that changes, and probes
// which process answers at each address. Before it reports a new process, this rank makes a reservation
// there, so a reducer that refuses (memory limit, draining) costs the session nothing.
//
// The class has its own thread, because file access and connects may block and losses must not wait for them.
// The thread starts with the first task.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "config/pool.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/join/join.h"

namespace sluice::engine {

struct PoolWatchOptions {
  JoinOptions join;  // with the list of reducers, and its file if it has one
  uint64_t incarnation = 0;
  wire::View first_view;
  Nanos reservation_timeout = 0;  // for the reservation and all lane connections at one reducer
  // For connect, HELLO and WELCOME. Short, because one thread probes all addresses in turn.
  Nanos probe_timeout = 500 * kMillisecond;
  Nanos file_check_interval = kSecond;
  // Pauses between probes of an address. They start short, because a restarted reducer returns soon, and
  // double up to a limit, which is higher for a reducer that refused.
  Nanos first_pause = 250 * kMillisecond;
  Nanos longest_pause = 2 * kSecond;
  Nanos longest_after_refusal = 30 * kSecond;
  // For a reducer that some rank could not join. Each such attempt stops all ranks until that rank knows.
  Nanos longest_after_failure = 300 * kSecond;
};

class PoolWatch {
 public:
  // Calls come from the watch's thread without any lock held, so every call but stop() is allowed.
  class Listener {
   public:
    // This rank has a reservation at a reducer that is not in the session. `address` is the list's.
    virtual void on_reducer_found(const config::Endpoint& address, ReducerReservation reservation) = 0;
    // The list no longer has these reducers of the session. Called after the new entries of the list have
    // been probed, and only if another reducer of the session is still in the list.
    virtual void on_unlisted(std::vector<uint64_t> reducers) = 0;

   protected:
    ~Listener() = default;
  };

  // `listener` lives until stop().
  PoolWatch(PoolWatchOptions options, Listener& listener);
  ~PoolWatch() { stop(); }
  PoolWatch(const PoolWatch&) = delete;

  // All calls below: any thread. Errors mean that the system cannot start a thread.

  // Starts watching the file if there is one.
  [[nodiscard]] Result<void> begin();
  // The session has removed this reducer: probe its address for a successor.
  [[nodiscard]] Result<void> reducer_removed(uint64_t reducer);
  // All ranks have added the reducer.
  void set_confirmed(uint64_t reducer);
  // Replaces the list. With a file, watches that file instead of the earlier one.
  [[nodiscard]] Result<void> set_pool(config::Pool pool);
  // Reads the file now even if it has not changed. Returns kInvalidArgument without a file.
  [[nodiscard]] Result<void> reread();

  // Stops the thread. The listener is not called after this returns. Not from the listener.
  void stop() noexcept;

 private:
  // An address at which reducers of this session run, one after the other.
  struct Address {
    config::Endpoint endpoint;
    uint64_t reducer = 0;  // id of the process found last; 0: none
    Nanos next_probe = 0;  // 0: the process there is in use
    Nanos pause = 0;
    bool probed = false;   // since the address was added to the list
    bool refused = false;  // the process there cannot be used
    std::string logged_reason;
  };
  // Starts or wakes the thread. Lock held.
  [[nodiscard]] Result<void> wake();
  void run();
  void probe_due();
  [[nodiscard]] Nanos next_due() const;
  void update_list(const std::vector<config::Endpoint>& list);
  void check_file(bool unchanged_too);
  void probe(Address& address);
  [[nodiscard]] Result<uint64_t> identify(const config::Endpoint& endpoint) const;
  void postpone(Address& address, bool refused, const std::string& reason);
  void report_unlisted();

  const PoolWatchOptions options_;
  const SessionLog log_;
  Listener& listener_;

  // Only for the thread.
  std::vector<Address> addresses_;
  std::map<uint64_t, bool> members_;  // reducers of the session, and whether all ranks have added them
  std::set<uint64_t> removed_;        // former reducers of the session
  std::optional<config::FileWatch> file_;
  Nanos next_file_check_ = 0;
  std::string logged_file_error_;  // empty: the last reading succeeded
  bool list_changed_ = false;      // the list or the session's reducers: report_unlisted() is due

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool has_file_ = false;
  std::atomic<bool> stopping_{false};  // written with the lock held
  std::thread thread_;
  transport::tcp::Socket interrupt_;  // eventfd; readable after stop()
};

}  // namespace sluice::engine
