// A session's beginning: what the ranks must agree on, the lane connections, the vote.
#include <algorithm>

#include "core/log.h"
#include "reducer/control/conductor.h"
#include "reducer/control/session.h"
#include "wire/handshake.h"
#include "wire/view.h"

namespace sluice::reducer {
namespace {

constexpr Nanos kGrace = 5 * kSecond;  // PROTOCOL.md section 5

bool survives_losses(const wire::Hello& hello) {
  return (hello.features & wire::kFeaturesSurvive) == wire::kFeaturesSurvive;
}

SessionPlan plan_of(const wire::Hello& hello, const wire::Join& join, uint32_t handle, bool payload_crc,
                    uint32_t weight) {
  return {.handle = handle,
          .ranks = hello.ranks,
          .slots = wire::slots_per_lane(join.window_bytes, join.slot_bytes, join.lanes),
          .slot_bytes = join.slot_bytes,
          .view_version = 0,
          .view_hash = static_cast<uint32_t>(join.view_hash),
          .payload_crc = payload_crc,
          .survives = survives_losses(hello),
          .weight = weight};
}

std::string list_ranks(const std::vector<uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min<size_t>(ranks.size(), 16); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > 16) text += " and " + std::to_string(ranks.size() - 16) + " more";
  return text;
}

}  // namespace

Session::Session(Conductor& conductor, const wire::Hello& hello, const wire::Join& join, uint32_t handle,
                 uint32_t first_lane)
    : conductor_(conductor),
      id_(hello.session),
      job_(wire::job_name(hello)),
      tenant_(conductor.tenant_of(hello)),
      agreed_(join),
      first_rank_(hello.rank),
      came_later_(survives_losses(hello) && hello.incarnation != 0),
      plan_(plan_of(hello, join, handle, conductor.options().payload_crc, conductor.weight_of(tenant_))),
      first_lane_(first_lane),
      reserved_(bytes_for(hello, join)),
      first_join_at_(conductor.now()),
      join_deadline_(join_deadline_for(join)),
      incarnation_(came_later_ ? hello.incarnation : 0),
      ranks_(hello.ranks),
      view_(join.reducers[join.reducer_index], hello.ranks, join.reducers, came_later_) {}

Nanos Session::join_deadline_for(const wire::Join& join) const noexcept {
  const Nanos asked = Nanos{join.join_timeout_ms} * kMillisecond;
  return first_join_at_ + std::min(asked, conductor_.options().join_timeout) +
         (counts_votes() ? 0 : 2 * kGrace);
}

uint64_t Session::bytes_for(const wire::Hello& hello, const wire::Join& join) noexcept {
  return join.lanes * SlotArena::bytes_for(plan_of(hello, join, 0, true, 1));
}

Status Session::map_slots() {
  using transport::rdma::Memory;
  for (uint32_t i = 0; i < agreed_.lanes; ++i) {
    auto arena = SlotArena::map(plan_);
    if (!arena) return Errc::kMemoryLimit;
    if (!conductor_.rdma().rails.names.empty()) arena->prefer_large_pages();
    lanes_.push_back(std::make_unique<LaneSession>(plan_, std::move(*arena)));
    auto memory = Memory::make();
    memory_.push_back({memory, {memory, lanes_.back()->result_memory(), Memory::Use::kSend}});
  }
  return Errc::kOk;
}

void Session::take_share(FairAccount& account) {
  share_.account = &account;
  share_.chunk_bytes = uint64_t{plan_.slot_bytes} * plan_.ranks;
  share_.under_way = share_.chunk_bytes * plan_.slots * lanes_.size();
  for (const auto& lane : lanes_) share_.meters.push_back(&lane->meter());
  conductor_.fair().add(share_);
}

Session::~Session() {
  if (share_.account != nullptr) conductor_.fair().remove(share_);
}

uint64_t Session::served_bytes() const noexcept {
  uint64_t served = 0;
  for (const Meter* meter : share_.meters) served += meter->served();
  return served;
}

std::optional<Error> Session::foreign_job(const wire::Hello& hello) const {
  const std::string& job = wire::job_name(hello);
  if (job == job_) return std::nullopt;
  return Error{Errc::kUnauthenticated, "session " + to_string(id_) + " is not one of job \"" + job + "\""};
}

