#include "gpu_client/local/meeting.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "gpu_client/engine/base/peer_error.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/local/meeting_messages.h"
#include "gpu_client/local/meeting_proof.h"
#include "gpu_client/local/packet_socket.h"
#include "wire/sha256.h"

namespace sluice::local {
namespace {

constexpr Nanos kRetry = 5 * kMillisecond;     // while the leader binds, but does not listen yet
constexpr Nanos kProofTimeout = 5 * kSecond;   // of one connection
constexpr Nanos kVerdictGrace = 5 * kSecond;   // the leader decides who is late
constexpr Nanos kReadyTimeout = 10 * kSecond;  // to map the segment
constexpr size_t kMaxStrangers = 64;           // connections without a proof

template <typename M>
std::vector<std::byte> encode(const M& message) {
  std::vector<std::byte> out{static_cast<std::byte>(M::kType)};
  std::ranges::copy(wire::encode_body(message), std::back_inserter(out));
  return out;
}

template <typename M>
Status decode(const Packet& packet, M& out) {
  const std::span<const std::byte> bytes(packet.bytes);
  if (bytes.empty() || bytes[0] != static_cast<std::byte>(M::kType)) return Errc::kUnexpectedMessage;
  return wire::decode_body(bytes.subspan(1), out);
}

Error to_error(Errc code, std::string text) {
  return {.code = is_known(code) && code != Errc::kOk ? code : Errc::kInternal,
          .text = engine::replace_control_characters(std::move(text))};
}

std::string rank_name(Rank rank) {
  return "rank " + std::to_string(rank);
}

// The error of a rank whose leader has not proved the token, so may be a stranger. It may have given up, by
// time; of this process are errors of the system.
Error unproved(const MeetingPlan& plan, Error error) {
  constexpr std::array kKept = {Errc::kShutdown, Errc::kJoinTimeout, Errc::kTimeout, Errc::kSystem,
                                Errc::kUnauthenticated};
  if (!plan.may_fail || std::ranges::find(kKept, error.code) != kKept.end()) return error;
  return {Errc::kUnauthenticated,
          "whoever holds the socket of this session has not proved the job token: " + error.text};
}

// The others wait for an answer, so an exception is one too.
Result<void> guarded(const std::function<Result<void>(Segment)>& begin_watch, Segment segment) {
  try {
    return begin_watch(std::move(segment));
  } catch (const std::exception& e) {
    return fail(Errc::kSystem, e.what());
  }
}

class Leader {
 public:
  Leader(const engine::Identity& identity, const MeetingPlan& plan, Socket listener, Nanos deadline)
      : identity_(identity),
        plan_(plan),
        expected_(plan.topology.ranks_of[plan.topology.host_of[identity.rank]]),
        listener_(std::move(listener)),
        deadline_(deadline) {}

  Result<void> run(const std::function<Result<void>(Segment)>& begin_watch) {
    auto done = await_ranks();
    log_refused();
    if (done) done = share_segment(begin_watch);
    if (done) done = await_ready();
    LocalVerdict verdict;
    if (!done) verdict.code = done.error().code, verdict.text = done.error().text;
    for (const Member& m : members_) {
      // A member that has closed learns nothing; if the session begins, its death is seen by the watch.
      static_cast<void>(send_packet(m.socket, encode(verdict)));
    }
    return done;
  }

 private:
  enum class State : uint8_t { kConnected, kChallenged, kArrived, kReady };
  struct Member {
    Socket socket;
    PeerProcess process;
    State state = State::kConnected;
    Nanos proof_deadline = 0;
    LocalHello hello{};
    LocalChallenge challenge{};
  };

  [[nodiscard]] size_t count(State least) const {
    return static_cast<size_t>(
        std::ranges::count_if(members_, [&](const Member& m) { return m.state >= least; }));
  }

  Result<void> await_ranks() {
    while (count(State::kArrived) + 1 < expected_.size()) {
      SLUICE_RETURN_IF_ERROR(wait(deadline_));
      if (monotonic_now() >= deadline_) return tl::unexpected(missing_ranks());
      // One at a time, so that strangers are gone before the next one comes.
      auto next = accept_from(listener_);
      if (!next) return tl::unexpected(next.error());
      if (next->valid()) accept(std::move(*next));
      SLUICE_RETURN_IF_ERROR(serve_members());
    }
    refused_ += std::erase_if(members_, [](const Member& m) { return m.state < State::kArrived; });
    return {};
  }

