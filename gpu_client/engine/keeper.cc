#include "gpu_client/engine/keeper.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/greeting.h"
#include "gpu_client/engine/peer_code.h"
#include "gpu_client/engine/thread.h"

namespace sluice::engine {
namespace {

constexpr uint64_t kWakeEvent = 0;
constexpr size_t kNoPeer = ~size_t{0};
// Frames taken from one connection in a row, so that one that floods does not keep the others waiting.
constexpr int kFramesInARow = 64;

// An event names session and reducer; sessions are numbered from 1 and a view has at most kMaxReducers
// reducers.
constexpr unsigned kPeerBits = 16;
constexpr size_t kMaxPeer = (1u << kPeerBits) - 1;
static_assert(wire::kMaxReducers < kMaxPeer);

}  // namespace

Result<std::shared_ptr<Keeper>> Keeper::acquire() {
  static std::mutex mutex;
  static std::weak_ptr<Keeper> current;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner != ::getpid()) {
    // After a fork `current` names the parent's keeper, which has no thread here. Whoever still holds it
    // keeps it.
    current.reset();
    owner = ::getpid();
  }
  std::shared_ptr<Keeper> keeper = current.lock();
  if (!keeper) {
    keeper.reset(new Keeper);
    if (auto started = keeper->start(); !started) return tl::unexpected(started.error());
    current = keeper;
  }
  return keeper;
}

Result<void> Keeper::start() {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeEvent}};
  if (epoll_ < 0 || wake_ < 0 || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) {
    return fail(Errc::kSystem, std::string("cannot watch control connections: ") + std::strerror(errno));
  }
  auto thread = start_thread("sluice-keeper", [this] { run(); });
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  return {};
}

Keeper::~Keeper() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    thread_.join();
  }
  if (wake_ >= 0) ::close(wake_);
  if (epoll_ >= 0) ::close(epoll_);
}

void Keeper::wake() noexcept {
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_, &one, sizeof one));  // full: a wake-up is under way already
}

uint64_t Keeper::add(std::vector<Peer> peers, Listener& listener, bool survives) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = next_id_++;
  Kept& kept = sessions_[id];
  kept.listener = &listener;
  kept.survives = survives;
  const Nanos now = monotonic_now();
  for (Peer& p : peers) keep(id, kept, std::move(p), now);
  wake();
  return id;
}

void Keeper::keep(uint64_t id, Kept& kept, Peer peer, Nanos now) {
  kept.peers.push_back({.peer = std::move(peer), .last_heard = now, .next_beat = now, .waiting = {}});
  kept.peers.back().more = kept.peers.back().peer.link.pending();
  watch(id, kept.peers.back(), kept.peers.size() - 1);
}

Keeper::Kept* Keeper::running(uint64_t session) {
  const auto found = sessions_.find(session);
  return found == sessions_.end() || found->second.ended ? nullptr : &found->second;
}

void Keeper::abort(uint64_t session, Errc code, uint32_t rank, const std::string& text) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = running(session);
  if (kept == nullptr) return;
  kept->ended = true;
  tell_abort(*kept, kNoPeer, code, rank, text);
}

void Keeper::leave(uint64_t session) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = running(session);
  if (kept == nullptr) return;
  kept->leaving = true;
  const wire::Leave leave{.finished = kept->listener->finished()};
  for (size_t i = 0; i < kept->peers.size(); ++i) {
    KeptPeer& p = kept->peers[i];
    if (kept->survives) {
      if (p.seated) say(session, p, i, leave);
    } else if (!p.gone && !p.peer.link.send(leave).ok()) {
      p.acked = true;
    }
  }
  check_left(*kept);
  wake();
}

void Keeper::said(uint64_t id, KeptPeer& p, size_t index, Status status) {
  // A connection that broke shows in receive(), where the reducer's last words may be. Who has left so much
  // unread has not got this message and would never know.
  if (status == Errc::kWouldBlock) {
    p.stuck = true;
    wake();
  }
  watch(id, p, index);
}

