// The start of a session: what the ranks must agree on, the lane connections, the vote and the commit
// (protocol.md section 5).
#include <algorithm>

#include "reducer/control/control_loop.h"
#include "reducer/control/rank_list.h"
#include "reducer/control/session/session.h"
#include "reducer/control/session/session_status.h"
#include "wire/handshake.h"
#include "wire/message_limits.h"
#include "wire/view.h"

namespace sluice::reducer {
namespace {

constexpr Nanos kGrace = 5 * kSecond;  // protocol.md section 5

bool requests_fault_tolerance(const wire::Hello& hello) {
  return (hello.features & wire::kFaultToleranceFeatures) == wire::kFaultToleranceFeatures;
}

// A feature that WELCOME omits is not in force.
wire::SumOrder requested_order(const wire::Hello& hello, const ReducerOptions& options) {
  return (hello.features & ~options.withheld_features & wire::kFeatureTreeOrder) != 0
             ? wire::SumOrder::kTree
             : wire::SumOrder::kGroups;
}

SessionPlan plan_of(const wire::Hello& hello, const wire::Join& join, uint32_t handle,
                    const ReducerOptions& options, uint32_t weight) {
  return {.handle = handle,
          .ranks = hello.ranks,
          .slots = wire::slots_per_lane(join.window_bytes, join.slot_bytes, join.lanes),
          .slot_bytes = join.slot_bytes,
          .view_version = 0,
          .view_hash = static_cast<uint32_t>(join.view_hash),
          .payload_crc = options.payload_crc,
          .fault_tolerant = requests_fault_tolerance(hello),
          .order = requested_order(hello, options),
          .health = options.health,
          .weight = weight};
}

}  // namespace

Session::Session(ControlLoop& loop, const wire::Hello& hello, const wire::Join& join, uint32_t handle,
                 uint32_t first_lane)
    : loop_(loop),
      id_(hello.session),
      blackbox_(blackbox::EventSource::of_reducer(loop.id(), blackbox::session_key(hello.session))),
      job_(wire::job_name(hello)),
      tenant_(loop.sessions().tenant_of(hello)),
      agreed_(join),
      first_rank_(hello.rank),
      joined_running_session_(requests_fault_tolerance(hello) && hello.incarnation != 0),
      plan_(plan_of(hello, join, handle, loop.options(), loop.sessions().tenants().weight_of(tenant_))),
      first_lane_(first_lane),
      reserved_(bytes_for(hello, join)),
      first_join_at_(loop.now()),
      join_deadline_(join_deadline_for(join)),
      incarnation_(joined_running_session_ ? hello.incarnation : 0),
      ranks_(hello.ranks),
      view_(join.reducers[join.reducer_index], hello.ranks, join.reducers, joined_running_session_) {
  blackbox_.record(blackbox::EventKind::kOpened,
                   {.peer = join.reducers[join.reducer_index], .a = plan_.ranks, .b = reserved_});
}

Nanos Session::join_deadline_for(const wire::Join& join) const noexcept {
  const Nanos requested = Nanos{join.join_timeout_ms} * kMillisecond;
  return first_join_at_ + std::min(requested, loop_.options().join_timeout) +
         (decides_join() ? 0 : 2 * kGrace);
}

uint64_t Session::bytes_for(const wire::Hello& hello, const wire::Join& join) noexcept {
  return join.lanes * SlotArena::bytes_for(plan_of(hello, join, 0, {}, 1));
}

Status Session::map_slots() {
  using transport::rdma::Memory;
  for (uint32_t i = 0; i < agreed_.lanes; ++i) {
    auto arena = SlotArena::map(plan_);
    if (!arena) return Errc::kMemoryLimit;
    if (!loop_.rdma().rails.names.empty()) arena->prefer_large_pages();
    lanes_.push_back(std::make_unique<LaneSession>(plan_, std::move(*arena)));
    auto memory = Memory::make();
    memory_.push_back({memory, {memory, lanes_.back()->result_memory(), Memory::Use::kSend}});
  }
  return Errc::kOk;
}

void Session::join_fair_pool(FairAccount& account) {
  share_.account = &account;
  share_.chunk_bytes = uint64_t{plan_.slot_bytes} * plan_.ranks;
  share_.inflight_bytes = share_.chunk_bytes * plan_.slots * lanes_.size();
  for (const auto& lane : lanes_) share_.meters.push_back(&lane->meter());
  loop_.fair().add(share_);
}

Session::~Session() {
  if (share_.account != nullptr) loop_.fair().remove(share_);
}

uint64_t Session::served_bytes() const noexcept {
  uint64_t served = 0;
  for (const Meter* meter : share_.meters) served += meter->served();
  return served;
}

// ---- agreement ----

std::optional<Error> Session::check_job(const wire::Hello& hello) const {
  const std::string& job = wire::job_name(hello);
  if (job == job_) return std::nullopt;
  return Error{Errc::kUnauthenticated, log_name() + " does not belong to job \"" + job + "\""};
}

std::optional<Error> Session::check_agreement(const wire::Hello& hello, const wire::Join& join,
                                              const std::string& peer) const {
  const std::string rank = "rank " + std::to_string(hello.rank) + " (" + peer + ")";
  const auto mismatch = [](const std::string& text) {
    return Error{Errc::kMismatch, "ranks disagree on the " + text};
  };
  const auto differ = [&](const char* what, uint64_t theirs, uint64_t agreed) {
    return mismatch(std::string(what) + ": " + rank + " has " + std::to_string(theirs) + ", " +
                    name(first_rank_) + " has " + std::to_string(agreed));
  };
  if (hello.ranks != plan_.ranks) return differ("number of ranks", hello.ranks, plan_.ranks);
  if (auto error = check_kind(hello, rank)) return error;
  if (const std::string tenant = loop_.sessions().tenant_of(hello); tenant != tenant_) {
    return mismatch("tenant: " + rank + " has \"" + tenant + "\", " + name(first_rank_) + " has \"" +
                    tenant_ + "\"");
  }
  // While a running session adds this reducer, its view may change again, so ranks may join in different
  // views. They report their view on their lanes and with VIEW_KNOWN.
  if (!joined_running_session_) {
    if (join.reducers.size() != agreed_.reducers.size())
      return differ("number of reducers", join.reducers.size(), agreed_.reducers.size());
    for (size_t i = 0; i < join.reducers.size(); ++i) {
      if (join.reducers[i] != agreed_.reducers[i]) {
        return mismatch("list of reducers: entry " + std::to_string(i) + " of " + rank + " is the reducer " +
                        id_text(join.reducers[i]) + ", of " + name(first_rank_) + " the reducer " +
                        id_text(agreed_.reducers[i]));
      }
    }
    if (join.reducer_index != agreed_.reducer_index)
      return differ("index of this reducer", join.reducer_index, agreed_.reducer_index);
  }
  if (join.slot_bytes != agreed_.slot_bytes) return differ("slot bytes", join.slot_bytes, agreed_.slot_bytes);
  if (join.window_bytes != agreed_.window_bytes)
    return differ("window bytes", join.window_bytes, agreed_.window_bytes);
  if (join.lanes != agreed_.lanes) return differ("lanes per reducer", join.lanes, agreed_.lanes);
  if (!joined_running_session_ && join.view_hash != agreed_.view_hash) {
    return mismatch("weights or lanes of the reducers: the view hash of " + rank + " differs from that of " +
                    name(first_rank_));
  }
  return std::nullopt;
}

// Fault tolerance, the order of sums, and whether the session already runs.
std::optional<Error> Session::check_kind(const wire::Hello& hello, const std::string& rank) const {
  const std::string first = name(first_rank_);
  if (requests_fault_tolerance(hello) != plan_.fault_tolerant) {
    const std::string& with = plan_.fault_tolerant ? first : rank;
    const std::string& without = plan_.fault_tolerant ? rank : first;
    return Error{Errc::kMismatch,
                 "ranks disagree on fault tolerance: " + with + " requests it, " + without + " does not"};
  }
  if (requested_order(hello, loop_.options()) != plan_.order) {
    const bool first_is_earlier = plan_.order == wire::SumOrder::kGroups;
    return Error{Errc::kMismatch,
                 "ranks disagree on the order of sums: " + (first_is_earlier ? first : rank) +
                     " requests that of earlier releases, " + (first_is_earlier ? rank : first) +
                     " the tree; use one release on all ranks"};
  }
  if (plan_.fault_tolerant && (hello.incarnation != 0) != joined_running_session_) {
    const std::string& joins_running = joined_running_session_ ? first : rank;
    const std::string& joins_new = joined_running_session_ ? rank : first;
    return Error{Errc::kMismatch, joins_running + " joins a running session, " + joins_new + " a new one"};
  }
  if (joined_running_session_ && hello.incarnation != incarnation_)
    return Error{Errc::kMismatch, rank + " and " + first + " join different incarnations of the session"};
  return std::nullopt;
}

// ---- ranks and their lanes ----

void Session::add(const std::shared_ptr<Connection>& control, const wire::Hello& hello,
                  const wire::Join& join) {
  RankState& r = ranks_[hello.rank];
  if (can_recover() && !r.control) {
    return control->refuse(
        {Errc::kRankTaken, name(hello.rank) + " is already part of the session: it must resume its "
                                              "connection instead of joining"},
        hello.rank);
  }
  if (r.control) {
    return control->refuse(
        {Errc::kRankTaken, "rank " + std::to_string(hello.rank) + " has already joined from " + r.peer},
        hello.rank);
  }
  loop_.sessions().wake(*this);
  r.control = control;
  r.peer = control->peer();
  r.view_hash = join.view_hash;
  r.last_heard = loop_.now();
  blackbox_.record(blackbox::EventKind::kRankJoined, {.peer = hello.rank}, r.peer);
  if (!is_decided()) join_deadline_ = std::min(join_deadline_, join_deadline_for(join));
  control->bind(*this, hello.rank, plan_.handle);
  const ReducerOptions& o = loop_.options();
  control->send(wire::Joined{.handle = plan_.handle,
                             .heartbeat_ms = static_cast<uint32_t>(o.heartbeat / kMillisecond),
                             .peer_timeout_ms = static_cast<uint32_t>(o.peer_timeout / kMillisecond)});
}

Result<uint32_t> Session::admit_lane(const wire::Hello& hello, const wire::Attach& attach) {
  if (auto error = check_job(hello)) return tl::unexpected(std::move(*error));
  const uint32_t rank = hello.rank;
  const uint32_t lane = hello.lane;
  const bool resumes = can_recover() && requests_fault_tolerance(hello) && hello.incarnation == incarnation_;
  if (attach.handle != plan_.handle || (state_ != State::kJoining && !resumes))
    return ::sluice::fail(Errc::kUnknownSession, "the session is no longer joining");
  if (rank >= ranks_.size() || (!ranks_[rank].control && !resumes))
    return ::sluice::fail(Errc::kUnexpectedMessage, "rank " + std::to_string(rank) + " has not joined");
  if (lane >= lanes_.size()) {
    return ::sluice::fail(Errc::kTooMany, "lane " + std::to_string(lane) +
                                              " does not exist: the session has " +
                                              std::to_string(lanes_.size()) + " lanes");
  }
  if (attach.view_hash != ranks_[rank].view_hash)
    return ::sluice::fail(Errc::kBadView, "the view hash differs from that of JOIN");
  if (auto error = check_excluded(rank)) return tl::unexpected(std::move(*error));
  const uint64_t bit = uint64_t{1} << lane;
  if ((ranks_[rank].lanes_admitted & bit) != 0 && !resumes) {
    // The lane resumes before this reducer has received COMMIT, and will retry.
    if (plan_.fault_tolerant && hello.incarnation != 0)
      return ::sluice::fail(Errc::kUnknownSession, "the session has not started on this reducer yet");
    return ::sluice::fail(Errc::kRankTaken,
                          "lane " + std::to_string(lane) + " of " + name(rank) + " is already attached");
  }
  ranks_[rank].lanes_admitted |= bit;
  return plan_.slots;
}

void Session::on_lane_attached(uint32_t rank, uint32_t lane, transport::tcp::Socket socket) {
  if (state_ == State::kEnding) return;  // kEnd is the last command to a lane
  if (check_excluded(rank)) return;      // excluded since admit_lane()
  loop_.mailbox().send(first_lane_ + lane, {.kind = LaneCommand::Kind::kAttach,
                                            .session = lanes_[lane].get(),
                                            .rank = rank,
                                            .socket = socket.release_raw()});
}

// ---- vote and commit ----

void Session::on_vote(Connection& from, uint32_t rank, const wire::Vote& vote) {
  if (!decides_join() || state_ != State::kJoining || has_verdict_)
    return from.close(Errc::kUnexpectedMessage);
  if (vote.yes == 0) return refuse_join(vote.reason.code, rank, name(rank) + ": " + vote.reason.text);
  ranks_[rank].has_voted = true;
  if (std::ranges::all_of(ranks_, [](const RankState& r) { return r.has_voted; })) commit_join();
}

std::optional<wire::Verdict> Session::verdict() const {
  if (!decides_join() || !has_verdict_ || state_ == State::kEnding) return std::nullopt;
  wire::Verdict verdict;
  verdict.commit = 1;
  verdict.incarnation = incarnation_;
  return verdict;
}

void Session::commit_join() {
  has_verdict_ = true;
  join_deadline_ += 2 * kGrace;  // ranks may act on the verdict from now on: only their COMMITs are missing
  do incarnation_ = ControlLoop::random64();
  while (incarnation_ == 0);
  loop_.sessions().outcomes().store_verdict({job_, id_}, *verdict(), loop_.now());
  send_all(*verdict());
}

void Session::refuse_join(Errc code, uint32_t rank, const std::string& text) {
  has_verdict_ = true;
  log_warning(" refused: " + std::string(to_string(code)) + ": " + text);
  record_failure(code, rank, text);
  wire::Verdict verdict;
  verdict.reason = {.code = code, .rank = rank, .text = text};
  JoinOutcomes& outcomes = loop_.sessions().outcomes();
  outcomes.store_verdict({job_, id_}, verdict, loop_.now());
  outcomes.store_refusal({job_, id_}, {code, text}, rank, joined_ranks(), loop_.now());
  send_all(verdict);
  begin_ending({});
}

void Session::on_commit(Connection& from, uint32_t rank, const wire::Commit& commit) {
  const uint64_t incarnation = commit.incarnation;
  if (state_ == State::kEnding || incarnation == 0) return from.close(Errc::kUnexpectedMessage);
  if (ranks_[rank].has_committed) {
    // A resumed connection repeats messages that its predecessor may have lost.
    if (!plan_.fault_tolerant || incarnation != incarnation_) from.close(Errc::kUnexpectedMessage);
    return;
  }
  if (decides_join() && !has_verdict_) return from.close(Errc::kUnexpectedMessage);
  if (incarnation_ == 0) incarnation_ = incarnation;
  if (incarnation != incarnation_) return from.close(Errc::kBadField);
  ranks_[rank].has_committed = true;
  if (state_ == State::kActive) return;
  state_ = State::kActive;
  // The peer timeout starts now for ranks whose COMMIT has not arrived yet.
  for (RankState& r : ranks_) r.last_heard = loop_.now();
  next_heartbeat_at_ = loop_.now() + loop_.options().heartbeat;
  blackbox_.record(blackbox::EventKind::kCommitted, {.a = plan_.ranks, .b = lanes_.size()});
  log_info(" started: " + std::to_string(plan_.ranks) + " ranks, " + std::to_string(lanes_.size()) +
           " lanes, window " + std::to_string(plan_.slots) + " x " + std::to_string(plan_.slot_bytes) +
           " bytes per lane");
  write_audit_line("started");
  if (plan_.fault_tolerant) start_recovery();
}

void Session::on_join_timeout() {
  const auto ranks_where = [this](auto is_missing) {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (is_missing(ranks_[rank])) ranks.push_back(rank);
    }
    return ranks;
  };
  if (const auto absent = ranks_where([](const RankState& r) { return r.control == nullptr; });
      !absent.empty())
    return fail(Errc::kJoinTimeout, absent.front(), rank_list(absent) + " did not join in time");
  if (!decides_join() || has_verdict_)
    return fail(Errc::kJoinTimeout, wire::kNoRank, "the session was not committed in time");
  const auto silent = ranks_where([](const RankState& r) { return !r.has_voted; });
  fail(Errc::kJoinTimeout, silent.front(), rank_list(silent) + " joined but did not vote in time");
}

std::vector<uint32_t> Session::joined_ranks() const {
  std::vector<uint32_t> joined;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].control) joined.push_back(rank);
  }
  return joined;
}

}  // namespace sluice::reducer