  // Once, because strangers may come often.
  void log_refused() const {
    const auto log = [this](size_t count, const std::string& what) {
      if (count == 0) return;
      engine::SessionLog(identity_.session, identity_.rank)
          .warn("refused " + std::to_string(count) + (count == 1 ? " connection " : " connections ") + what);
    };
    log(refused_, "at the socket of this session that did not prove the job token");
    log(refused_others_, "of other users at the socket of this session, the first of process " +
                             std::to_string(other_user_.id) + " of user " + std::to_string(other_user_.user));
  }

  void accept(Socket socket) {
    const PeerProcess process = peer_of(socket);
    if (process.user != ::geteuid()) {
      if (refused_others_++ == 0) other_user_ = process;
      return;
    }
    if (members_.size() >= expected_.size() + kMaxStrangers) {
      // A rank proves its token at once: the one that has said least, or longest nothing, is none.
      const auto oldest = std::ranges::min_element(members_, {}, &Member::state);
      members_.erase(oldest);
      ++refused_;
    }
    members_.push_back(
        {.socket = std::move(socket), .process = process, .proof_deadline = monotonic_now() + kProofTimeout});
  }

  // Serves all members once. Only what a member that has proved its token says can end the session.
  Result<void> serve_members() {
    for (size_t i = 0; i < members_.size();) {
      auto served = serve(members_[i]);
      if (!served) return served.map([](bool) {});
      if (*served) {
        ++i;
      } else {
        members_.erase(members_.begin() + static_cast<ptrdiff_t>(i));
        ++refused_;
      }
    }
    return {};
  }

  // Returns false if the connection is to be closed.
  Result<bool> serve(Member& m) {
    auto packet = receive_packet(m.socket);
    if (m.state >= State::kArrived) {
      if (!packet || *packet) return lost(m);
      return true;
    }
    if (!packet) return false;
    if (!*packet) return monotonic_now() < m.proof_deadline;
    return m.state == State::kConnected ? on_hello(m, **packet) : on_proof(m, **packet);
  }

  Result<bool> on_hello(Member& m, const Packet& packet) {
    if (!decode(packet, m.hello).ok()) return false;
    if (m.hello.version != kLocalVersion) {
      return refuse(m, Errc::kNoCommonVersion,
                    "version " + std::to_string(kLocalVersion) + " of the shared memory on " +
                        rank_name(identity_.rank) + ", version " + std::to_string(m.hello.version) + " on " +
                        rank_name(m.hello.rank));
    }
    if ((m.hello.has_token != 0) != identity_.token.has_value()) {
      return refuse(
          m, Errc::kUnauthenticated,
          rank_name(identity_.token ? m.hello.rank : identity_.rank) + " has no pool key or job token");
    }
    auto nonce = engine::make_nonce();
    if (!nonce) return tl::unexpected(nonce.error());
    m.challenge.nonce = *nonce;
    m.challenge.proof = make_leader_proof(identity_, m.hello, m.challenge);
    m.state = State::kChallenged;
    return send_packet(m.socket, encode(m.challenge)).ok();
  }

  static bool refuse(const Member& m, Errc code, std::string text) {
    static_cast<void>(send_packet(m.socket, encode(LocalVerdict{.code = code, .text = std::move(text)})));
    return false;
  }

  Result<bool> on_proof(Member& m, const Packet& packet) {
    LocalProof proof;
    if (!decode(packet, proof).ok()) return false;
    if (!wire::equal_digests(proof.proof, make_rank_proof(identity_, m.hello, m.challenge)))
      return refuse(m, Errc::kUnauthenticated, "wrong job token");
    m.state = State::kArrived;
    if (m.hello.ranks != identity_.ranks) {
      return fail(Errc::kMismatch, rank_name(m.hello.rank) + " expects " + std::to_string(m.hello.ranks) +
                                       " ranks, " + rank_name(identity_.rank) + " expects " +
                                       std::to_string(identity_.ranks));
    }
    if (m.hello.host_name != plan_.host_name) {
      return fail(Errc::kMismatch, rank_name(m.hello.rank) + " has another SLUICE_HOST_ID than " +
                                       rank_name(identity_.rank) + "; ranks on several hosts need " +
                                       plan_.remedy);
    }
    const auto is_same = [&](const Member& other) {
      return &other != &m && other.state >= State::kArrived && other.hello.rank == m.hello.rank;
    };
    if (std::ranges::find(expected_, m.hello.rank) == expected_.end() || m.hello.rank == identity_.rank ||
        std::ranges::any_of(members_, is_same))
      return fail(Errc::kRankTaken, rank_name(m.hello.rank) + " is already part of the session");
    return true;
  }

