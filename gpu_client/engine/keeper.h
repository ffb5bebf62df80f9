// One thread per process that keeps every session alive, whoever drives its data: sends heartbeats on the
// control connections, hears those of the reducers, notices silence, takes in ABORT and LEAVE_ACK. It is
// started with the first session and stopped with the last.
//
// In a session that survives losses (PROTOCOL.md section 11) a control connection that ends is no end of the
// session: the listener is told, and gives another connection or gives the reducer up.
//
// fork(): the thread does not exist in a child. Sessions made before the fork belong to the parent; a child
// that wants one makes its own, which starts a keeper of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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
    // After leave(): every reducer has acknowledged, or is gone; of a session that survives, was dropped. May
    // come from within leave() and drop().
    virtual void on_left() noexcept = 0;
    // The rank's first chunk without a result: what the reducers are told of its progress.
    [[nodiscard]] virtual uint64_t finished() const noexcept = 0;
    // About every heartbeat, without the lock: the keeper may be called. A session that its caller drives
    // moves on here while the caller is away, so that a frame it has begun to send does not stand still for
    // longer than the reducer's frame deadline.
    virtual void on_attend() noexcept {}

    // Only of sessions that survive. `peer`: its place in add(), or what add_peer() gave.
    // Once for each connection, which is closed: kClosed, kReset, kTimeout for silence, or what was wrong
    // with the reducer's bytes. replace() or drop() is what follows.
    // NOLINTNEXTLINE(performance-unnecessary-value-param): whoever listens keeps it
    virtual void on_peer_gone(size_t, Errc, std::string) noexcept {}
    virtual void on_view_query(size_t, const wire::ViewQuery&) noexcept {}
    virtual void on_view_commit(size_t, const wire::ViewCommit&) noexcept {}
    virtual void on_drain_notice(size_t, const wire::DrainNotice&) noexcept {}

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

  // All calls below: any thread, but never from within a call of a listener's other than on_attend().

  // Takes over the control connections of a committed session. The name is for the calls below. `listener`
  // must live until remove().
  [[nodiscard]] uint64_t add(std::vector<Peer> peers, Listener& listener, bool survives = false);
  // Tells every reducer that the session has ended, once; does nothing after a loss. Does not call the
  // listener.
  void abort(uint64_t session, Errc code, uint32_t rank, const std::string& text);
  // Sends LEAVE to every reducer; on_left() follows.
  void leave(uint64_t session);
  // Closes the connections. No call of the listener comes after this has returned.
  void remove(uint64_t session);

  // For sessions that survive. One message to one reducer, or to all: to those whose connection stands. What
  // the others miss is the session's to say again after replace(). A reducer that takes nothing any more
  // loses its connection.
  template <typename M>
  void send(uint64_t session, size_t peer, const M& message);
  template <typename M>
  void send_all(uint64_t session, const M& message);
  // The connection in place of the one that ended, or of the one there is; LEAVE is said again on it when it
  // is due. Without effect for a peer that was dropped, and after the session's end.
  void replace(uint64_t session, size_t peer, ControlLink link);
  // The reducer is no part of the session any more: its connection is closed and it counts as gone for good.
  void drop(uint64_t session, size_t peer);
  // The reducer's connection has ended, or nothing was heard on it for half the time after which it ends for
  // silence, at least two heartbeats: another rank may have missed the reducer already.
  [[nodiscard]] bool missed(uint64_t session, size_t peer);
  // A reducer that is to be added to the session. Nothing after the session's end.
  [[nodiscard]] std::optional<size_t> add_peer(uint64_t session, Peer peer);
  // It is part of the session from here on: it is told COMMIT, and LEAVE when that is due.
  void seat(uint64_t session, size_t peer, const wire::Commit& commit);

 private:
  struct KeptPeer {
    Peer peer;
    Nanos last_heard = 0;
    Nanos next_beat = 0;
    uint64_t beats = 0;
    bool gone = false;     // nothing is read from it any more
    bool dropped = false;  // ... and no other connection will come
    bool stuck = false;    // a message could not be sent whole: the connection is to end
    bool seated = true;    // not while the session does not go on with it yet
    bool acked = false;    // LEAVE
    bool more = false;     // frames may be there that no event will announce
    bool watched = false;
    bool watching_writable = false;
    Waiting waiting;
  };
  struct Kept {
    Listener* listener = nullptr;
    std::vector<KeptPeer> peers;
    bool survives = false;
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
  [[nodiscard]] Kept* running(uint64_t session);
  void keep(uint64_t id, Kept& kept, Peer peer, Nanos now);
  template <typename M>
  void say(uint64_t id, KeptPeer& peer, size_t index, const M& message);
  void said(uint64_t id, KeptPeer& peer, size_t index, Status status);
  template <typename M>
  void hand_on(Kept& kept, size_t peer, const ControlLink::Frame& frame,
               void (Listener::*to)(size_t, const M&) noexcept);
  void tell_waiting(const Kept& kept);
  void serve(uint64_t id, Kept& kept, size_t peer);
  void take(uint64_t id, Kept& kept, size_t peer, const ControlLink::Frame& frame);
  void peer_gone(Kept& kept, size_t peer, Status status);
  void lose(Kept& kept, size_t source, Errc code, uint32_t rank, const std::string& words,
            const std::string& text);
  void tell_abort(Kept& kept, size_t except, Errc code, uint32_t rank, const std::string& text);
  void tick(uint64_t id, Kept& kept, Nanos now);
  void beat(uint64_t id, Kept& kept, size_t peer);
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

template <typename M>
void Keeper::say(uint64_t id, KeptPeer& p, size_t index, const M& message) {
  if (!p.gone) said(id, p, index, p.peer.link.send(message));
}

template <typename M>
void Keeper::send(uint64_t session, size_t peer, const M& message) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = running(session);
  if (kept != nullptr && peer < kept->peers.size()) say(session, kept->peers[peer], peer, message);
}

template <typename M>
void Keeper::send_all(uint64_t session, const M& message) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = running(session);
  if (kept == nullptr) return;
  for (size_t i = 0; i < kept->peers.size(); ++i) say(session, kept->peers[i], i, message);
}

}  // namespace sluice::engine