void Keeper::replace(uint64_t session, size_t peer, ControlLink link) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = running(session);
  if (kept == nullptr || peer >= kept->peers.size()) return;
  KeptPeer& p = kept->peers[peer];
  if (p.dropped) return;
  if (!p.gone) unwatch(p);
  p.peer.link = std::move(link);
  p.gone = p.stuck = p.watched = false;
  p.more = p.peer.link.pending();
  p.last_heard = p.next_beat = monotonic_now();
  p.waiting = {};
  watch(session, p, peer);
  if (kept->leaving && p.seated && !p.acked)
    say(session, p, peer, wire::Leave{.finished = kept->listener->finished()});
  wake();
}

void Keeper::drop(uint64_t session, size_t peer) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = running(session);
  if (kept == nullptr || peer >= kept->peers.size()) return;
  KeptPeer& p = kept->peers[peer];
  if (p.dropped) return;
  if (!p.gone) unwatch(p);
  p.peer.link.close();
  p.gone = p.dropped = true;
  p.waiting = {};
  check_left(*kept);
}

bool Keeper::missed(uint64_t session, size_t peer) {
  const std::lock_guard lock(mutex_);
  const Kept* const kept = running(session);
  if (kept == nullptr || peer >= kept->peers.size()) return false;
  const KeptPeer& p = kept->peers[peer];
  return p.gone || monotonic_now() - p.last_heard >= std::max(p.peer.timeout / 2, 2 * p.peer.heartbeat);
}

std::optional<size_t> Keeper::add_peer(uint64_t session, Peer peer) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = running(session);
  if (kept == nullptr || kept->peers.size() > kMaxPeer) return std::nullopt;
  keep(session, *kept, std::move(peer), monotonic_now());
  kept->peers.back().seated = false;
  wake();
  return kept->peers.size() - 1;
}

void Keeper::seat(uint64_t session, size_t peer, const wire::Commit& commit) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = running(session);
  if (kept == nullptr || peer >= kept->peers.size()) return;
  KeptPeer& p = kept->peers[peer];
  p.seated = true;
  say(session, p, peer, commit);
  if (kept->leaving) say(session, p, peer, wire::Leave{.finished = kept->listener->finished()});
}

void Keeper::remove(uint64_t session) {
  const std::lock_guard not_attending(attending_);
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  for (KeptPeer& p : found->second.peers) unwatch(p);
  sessions_.erase(found);
}

void Keeper::run() {
  for (;;) {
    try {
      turn();
      attend();
    } catch (const std::exception&) {
      // No memory for a frame: the sockets keep what could not be taken, and it is tried again.
    }
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
}

void Keeper::attend() {
  const std::lock_guard attending(attending_);  // remove() waits, so the listeners live
  std::vector<Listener*> listeners;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, kept] : sessions_) {
      if (!kept.ended) listeners.push_back(kept.listener);
    }
  }
  for (Listener* const listener : listeners) listener->on_attend();
}

Nanos Keeper::next_due() const {
  Nanos due = INT64_MAX;
  for (const auto& [id, kept] : sessions_) {
    for (const KeptPeer& p : kept.peers) {
      if (!p.gone && p.more) return 0;
      if (!p.gone && !kept.ended) due = std::min({due, p.next_beat, p.last_heard + p.peer.timeout});
    }
  }
  return due;
}

void Keeper::turn() {
  int timeout = -1;
  {
    const std::lock_guard lock(mutex_);
    if (const Nanos due = next_due(); due != INT64_MAX) {
      const Nanos left = std::clamp<Nanos>(due - monotonic_now(), 0, 3600 * kSecond);
      timeout = static_cast<int>(div_ceil(static_cast<uint64_t>(left), kMillisecond));
    }
  }
  std::array<epoll_event, 64> events;
  const int n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout);
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < n; ++i) {
    const uint64_t event = events[static_cast<size_t>(i)].data.u64;
    if (event == kWakeEvent) {
      uint64_t count = 0;
      static_cast<void>(!::read(wake_, &count, sizeof count));
      continue;
    }
    const auto found = sessions_.find(event >> kPeerBits);  // it may have been removed meanwhile
    if (found != sessions_.end()) serve(found->first, found->second, event & ((1u << kPeerBits) - 1));
  }
  for (auto& [id, kept] : sessions_) {
    for (size_t i = 0; i < kept.peers.size(); ++i) {
      if (kept.peers[i].more) serve(id, kept, i);
    }
  }
  const Nanos now = monotonic_now();
  for (auto& [id, kept] : sessions_) tick(id, kept, now);
}