  static Result<bool> lost(const Member& m) {
    return fail(Errc::kPeerLost, rank_name(m.hello.rank) + " (process " + std::to_string(m.process.id) +
                                     ") ended before the session began");
  }

  [[nodiscard]] Error missing_ranks() const {
    std::vector<Rank> missing;
    for (const Rank rank : expected_) {
      const auto is_rank = [&](const Member& m) {
        return m.state >= State::kArrived && m.hello.rank == rank;
      };
      if (rank != identity_.rank && std::ranges::none_of(members_, is_rank)) missing.push_back(rank);
    }
    std::string text =
        name_ranks(missing) + " of " + std::to_string(identity_.ranks) + " did not join on this host";
    if (!plan_.remedy.empty()) text += "; for ranks on several hosts set " + plan_.remedy;
    return {.code = Errc::kJoinTimeout, .text = std::move(text)};
  }

  Result<void> wait(Nanos deadline) {
    std::vector<pollfd> polls{{.fd = plan_.interrupt_fd, .events = POLLIN, .revents = 0},
                              {.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
    for (const Member& m : members_) polls.push_back({.fd = m.socket.fd(), .events = POLLIN, .revents = 0});
    // Connections without a proof end by time too.
    const Nanos left = std::clamp<Nanos>(deadline - monotonic_now(), 0, kSecond);
    ::poll(polls.data(), polls.size(), static_cast<int>(div_ceil(static_cast<uint64_t>(left), kMillisecond)));
    if (polls[0].revents != 0) return fail(Errc::kShutdown, "interrupted");
    return {};
  }

  Result<void> share_segment(const std::function<Result<void>(Segment)>& begin_watch) {
    listener_ = {};  // the name is free again
    SLUICE_ASSIGN_OR_RETURN(segment, Segment::create(plan_.geometry));
    for (const Member& m : members_) {
      const LocalSegment message{.ranks = plan_.geometry.ranks};
      if (!send_packet(m.socket, encode(message), segment.descriptor()).ok()) return lost(m).map([](bool) {});
    }
    segment.close_descriptor();
    if (auto begun = guarded(begin_watch, std::move(segment)); !begun)
      return add_context(rank_name(identity_.rank), begun.error());
    return {};
  }

  Result<void> await_ready() {
    const transport::tcp::Deadline deadline(monotonic_now() + kReadyTimeout, plan_.interrupt_fd);
    for (Member& m : members_) {
      auto packet = wait_for_packet(m.socket, deadline);
      LocalReady ready;
      if (!packet && packet.error().code == Errc::kShutdown) return tl::unexpected(packet.error());
      if (!packet || !decode(*packet, ready).ok()) return lost(m).map([](bool) {});
      if (ready.code != Errc::kOk)
        return add_context(rank_name(m.hello.rank), to_error(ready.code, std::move(ready.text)));
      m.state = State::kReady;
    }
    return {};
  }

  const engine::Identity& identity_;
  const MeetingPlan& plan_;
  const std::vector<Rank>& expected_;  // on this host
  Socket listener_;
  const Nanos deadline_;
  std::vector<Member> members_;
  size_t refused_ = 0;         // connections of this user without a proof
  size_t refused_others_ = 0;  // connections of other users
  PeerProcess other_user_{};   // of the first
};

// A rank that is not the leader.
class Follower {
 public:
  Follower(const engine::Identity& identity, const MeetingPlan& plan, Socket socket, Nanos deadline)
      : identity_(identity), plan_(plan), socket_(std::move(socket)), deadline_(deadline) {}

  Result<void> run(const std::function<Result<void>(Segment)>& begin_watch) {
    if (auto proved = prove(); !proved) return tl::unexpected(unproved(plan_, proved.error()));
    LocalSegment message;
    SLUICE_ASSIGN_OR_RETURN(packet, receive(message));
    LocalReady ready;
    auto begun = begin(packet, begin_watch);
    if (!begun) ready.code = begun.error().code, ready.text = begun.error().text;
    SLUICE_RETURN_IF_ERROR(send(ready));
    LocalVerdict verdict;
    deadline_ = std::max(deadline_, monotonic_now()) + kReadyTimeout;  // of other ranks
    SLUICE_RETURN_IF_ERROR(receive(verdict));
    if (verdict.code != Errc::kOk) return tl::unexpected(to_error(verdict.code, std::move(verdict.text)));
    return {};
  }

 private:
  // Leader and rank prove the token to each other.
  Result<void> prove() {
    const PeerProcess leader = peer_of(socket_);
    if (leader.user != ::geteuid())
      return fail(Errc::kUnauthenticated, "process " + std::to_string(leader.id) + " of user " +
                                              std::to_string(leader.user) +
                                              " holds the socket of this session");
    auto nonce = engine::make_nonce();
    if (!nonce) return tl::unexpected(nonce.error());
    const LocalHello hello{.rank = identity_.rank,
                           .ranks = identity_.ranks,
                           .has_token = identity_.token ? uint8_t{1} : uint8_t{0},
                           .nonce = *nonce,
                           .host_name = plan_.host_name};
    LocalChallenge challenge;
    SLUICE_RETURN_IF_ERROR(send(hello));
    SLUICE_RETURN_IF_ERROR(receive(challenge));
    if (!wire::equal_digests(challenge.proof, make_leader_proof(identity_, hello, challenge)))
      return fail(Errc::kUnauthenticated,
                  "process " + std::to_string(leader.id) + " does not hold the job token");
    return send(LocalProof{make_rank_proof(identity_, hello, challenge)});
  }

  Result<void> begin(Packet& packet, const std::function<Result<void>(Segment)>& begin_watch) {
    if (!packet.descriptor.valid()) return fail(Errc::kBadField, "the segment came without a descriptor");
    SLUICE_ASSIGN_OR_RETURN(segment, Segment::map(packet.descriptor.release(), plan_.geometry));
    segment.close_descriptor();
    return guarded(begin_watch, std::move(segment));
  }
  template <typename M>
  Result<void> send(const M& message) {
    // The verdict with the reason may have been received.
    static_cast<void>(send_packet(socket_, encode(message)));
    return {};
  }
  template <typename M>
  Result<Packet> receive(M& out) {
    auto packet = wait_for_packet(socket_, {deadline_ + kVerdictGrace, plan_.interrupt_fd});
    if (!packet && packet.error().code == Errc::kShutdown) return tl::unexpected(packet.error());
    if (!packet) return add_context("leader of the ranks on this host", packet.error());
    if (decode(*packet, out).ok()) return packet;
    LocalVerdict verdict;
    if (decode(*packet, verdict).ok() && verdict.code != Errc::kOk)
      return tl::unexpected(to_error(verdict.code, std::move(verdict.text)));
    return fail(Errc::kUnexpectedMessage, "leader of the ranks on this host: malformed packet");
  }

  const engine::Identity& identity_;
  const MeetingPlan& plan_;
  Socket socket_;
  Nanos deadline_;
};

}  // namespace

Result<void> meet(const engine::Identity& identity, const MeetingPlan& plan,
                  const std::function<Result<void>(Segment)>& begin_watch) {
  const Nanos deadline = monotonic_now() + plan.timeout;
  const Topology& t = plan.topology;
  const std::string name =
      meeting_socket_name(identity.session, t.ranks_of[t.host_of[identity.rank]].front());
  for (;;) {
    auto listener = listen_at(name, static_cast<int>(kMaxRanks));
    if (listener) return Leader(identity, plan, std::move(*listener), deadline).run(begin_watch);
    if (listener.error().code != Errc::kAddressInUse) return tl::unexpected(listener.error());
    auto socket = connect_at(name);
    if (socket) return Follower(identity, plan, std::move(*socket), deadline).run(begin_watch);
    if (socket.error().code != Errc::kReset || monotonic_now() >= deadline)
      return tl::unexpected(unproved(plan, socket.error()));
    std::this_thread::sleep_for(std::chrono::nanoseconds(kRetry));
  }
}

}  // namespace sluice::local
