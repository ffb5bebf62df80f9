// The rails of a LocalSession: engine sessions whose ranks are hosts. How they join, follow changes of the
// pool, and end.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/peer_error.h"
#include "gpu_client/engine/session/session.h"
#include "gpu_client/local/host_agreement.h"
#include "gpu_client/local/local_session.h"
#include "wire/sha256.h"

namespace sluice::local {
namespace {

// Who leaves a rail tells all ranks why. The rail's reducers may see the loss of its connections, or of its
// co-located reducer, sooner.
bool may_be_a_consequence(Errc code) {
  return code == Errc::kPeerLost || code == Errc::kReducerLost || code == Errc::kUnknownSession;
}

}  // namespace

// In the order of the rails, on all ranks: so no rail waits for one that waits for it.
Result<void> LocalSession::join_rails(HostAgreement& agreement) {
  auto early_end = EarlyEnd::create(agreement.end_fd());
  const auto show = [this](EarlyEnd* to) {
    const std::lock_guard lock(mutex_);
    early_end_ = to;
  };
  if (early_end) show(&*early_end);
  Result<void> joined = early_end.map([](const EarlyEnd&) {});
  for (uint32_t rail = 0; joined && rail < topology_.rails; ++rail) {
    if (topology_.server_of(rail, host_) == topology_.local_of[rank()])
      joined = join_rail(rail, agreement, *early_end);
  }
  show(nullptr);
  // The ranks of this host must not wait for a rail that does not come.
  if (!joined) end_by_own_failure(joined.error().code, joined.error().text);
  if (joined) begin_rail_limit();
  // Whoever ends the session looks at this flag afterwards, and this thread at the end: one of them aborts.
  if (joined) are_rails_complete_.store(true, std::memory_order_seq_cst);
  if (code() == Errc::kOk) return {};
  abort_rails(ended_by(), code(), reason_for_others());
  return fail(code(), reason());
}

Result<void> LocalSession::join_rail(uint32_t rail, HostAgreement& agreement, const EarlyEnd& early_end) {
  if (code() != Errc::kOk) return fail(code(), reason());
  engine::SessionOptions options = rail_options(rail);
  if (options.join.reducers.empty()) options.join.colocation.rendezvous = agreement.rail_meeting_point(rail);
  const auto why = [&] {
    if (code() == Errc::kOk) {
      const Error error = agreement.why_ended();
      end_for_all(wire::kNoRank, error.code, error.text, error.code);
    }
    return Error{code(), reason()};
  };
  auto joined = engine::Session::create(std::move(options), {agreement.deadline(), early_end.fd(), why});
  if (!joined && may_be_a_consequence(joined.error().code) &&
      transport::tcp::sleep_until({monotonic_now() + HostAgreement::kReasonTime, early_end.fd()}) ==
          Errc::kShutdown)
    static_cast<void>(why());
  if (!joined && code() != Errc::kOk) return fail(code(), reason());
  if (!joined) return add_context("rail " + std::to_string(rail), joined.error());
  rails_[rail] = std::move(*joined);
  return {};
}

// Each rail has as many connections and chunks as another one.
void LocalSession::begin_rail_limit() {
  const auto rail = std::ranges::find_if(rails_, [](const auto& r) { return r != nullptr; });
  if (rail == rails_.end()) return stage_->rail_limit().begin(0, 0);
  const engine::SessionStats stats = (*rail)->stats();
  const uint32_t at_once = topology_.rails * std::max(topology_.hosts(), stats.lane_connections);
  stage_->rail_limit().begin(uint64_t{at_once} * stats.slot_bytes, stats.round_trip);
}

// The reducers of all rails are those of one list.
bool LocalSession::accepts_blocks() const noexcept {
  return std::ranges::all_of(rails_,
                             [](const auto& rail) { return rail == nullptr || rail->accepts_blocks(); });
}

engine::CollectiveSession::Sums LocalSession::sums() const noexcept {
  if (topology_.hosts() == 1) return Sums::kOneHost;
  return options_.host_sharing == engine::HostSharing::kExact ? Sums::kHostsExactly : Sums::kHostsConverted;
}

void LocalSession::abort_rails(Rank at_fault, Errc code, const std::string& reason) noexcept {
  if (are_rails_aborted_.exchange(true, std::memory_order_seq_cst)) return;
  for (const auto& rail : rails_) {
    if (rail != nullptr) rail->abort_because_of(at_fault, code, reason);
  }
}

engine::SessionOptions LocalSession::rail_options(uint32_t rail) {
  engine::SessionOptions o = options_;
  std::string name = "sluice rail " + std::to_string(rail) + " of ";
  name.append(o.join.identity.session.bytes.begin(), o.join.identity.session.bytes.end());
  const wire::Digest digest = wire::sha256(std::as_bytes(std::span(name)));
  engine::Identity& identity = o.join.identity;
  std::copy_n(digest.begin(), identity.session.bytes.size(), identity.session.bytes.begin());
  std::vector<Rank> members;
  for (uint32_t host = 0; host < topology_.hosts(); ++host) members.push_back(rail_member(rail, host));
  identity.names = std::make_shared<engine::MemberNames>(options_.join.identity.session, rank(),
                                                         "rail " + std::to_string(rail), std::move(members));
  identity.rank = host_;
  identity.ranks = topology_.hosts();
  o.join.colocation.rails = topology_.rails;
  o.own_thread = true;
  o.device_memory = false;
  o.op_timeout = 0;     // this session has one of its own
  o.observers.clear();  // the same
  o.inflight_limit = &stage_->rail_limit().shared();
  // Without an open operation nothing else wakes whoever makes progress, or the thread that watches.
  o.on_ended = [this] {
    stage_->wake();
    stage_->wake_watch();
  };
  return o;
}

void LocalSession::check_rails() noexcept {
  if (!are_rails_complete_.load(std::memory_order_acquire)) return;
  try {
    for (uint32_t rail = 0; rail < rails_.size(); ++rail) {
      if (rails_[rail] == nullptr) continue;
      const Errc code = rails_[rail]->code();
      if (code == Errc::kOk) continue;
      const std::string reason = rails_[rail]->reason();
      // Codes that are not sent are of this process, so the others cannot know them.
      if (engine::code_for_peer(code) != code) return end_by_own_failure(code, reason);
      return end_for_all(rails_[rail]->ended_by(), code,
                         code != Errc::kMismatch         ? reason
                         : rails_[rail]->names_callers() ? reason + describe_parts()
                                                         : describe_oldest() + "; " + reason,
                         code);
    }
    // The rail lives, but has refused a piece.
    if (const Errc code = stage_->rail_status().code(); code != Errc::kOk)
      end_by_own_failure(code, "a rail refused a piece: " + std::string(to_string(code)));
  } catch (const std::exception&) {  // out of memory for the text
    end_for_all(rank(), Errc::kExhausted, {}, Errc::kExhausted);
  }
}

engine::WaitingStatus LocalSession::waiting_on_rails() const {
  engine::WaitingStatus longest;
  for (const auto& rail : rails_) {
    if (rail == nullptr) continue;
    const engine::WaitingStatus waiting = rail->stats().waiting;
    if (waiting.missing_ranks == 0 || waiting.first_rank >= topology_.hosts()) continue;
    if (longest.missing_ranks > 0 && waiting.waited_ms <= longest.waited_ms) continue;
    longest = waiting;
  }
  return longest;
}

// The first member of each rail, whose list counts, is on the host of rank 0. So rank 0 hands its list to the
// other ranks of its host.
Result<void> LocalSession::set_reducers(std::optional<config::Pool> pool) {
  SLUICE_RETURN_IF_ERROR(may_set_reducers());
  if (rank() != 0) return {};  // the caller's list was valid
  std::string list;
  if (pool && !pool->file.empty()) {
    list = "@" + pool->file;
  } else if (pool) {
    for (const config::Endpoint& reducer : pool->reducers)
      (list += list.empty() ? "" : ",") += config::to_string(reducer);
    if (list.empty()) list = config::kNoReducers;
  }
  if (list.size() >= kMaxPoolText)
    return fail(Errc::kTooMany, "a list of " + std::to_string(list.size()) + " bytes; at most " +
                                    std::to_string(kMaxPoolText - 1) + " reach the other ranks of this host");
  for (const auto& rail : rails_) {
    if (rail != nullptr) SLUICE_RETURN_IF_ERROR(rail->set_reducers(pool));
  }
  const std::lock_guard lock(submission_);  // calls on several threads
  segment_->pool().write(list);
  stage_->wake_all();
  return {};
}

Result<void> LocalSession::may_set_reducers() const {
  if (const Errc ended = code(); ended != Errc::kOk) return fail(ended, reason());
  for (const auto& rail : rails_) {
    if (rail != nullptr) return rail->may_set_reducers();
  }
  return fail(Errc::kUnsupported,
              "reducers cannot be changed: the session uses none, its ranks share a host");
}

void LocalSession::follow_pool() {
  if (rank() == 0 || host_ != 0 || !are_rails_complete_.load(std::memory_order_acquire)) return;
  std::string list;
  if (!segment_->pool().read(pool_version_, list)) return;
  std::optional<config::Pool> pool;
  if (!list.empty()) {
    auto read = config::read_pool(list);
    if (!read) return log().warn("list of reducers from rank 0: " + read.error().text);
    pool = std::move(*read);
  }
  for (const auto& rail : rails_) {
    if (rail == nullptr) continue;
    if (auto set = rail->set_reducers(pool); !set)
      log().warn("list of reducers from rank 0: " + set.error().text);
  }
}

std::vector<config::Endpoint> LocalSession::usable_reducers() const {
  for (const auto& rail : rails_) {
    if (rail != nullptr) return rail->usable_reducers();
  }
  return rails_.empty() ? std::vector<config::Endpoint>() : options_.join.reducers;
}

}  // namespace sluice::local