std::optional<Error> Session::difference(const wire::Hello& hello, const wire::Join& join,
                                         const std::string& peer) const {
  const std::string rank = "rank " + std::to_string(hello.rank) + " (" + peer + ")";
  const auto differ = [&](const char* what, uint64_t theirs, uint64_t agreed) {
    return Error{Errc::kMismatch, "ranks disagree on " + std::string(what) + ": " + rank + " has " +
                                      std::to_string(theirs) + ", " + name(first_rank_) + " has " +
                                      std::to_string(agreed)};
  };
  if (hello.ranks != plan_.ranks) return differ("the number of ranks", hello.ranks, plan_.ranks);
  if (auto error = different_kind(hello, rank)) return error;
  if (const std::string tenant = conductor_.tenant_of(hello); tenant != tenant_) {
    return Error{Errc::kMismatch, "ranks disagree on the tenant: " + rank + " has \"" + tenant + "\", " +
                                      name(first_rank_) + " has \"" + tenant_ + "\""};
  }
  // While a session that runs takes this reducer up others may come and go, so ranks may join in different
  // views; they tell of which on their lanes and by VIEW_KNOWN.
  if (!came_later_) {
    if (join.reducers.size() != agreed_.reducers.size()) {
      return differ("the number of reducers", join.reducers.size(), agreed_.reducers.size());
    }
    for (size_t i = 0; i < join.reducers.size(); ++i) {
      if (join.reducers[i] != agreed_.reducers[i]) {
        return Error{Errc::kMismatch, "ranks disagree on the list of reducers: number " + std::to_string(i) +
                                          " of " + rank + " is another one than number " + std::to_string(i) +
                                          " of " + name(first_rank_)};
      }
    }
    if (join.reducer_index != agreed_.reducer_index) {
      return differ("this reducer's place in the list", join.reducer_index, agreed_.reducer_index);
    }
  }
  if (join.slot_bytes != agreed_.slot_bytes) return differ("slot bytes", join.slot_bytes, agreed_.slot_bytes);
  if (join.window_bytes != agreed_.window_bytes)
    return differ("window bytes", join.window_bytes, agreed_.window_bytes);
  if (join.lanes != agreed_.lanes) return differ("lanes per reducer", join.lanes, agreed_.lanes);
  if (!came_later_ && join.view_hash != agreed_.view_hash) {
    return Error{Errc::kMismatch, "ranks disagree on weights or lanes of the reducers: the view hash of " +
                                      rank + " is not that of " + name(first_rank_)};
  }
  return std::nullopt;
}

// Whether losses are survived, and whether the session runs already.
std::optional<Error> Session::different_kind(const wire::Hello& hello, const std::string& rank) const {
  const std::string first = name(first_rank_);
  if (survives_losses(hello) != plan_.survives) {
    const std::string& survivor = plan_.survives ? first : rank;
    const std::string& other = plan_.survives ? rank : first;
    return Error{Errc::kMismatch, survivor + " survives losses, " + other + " does not"};
  }
  if (plan_.survives && (hello.incarnation != 0) != came_later_) {
    const std::string& late = came_later_ ? first : rank;
    const std::string& early = came_later_ ? rank : first;
    return Error{Errc::kMismatch, late + " joins a session that runs, " + early + " a new one"};
  }
  if (came_later_ && hello.incarnation != incarnation_) {
    return Error{Errc::kMismatch, rank + " and " + first + " join different incarnations of the session"};
  }
  return std::nullopt;
}

void Session::add(const std::shared_ptr<Connection>& control, const wire::Hello& hello,
                  const wire::Join& join) {
  RankState& r = ranks_[hello.rank];
  if (outlives_losses() && !r.control) {
    return control->refuse(
        {Errc::kRankTaken, name(hello.rank) + " is part of the session already and resumes "
                                              "what it lost"},
        hello.rank);
  }
  if (r.control) {
    return control->refuse(
        {Errc::kRankTaken, "rank " + std::to_string(hello.rank) + " is already present, from " + r.peer},
        hello.rank);
  }
  r.control = control;
  r.peer = control->peer();
  r.view_hash = join.view_hash;
  r.last_heard = conductor_.now();
  if (!decided()) join_deadline_ = std::min(join_deadline_, join_deadline_for(join));
  control->bind(*this, hello.rank, plan_.handle);
  const ReducerOptions& o = conductor_.options();
  control->send(wire::Joined{.handle = plan_.handle,
                             .heartbeat_ms = static_cast<uint32_t>(o.heartbeat / kMillisecond),
                             .peer_timeout_ms = static_cast<uint32_t>(o.peer_timeout / kMillisecond)});
}

Result<uint32_t> Session::admit_lane(const wire::Hello& hello, const wire::Attach& attach) {
  if (auto error = foreign_job(hello)) return tl::unexpected(std::move(*error));
  const uint32_t rank = hello.rank;
  const uint32_t lane = hello.lane;
  const bool again = outlives_losses() && survives_losses(hello) && hello.incarnation == incarnation_;
  if (attach.handle != plan_.handle || (state_ != State::kJoining && !again)) {
    return ::sluice::fail(Errc::kUnknownSession, "the session is no longer joining");
  }
  if (rank >= ranks_.size() || (!ranks_[rank].control && !again)) {
    return ::sluice::fail(Errc::kUnexpectedMessage, "rank " + std::to_string(rank) + " has not joined");
  }
  if (lane >= lanes_.size())
    return ::sluice::fail(Errc::kTooMany, "lane " + std::to_string(lane) + " was not agreed on");
  if (attach.view_hash != ranks_[rank].view_hash)
    return ::sluice::fail(Errc::kBadView, "view hash differs from that of the join");
  if (auto error = bars_unfit(rank)) return tl::unexpected(std::move(*error));
  const uint64_t bit = uint64_t{1} << lane;
  if ((ranks_[rank].lanes_admitted & bit) != 0 && !again) {
    // One that comes again before this reducer has heard of the commit: soon it will have.
    if (plan_.survives && hello.incarnation != 0)
      return ::sluice::fail(Errc::kUnknownSession, "the session does not run here yet");
    return ::sluice::fail(Errc::kRankTaken,
                          "lane " + std::to_string(lane) + " of " + name(rank) + " is already there");
  }
  ranks_[rank].lanes_admitted |= bit;
  return plan_.slots;
}

