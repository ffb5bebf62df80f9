#include "gpu_client/engine/session.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/clock.h"
#include "transport/rdma/loans.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::engine {
namespace {

// How long close() waits for its own side to let go of the last buffers once everything is closed.
constexpr Nanos kDrainTime = kSecond;

}  // namespace

Session::Session(SessionOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<Session>> Session::create(SessionOptions options) {
  std::unique_ptr<Session> session(new Session(std::move(options)));
  auto keeper = Keeper::acquire();
  if (!keeper) return tl::unexpected(keeper.error());
  session->keeper_ = std::move(*keeper);
  auto membership = join_session(session->options_.join);
  if (!membership) return tl::unexpected(membership.error());
  if (auto begun = session->begin(std::move(*membership)); !begun) return tl::unexpected(begun.error());
  return session;
}

Result<void> Session::begin(Membership membership) {
  Exchange::Options o;
  o.view_hash = membership.view_hash;
  o.slot_bytes = membership.view.slot_bytes;
  o.incarnation = membership.incarnation;
  o.payload_crc = options_.payload_crc;
  o.keep_results = options_.keep_results;
  o.survives = membership.survives;
  o.rank = options_.join.who.rank;
  o.ranks = options_.join.who.ranks;
  o.placement = wire::placement_table(membership.view);
  for (const Seat& seat : membership.seats) {
    for (size_t lane = 0; lane < seat.lanes.size(); ++lane) {
      o.links.push_back({.handle = seat.handle, .slots = seat.slots});
      link_names_.push_back(seat.name + " lane " + std::to_string(lane));
    }
  }
  table_ = std::make_unique<OpTable>(static_cast<uint32_t>(o.links.size()), o.slot_bytes);
  driver_ = std::make_unique<Driver>(fate_, static_cast<Driver::Listener&>(*this));
  auto exchange = Exchange::create(std::move(o), *table_, *driver_);
  if (!exchange) return tl::unexpected(exchange.error());
  exchange_ = std::move(*exchange);
  if (const auto& memory = options_.join.who.lanes.memory)
    known_ring_ = {memory, exchange_->ring_for_devices(), transport::rdma::Memory::Use::kSendAndLend};
  auto context = transport::rdma::make_context();
  if (!context) return tl::unexpected(context.error());
  context_ = std::move(*context);
  driver_->attach(*exchange_, *context_);
  if (auto adopted = adopt_lanes(membership.seats); !adopted) return adopted;
  if (const auto& memory = options_.join.who.lanes.memory; memory && !memory->refused().empty())
    SessionLog(options_.join.who.session, options_.join.who.rank)
        .info("payload is copied for RDMA: " + memory->refused());
  if (const Status s = exchange_->begin(); !s.ok())
    return fail(s.code(), "COMMIT could not be put on a lane connection");
  progress_ = std::make_unique<Progress>(*driver_, *exchange_, *context_);
  if (membership.survives) {
    survival_ = std::make_unique<Survival>(
        options_.join, membership, Survival::Session{*keeper_, *driver_, *exchange_, *context_, *progress_},
        static_cast<Survival::Listener&>(*this));
  }

  std::vector<Keeper::Peer> peers;
  for (Seat& seat : membership.seats) {
    peers.push_back({.link = std::move(seat.control),
                     .heartbeat = Nanos{seat.heartbeat_ms} * kMillisecond,
                     .timeout = Nanos{seat.peer_timeout_ms} * kMillisecond});
  }
  kept_ = keeper_->add(std::move(peers), *this, membership.survives);
  if (survival_) survival_->begin(kept_);
  begun_.store(true, std::memory_order_release);
  // COMMIT leaves now, not with the first operation: a reducer that hears nothing on a lane can't tell a late
  // rank from a lost one.
  progress_->drive();
  return options_.own_thread ? progress_->start() : Result<void>();
}

Result<void> Session::adopt_lanes(std::vector<Seat>& seats) {
  uint32_t i = 0;
  for (Seat& seat : seats) {
    for (transport::tcp::Socket& lane : seat.lanes) {
      auto ep = context_->adopt(std::move(lane), exchange_->link(i), exchange_->endpoint_options(i));
      if (!ep) return add_context(link_names_[i], ep.error());
      exchange_->link(i).bind(**ep);
      ++i;
    }
  }
  return {};
}

Session::~Session() {
  if (survival_) survival_->stop();
  if (progress_) progress_->stop();
  if (keeper_ && kept_ != 0) keeper_->remove(kept_);
}

Status Session::allreduce(OpRequest request, uint64_t& name) {
  if (options_.op_timeout > 0) request.deadline = monotonic_now() + options_.op_timeout;
  {
    const std::lock_guard lock(submission_);
    if (closing_) return Errc::kClosed;
    if (const Errc ended = fate_.code(); ended != Errc::kOk) return ended;
    if (!device_memory_.empty() && !find_device_memory(request)) return Errc::kInvalidArgument;
    const auto index = table_->open(request);
    if (!index) return Errc::kExhausted;
    name = table_->name_of(*index);
    if ((*table_)[*index].chunk_count == 0) {
      table_->end(*index, Errc::kOk);
      empty_operations_.fetch_add(1, std::memory_order_relaxed);
      return Errc::kOk;
    }
    driver_->submit(*index);
  }
  progress_->notify();
  return Errc::kOk;
}

bool Session::take_end(uint64_t name, Status& how) {
  const std::lock_guard lock(submission_);
  const uint32_t index = table_->find(name);
  how = index == kNoOperation ? Errc::kInvalidArgument : Errc::kOk;
  if (index == kNoOperation) return false;
  const Operation& o = (*table_)[index];
  if (o.state.load(std::memory_order_acquire) != OpState::kEnded) return false;
  how = o.status;
  table_->release(index);
  return true;
}

Status Session::test(uint64_t name, bool& done) {
  if (!options_.own_thread) progress_->drive();
  Status status;
  done = take_end(name, status);
  return status;
}

Status Session::wait(uint64_t name, Nanos deadline) {
  const Operation* o = nullptr;
  {
    const std::lock_guard lock(submission_);
    const uint32_t index = table_->find(name);
    if (index == kNoOperation) return Errc::kInvalidArgument;
    o = &(*table_)[index];
  }
  if (!options_.own_thread) progress_->drive();  // also when there is no time to wait
  const bool ended =
      progress_->wait([o] { return o->state.load(std::memory_order_seq_cst) != OpState::kOpen; }, deadline);
  if (!ended) return Errc::kTimeout;
  Status how;
  static_cast<void>(take_end(name, how));  // kInvalidArgument when another thread was told first
  return how;
}

SessionStats Session::stats() {
  SessionStats s;
  const Progress::Counters counters = progress_->counters();
  s.lanes = counters.lanes;
  s.bytes_resent = counters.bytes_resent;
  s.bytes_copied = counters.results_copied + s.lanes.bytes_copied + s.lanes.bytes_copied_out;
  s.rdma_lanes = counters.rdma_links;
  s.operations = progress_->operations_done() + empty_operations_.load(std::memory_order_relaxed);
  s.reducers = static_cast<uint32_t>(options_.join.reducers.size());
  s.lane_connections = counters.open_links;
  s.slowest = exchange_->stragglers().slowest();
  s.waiting = {.missing_ranks = missing_ranks_.load(std::memory_order_relaxed),
               .first_rank = missing_rank_.load(std::memory_order_relaxed),
               .waited_ms = waited_ms_.load(std::memory_order_relaxed)};
  if (survival_) s.survival = survival_->counts();
  return s;
}

Result<void> Session::set_reducers(std::optional<config::Pool> pool) {
  if (const Errc ended = fate_.code(); ended != Errc::kOk) return fail(ended, fate_.text());
  if (!survival_)
    return fail(Errc::kUnsupported,
                "a session that does not survive losses keeps the reducers it began with");
  return survival_->set_reducers(std::move(pool));
}

Result<void> Session::know_memory(std::span<std::byte> bytes) {
  const auto& memory = options_.join.who.lanes.memory;
  if (!memory) return {};
  auto known = memory->add(bytes, transport::rdma::Memory::Use::kSendAndLend);
  if (!known) (void)memory->remove(bytes, transport::rdma::Memory::Use::kSendAndLend);
  return known;
}

// Such a session keeps the links it began with, so they may be looked at here.
Result<void> Session::may_know_device_memory() {
  const auto refuse = [](std::string why) { return fail(Errc::kUnsupported, std::move(why)); };
  if (!options_.device_memory) return refuse("device memory is experimental: SLUICE_GDR=1 allows it");
  if (options_.keep_results) return refuse("results in device memory can't be kept: keep_results = 0");
  const uint32_t links = exchange_->link_count();
  if (const uint32_t paired = progress_->counters().rdma_links; paired < links) {
    return refuse("device memory takes RDMA, and " + std::to_string(links - paired) + " of " +
                  std::to_string(links) + " lanes are not over it");
  }
  for (uint32_t i = 0; i < links; ++i) {
    const uint32_t slots = exchange_->link(i).slots();
    // With more than can be lent at a time a result could come before its place was lent.
    if (slots <= transport::rdma::kMostLoans) continue;
    return refuse(link_names_[i] + " has " + std::to_string(slots) + " slots, and device memory takes " +
                  std::to_string(transport::rdma::kMostLoans) +
                  " at most: larger slot_bytes, or a smaller window_bytes");
  }
  return {};
}

Result<void> Session::know_device_memory(std::span<std::byte> bytes, const transport::rdma::DmaBuf& dmabuf) {
  if (auto may = may_know_device_memory(); !may) return may;
  const auto& memory = options_.join.who.lanes.memory;
  if (auto known = memory->add_device(bytes, dmabuf); !known) return known;
  const std::lock_guard lock(submission_);
  device_memory_.push_back(bytes);
  return {};
}

bool Session::knows_device_memory(const std::byte* at, uint64_t size) {
  const std::lock_guard lock(submission_);
  return std::ranges::any_of(device_memory_, [&](std::span<std::byte> known) {
    return at >= known.data() && size <= known.size() &&
           static_cast<size_t>(at - known.data()) <= known.size() - size;
  });
}

bool Session::find_device_memory(OpRequest& request) const noexcept {
  const uint64_t size = request.count * wire::size_of(request.dtype);
  bool whole = true;
  for (const std::byte* const buffer : {request.send, static_cast<const std::byte*>(request.recv)}) {
    bool touches = false, has = false;
    for (const std::span<std::byte> known : device_memory_) {
      const std::byte* const end = known.data() + known.size();
      touches |= buffer < end && known.data() < buffer + size;
      has |= buffer >= known.data() && buffer < end && size <= static_cast<size_t>(end - buffer);
    }
    request.on_device |= touches;
    whole &= has || !touches;
  }
  return whole;
}

Status Session::forget_memory(std::span<std::byte> bytes) {
  const auto& memory = options_.join.who.lanes.memory;
  {
    const std::lock_guard lock(submission_);
    const auto known = std::ranges::find_if(device_memory_, [&](std::span<std::byte> d) {
      return d.data() == bytes.data() && d.size() == bytes.size();
    });
    if (known != device_memory_.end()) {
      device_memory_.erase(known);
      (void)memory->remove(bytes, transport::rdma::Memory::Use::kDevice);
      return Errc::kOk;
    }
  }
  if (!memory || memory->remove(bytes, transport::rdma::Memory::Use::kSendAndLend)) return Errc::kOk;
  return Errc::kInvalidArgument;
}

Status Session::close(Nanos deadline) {
  {
    const std::lock_guard lock(submission_);
    closing_ = true;
  }
  if (deadline == kNoDeadline) deadline = monotonic_now() + options_.linger;
  const auto failed = [this] { return fate_.code() != Errc::kOk; };
  bool in_time = progress_->wait([&] { return table_->open_count() == 0 || failed(); }, deadline);
  if (!failed()) {
    leaving_.store(true, std::memory_order_release);
    driver_->leave();
    keeper_->leave(kept_);
    const auto left = [&] { return left_.load(std::memory_order_seq_cst) || failed(); };
    in_time = progress_->wait(left, deadline) && in_time;
  }
  if (survival_) survival_->stop();
  const Errc ended = fate_.code();
  seal(Errc::kClosed, "the session was closed");
  progress_->wait([this] { return driver_->drained(); }, monotonic_now() + kDrainTime);
  progress_->stop();
  keeper_->remove(kept_);
  kept_ = 0;
  if (ended != Errc::kOk) return ended;
  return in_time ? Errc::kOk : Errc::kTimeout;
}

std::string Session::describe(const Ending& ending) const {
  std::string text = printable(ending.text.data());
  const std::string link = ending.link < link_names_.size() ? link_names_[ending.link] : "an added reducer";
  if (ending.from_peer) return link + ": the reducer ended the session: " + text;
  if (ending.link != kNoLink) return link + ": " + text;
  if (const uint32_t missing = missing_ranks_.load(std::memory_order_relaxed); missing > 0) {
    text += "; a reducer waits for " + std::to_string(missing) + (missing == 1 ? " rank" : " ranks") +
            ", first rank " + std::to_string(missing_rank_.load(std::memory_order_relaxed));
  }
  return text;
}

void Session::on_driver_ended(const Ending& ending) noexcept {
  try {
    const std::string text = describe(ending);
    if (!fate_.seal(ending.code, text)) return;
    // Before the lane connections break, so that the reducers hear the reason and not only the loss.
    const Rank about = ending.from_peer ? ending.rank : options_.join.who.rank;
    keeper_->abort(kept_, ending.code, about, ending.from_peer ? printable(ending.text.data()) : text);
  } catch (const std::exception&) {
    seal(ending.code, {});
  }
  progress_->signal();
}

void Session::on_session_lost(Errc code, std::string text) noexcept {
  seal(code, std::move(text));
}

void Session::seal(Errc code, std::string text) noexcept {
  if (!fate_.seal(code, std::move(text))) return;
  progress_->notify();
  progress_->signal();
}

void Session::on_waiting(const Keeper::Waiting& waiting) noexcept {
  missing_ranks_.store(waiting.missing_ranks, std::memory_order_relaxed);
  missing_rank_.store(waiting.missing_ranks > 0 ? waiting.first_rank : wire::kNoRank,
                      std::memory_order_relaxed);
  waited_ms_.store(waiting.missing_ranks > 0 ? waiting.waited_ms : 0, std::memory_order_relaxed);
}

uint64_t Session::finished() const noexcept {
  return exchange_->first_unfinished();
}

// Of a session that survives losses also between operations: a rank that computes for long must notice a lane
// connection that broke before the reducers miss it for the absence deadline.
void Session::on_attend() noexcept {
  if (!options_.own_thread && begun_.load(std::memory_order_acquire) &&
      (survival_ || table_->open_count() > 0))
    progress_->drive();
}

// An event for Survival. One that there is no memory for can't be survived.
template <typename F>
void Session::hand_on(F&& event) noexcept {
  try {
    event(*survival_);
  } catch (const std::exception&) {
    seal(Errc::kExhausted, {});
  }
}

// What the reducer closes in order while this rank leaves and holds all its results is done with it.
void Session::on_link_lost(uint32_t link, Errc reason) noexcept {
  if (reason == Errc::kClosed && leaving_.load(std::memory_order_acquire) &&
      exchange_->oldest() == kNoOperation)
    return;
  const Ending& breach = exchange_->last_breach();
  const char* const words = breach.link == link && breach.code == reason ? breach.text.data() : "";
  hand_on([&](Survival& s) { s.link_lost(link, reason, exchange_->link(link).last_frames_in(), words); });
}

void Session::on_link_resumed(uint32_t link) noexcept {
  hand_on([&](Survival& s) { s.link_resumed(link); });
}

void Session::on_peer_gone(size_t peer, Errc code, std::string text) noexcept {
  hand_on([&](Survival& s) { s.peer_gone(peer, code, std::move(text)); });
}

void Session::on_view_query(size_t peer, const wire::ViewQuery& query) noexcept {
  hand_on([&](Survival& s) { s.view_query(peer, query); });
}

void Session::on_view_commit(size_t peer, const wire::ViewCommit& commit) noexcept {
  hand_on([&](Survival& s) { s.view_commit(peer, commit); });
}

void Session::on_drain_notice(size_t peer, const wire::DrainNotice& notice) noexcept {
  hand_on([&](Survival& s) { s.drain_notice(peer, notice); });
}

// The reducers hear of it by the connections that the exchange closes.
void Session::on_no_thread(const Error& why) noexcept {
  seal(why.code, why.text);
}

void Session::on_not_survived(const Error& why) noexcept {
  // A rank that has all its results needs nobody to leave.
  if (leaving_.load(std::memory_order_acquire) && table_->open_count() == 0) return on_left();
  abort(why.code, why.text);
}

void Session::abort(Errc code, const std::string& why) noexcept {
  try {
    fate_.claim(code, why);
    keeper_->abort(kept_, code, options_.join.who.rank, why);
    seal(code, why);
  } catch (const std::exception&) {
    seal(code, {});
  }
}

void Session::on_left() noexcept {
  left_.store(true, std::memory_order_seq_cst);
  progress_->notify();
  progress_->signal();
}

}  // namespace sluice::engine