void Keeper::serve(uint64_t id, Kept& kept, size_t index) {
  KeptPeer& p = kept.peers[index];
  p.more = false;
  for (int i = 0; !p.gone; ++i) {
    if (i == kFramesInARow) {
      p.more = p.peer.link.pending();
      break;
    }
    ControlLink::Frame frame;
    const Status status = p.peer.link.receive(frame);
    if (status.code() == Errc::kWouldBlock) break;
    if (!status.ok()) {
      peer_gone(kept, index, status);
      return;
    }
    p.last_heard = monotonic_now();
    if (!kept.ended) take(id, kept, index, frame);
  }
  if (p.gone) return;
  static_cast<void>(p.peer.link.flush());  // a broken connection shows in receive()
  watch(id, p, index);
}

template <typename M>
void Keeper::hand_on(Kept& kept, size_t index, const ControlLink::Frame& frame,
                     void (Listener::*to)(size_t, const M&) noexcept) {
  if (!kept.survives) return peer_gone(kept, index, Errc::kUnexpectedMessage);
  M message;
  if (const Status s = wire::decode_body(frame.body, message); !s.ok()) return peer_gone(kept, index, s);
  (kept.listener->*to)(index, message);
}

void Keeper::tell_waiting(const Kept& kept) {
  const auto longest = std::max_element(
      kept.peers.begin(), kept.peers.end(),
      [](const KeptPeer& a, const KeptPeer& b) { return a.waiting.waited_ms < b.waiting.waited_ms; });
  kept.listener->on_waiting(longest->waiting);
}

void Keeper::take(uint64_t id, Kept& kept, size_t index, const ControlLink::Frame& frame) {
  KeptPeer& p = kept.peers[index];
  switch (frame.header.type) {
    case wire::FrameType::kHeartbeat: {
      wire::Heartbeat beat;
      if (const Status s = wire::decode_body(frame.body, beat); !s.ok()) return peer_gone(kept, index, s);
      p.waiting = {.missing_ranks = beat.missing_ranks,
                   .first_rank = beat.missing.empty() ? wire::kNoRank : beat.missing.front(),
                   .waited_ms = beat.waited_ms};
      if (beat.answer != 0) this->beat(id, kept, index);
      return tell_waiting(kept);
    }
    case wire::FrameType::kLeaveAck: {
      p.acked = true;
      return check_left(kept);
    }
    case wire::FrameType::kAbort: {
      wire::Abort abort;
      if (const Status s = wire::decode_body(frame.body, abort); !s.ok()) return peer_gone(kept, index, s);
      const std::string words = printable(abort.text);
      return lose(kept, index, from_peer(abort.code), abort.rank, words,
                  p.peer.link.name() + " ended the session: " + words);
    }
    case wire::FrameType::kViewQuery: return hand_on(kept, index, frame, &Listener::on_view_query);
    case wire::FrameType::kViewCommit: return hand_on(kept, index, frame, &Listener::on_view_commit);
    case wire::FrameType::kDrainNotice: return hand_on(kept, index, frame, &Listener::on_drain_notice);
    default: return peer_gone(kept, index, Errc::kUnexpectedMessage);
  }
}

