// One thread per process that keeps every session alive, whoever drives its data: sends heartbeats on the
// control connections, hears those of the reducers, notices silence, takes in ABORT and LEAVE_ACK. It is
// started with the first session and stopped with the last.
//
// fork(): the thread does not exist in a child. Sessions made before the fork belong to the parent; a child
// that wants one makes its own, which starts a keeper of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/control_link.h"

namespace sluice::engine {

class Keeper {
 public:
  // What the oldest unfinished chunk of a session waits for, as the reducers tell.
  struct Waiting {
    uint32_t missing_ranks = 0;
    uint32_t first_rank = wire::kNoRank;
    uint32_t waited_ms = 0;
  };

  // Calls come from the keeper thread, with its lock held unless said otherwise: a listener must not call the
  // keeper back.
  class Listener {
   public:
    // Once. The other reducers have been told.
    virtual void on_session_lost(Errc code, std::string text) noexcept = 0;
    virtual void on_waiting(const Waiting& waiting) noexcept = 0;
    // After leave(): every reducer has acknowledged, or is gone.
    virtual void on_left() noexcept = 0;
    // About every heartbeat, without the lock: the keeper may be called. A session that its caller drives
    // moves on here while the caller is away, so that a frame it has begun to send does not stand still for
    // longer than the reducer's frame deadline.
    virtual void on_attend() noexcept {}

   protected:
    ~Listener() = default;
  };

  struct Peer {
    ControlLink link;
    Nanos heartbeat = kSecond;
    Nanos timeout = 10 * kSecond;  // of silence
  };

  // The keeper of this process; it lives as long as somebody holds it.
  [[nodiscard]] static Result<std::shared_ptr<Keeper>> acquire();
  ~Keeper();
  Keeper(const Keeper&) = delete;

  // Takes over the control connections of a committed session. The name is for the calls below. `listener`
  // must live until remove().
  [[nodiscard]] uint64_t add(std::vector<Peer> peers, Listener& listener);
  // Tells every reducer that the session has ended, once; does nothing after a loss. Does not call the
  // listener.
  void abort(uint64_t session, Errc code, uint32_t rank, const std::string& text);
  // Sends LEAVE to every reducer; on_left() follows.
  void leave(uint64_t session);
  // Closes the connections. No call of the listener comes after this has returned.
  void remove(uint64_t session);

 private:
  struct KeptPeer {
    Peer peer;
    Nanos last_heard = 0;
    Nanos next_beat = 0;
    uint64_t beats = 0;
    bool gone = false;   // nothing is read from it any more
    bool acked = false;  // LEAVE
    bool watched = false;
    bool watching_writable = false;
    Waiting waiting;
  };
  struct Kept {
    Listener* listener = nullptr;
    std::vector<KeptPeer> peers;
    bool leaving = false;
    bool ended = false;  // lost or aborted: what arrives is read and dropped
  };

  Keeper() = default;
  [[nodiscard]] Result<void> start();
  void run();
  void turn();
  void attend();
  void wake() noexcept;
  // All below: lock held.
  void serve(uint64_t id, Kept& kept, size_t peer);
  void take(Kept& kept, size_t peer, const ControlLink::Frame& frame);
  void peer_gone(Kept& kept, size_t peer, Status status);
  void lose(Kept& kept, size_t source, Errc code, uint32_t rank, const std::string& words,
            const std::string& text);
  void tell_abort(Kept& kept, size_t except, Errc code, uint32_t rank, const std::string& text);
  void tick(uint64_t id, Kept& kept, Nanos now);
  void check_left(Kept& kept);
  void watch(uint64_t id, KeptPeer& peer, size_t index);
  void unwatch(KeptPeer& peer);
  [[nodiscard]] Nanos next_due() const;

  int epoll_ = -1;
  int wake_ = -1;  // eventfd
  std::thread thread_;
  std::mutex attending_;  // held while listeners are attended; taken before mutex_
  std::mutex mutex_;
  bool stopping_ = false;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Kept> sessions_;
};

}  // namespace sluice::engine