void Session::lane_attached(uint32_t rank, uint32_t lane, transport::tcp::Socket socket) {
  if (state_ == State::kEnding) return;  // the lane was given kEnd, its last command
  if (bars_unfit(rank)) return;          // found meanwhile
  conductor_.send_command(first_lane_ + lane, {.kind = LaneCommand::Kind::kAttach,
                                               .session = lanes_[lane].get(),
                                               .rank = rank,
                                               .socket = socket.release_raw()});
}

void Session::on_vote(Connection& from, uint32_t rank, const wire::Vote& vote) {
  if (!counts_votes() || state_ != State::kJoining || verdict_given_)
    return from.close(Errc::kUnexpectedMessage);
  if (vote.yes == 0) return give_verdict_no(vote.reason.code, rank, name(rank) + ": " + vote.reason.text);
  ranks_[rank].voted = true;
  if (std::ranges::all_of(ranks_, [](const RankState& r) { return r.voted; })) give_verdict_yes();
}

void Session::give_verdict_yes() {
  verdict_given_ = true;
  join_deadline_ += 2 * kGrace;  // ranks may act on it from now on: only the time for COMMIT still runs
  do incarnation_ = Conductor::random64();
  while (incarnation_ == 0);
  wire::Verdict verdict;
  verdict.commit = 1;
  verdict.incarnation = incarnation_;
  conductor_.keep_verdict(*this, verdict);
  for (const RankState& r : ranks_) {
    if (r.control) r.control->send(verdict);
  }
}

void Session::give_verdict_no(Errc code, uint32_t rank, const std::string& text) {
  verdict_given_ = true;
  log::warn("session " + to_string(id_) + " refused: " + std::string(to_string(code)) + ": " + text);
  wire::Verdict verdict;
  verdict.reason = {.code = code, .rank = rank, .text = text};
  conductor_.keep_verdict(*this, verdict);
  conductor_.keep_refusal(*this, {code, text}, rank);
  for (const RankState& r : ranks_) {
    if (r.control) r.control->send(verdict);
  }
  begin_ending({});
}

void Session::on_commit(Connection& from, uint32_t rank, uint64_t incarnation) {
  if (state_ == State::kEnding || incarnation == 0) return from.close(Errc::kUnexpectedMessage);
  if (ranks_[rank].committed) {
    // A connection that was resumed says again what may have been lost with the one before.
    if (!plan_.survives || incarnation != incarnation_) from.close(Errc::kUnexpectedMessage);
    return;
  }
  if (counts_votes() && !verdict_given_) return from.close(Errc::kUnexpectedMessage);
  if (incarnation_ == 0) incarnation_ = incarnation;
  if (incarnation != incarnation_) return from.close(Errc::kBadField);
  ranks_[rank].committed = true;
  if (state_ == State::kActive) return;
  state_ = State::kActive;
  // Ranks whose COMMIT is still on its way are given the time of a silent peer from here.
  for (RankState& r : ranks_) r.last_heard = conductor_.now();
  next_heartbeat_ = conductor_.now() + conductor_.options().heartbeat;
  log::info("session " + to_string(id_) + " begun: " + std::to_string(plan_.ranks) + " ranks, " +
            std::to_string(lanes_.size()) + " lanes, window " + std::to_string(plan_.slots) + " x " +
            std::to_string(plan_.slot_bytes) + " bytes");
  if (plan_.survives) begin_surviving();
}

void Session::join_deadline_passed() {
  const auto without = [this](auto has) {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!has(ranks_[rank])) ranks.push_back(rank);
    }
    return ranks;
  };
  if (const auto missing = without([](const RankState& r) { return r.control != nullptr; }); !missing.empty())
    return fail(Errc::kJoinTimeout, missing.front(), list_ranks(missing) + " did not join in time");
  if (!counts_votes() || verdict_given_)
    return fail(Errc::kJoinTimeout, wire::kNoRank, "the session was not committed in time");
  const auto silent = without([](const RankState& r) { return r.voted; });
  fail(Errc::kJoinTimeout, silent.front(), list_ranks(silent) + " joined but did not vote in time");
}

std::vector<uint32_t> Session::joined_ranks() const {
  std::vector<uint32_t> joined;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].control) joined.push_back(rank);
  }
  return joined;
}

}  // namespace sluice::reducer