void Keeper::peer_gone(Kept& kept, size_t index, Status status) {
  KeptPeer& p = kept.peers[index];
  unwatch(p);
  p.gone = true;
  if (kept.ended) return;
  if (kept.leaving && (!kept.survives || p.acked)) {
    // Nothing of this session needs the reducer any more, unless it says otherwise, and now it can't.
    p.acked = true;
    return check_left(kept);
  }
  std::string what = "malformed frame on the control connection: " + std::string(to_string(status.code()));
  Errc code = status.code();
  if (code == Errc::kClosed || code == Errc::kReset) {
    what = code == Errc::kClosed ? "closed the control connection" : "the control connection broke";
    code = Errc::kReducerLost;
  } else if (code == Errc::kTimeout) {
    what = "silent for " + std::to_string(p.peer.timeout / kMillisecond) + " ms";
    code = Errc::kReducerLost;
  }
  if (kept.survives) {
    p.peer.link.close();
    p.waiting = {};
    tell_waiting(kept);
    return kept.listener->on_peer_gone(index, status.code(), p.peer.link.name() + ": " + what);
  }
  const std::string text = p.peer.link.name() + " was lost: " + what;
  lose(kept, index, code, wire::kNoRank, text, text);
}

void Keeper::lose(Kept& kept, size_t source, Errc code, uint32_t rank, const std::string& words,
                  const std::string& text) {
  kept.ended = true;
  tell_abort(kept, source, code, rank, words);
  kept.listener->on_session_lost(code, text);
}

void Keeper::tell_abort(Kept& kept, size_t except, Errc code, uint32_t rank, const std::string& text) {
  wire::Abort abort;
  abort.code = for_peer(code);
  abort.rank = rank;
  abort.text = text;
  for (size_t i = 0; i < kept.peers.size(); ++i) {
    KeptPeer& p = kept.peers[i];
    if (i == except || p.gone) continue;
    static_cast<void>(p.peer.link.send(abort));
    p.peer.link.shutdown();
  }
}

void Keeper::tick(uint64_t id, Kept& kept, Nanos now) {
  for (size_t i = 0; i < kept.peers.size() && !kept.ended; ++i) {
    KeptPeer& p = kept.peers[i];
    if (p.gone) continue;
    if (p.stuck) {
      serve(id, kept, i);  // its reason may be there to be read
      if (!p.gone && !kept.ended) peer_gone(kept, i, Errc::kReset);
      continue;
    }
    if (now - p.last_heard >= p.peer.timeout) {
      // This thread may have been the one that slept: look before judging.
      serve(id, kept, i);
      if (!p.gone && !kept.ended && now - p.last_heard >= p.peer.timeout) peer_gone(kept, i, Errc::kTimeout);
      continue;
    }
    if (now < p.next_beat) continue;
    p.next_beat = now + p.peer.heartbeat;
    beat(id, kept, i);
  }
}

void Keeper::beat(uint64_t id, Kept& kept, size_t index) {
  KeptPeer& p = kept.peers[index];
  const wire::Heartbeat beat{.count = ++p.beats, .missing = {}, .finished = kept.listener->finished()};
  // A full socket is the reducer's trouble: it will show as silence.
  static_cast<void>(p.peer.link.send(beat));
  watch(id, p, index);
}

void Keeper::check_left(Kept& kept) {
  if (!kept.leaving) return;
  // Of a session that survives, a reducer whose connection is only broken still has to acknowledge.
  const bool all = std::all_of(kept.peers.begin(), kept.peers.end(), [&](const KeptPeer& p) {
    return p.acked || !p.seated || (kept.survives ? p.dropped : p.gone);
  });
  if (all) kept.listener->on_left();
}

void Keeper::watch(uint64_t id, KeptPeer& p, size_t index) {
  const bool writable = p.peer.link.has_unsent();
  if (p.watched && writable == p.watching_writable) return;
  epoll_event event{.events = EPOLLIN | (writable ? EPOLLOUT : 0u),
                    .data = {.u64 = (id << kPeerBits) | index}};
  // If the kernel has no memory for this, the connection is still served on every tick of silence.
  ::epoll_ctl(epoll_, p.watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, p.peer.link.fd(), &event);
  p.watched = true;
  p.watching_writable = writable;
}

// Before the descriptor is closed: a forked child may hold a copy that would keep the registration alive.
void Keeper::unwatch(KeptPeer& p) {
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, p.peer.link.fd(), nullptr);
}

}  // namespace sluice::engine
