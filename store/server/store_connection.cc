#include "store/server/store_connection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/bytes.h"
#include "core/clock.h"
#include "store/model/body_values.h"
#include "store/model/model_json.h"
#include "store/server/send_version.h"
#include "store/server/store_server.h"
#include "wire/handshake.h"

namespace sluice::store {
namespace {

using transport::tcp::MessageChannel;

// An idle connection keeps its buffers for so long.
constexpr Nanos kIdleBuffers = kSecond;
// A larger body that nobody needs ends the connection.
constexpr uint64_t kMaxSkipped = uint64_t{1} << 30;
constexpr Nanos kTurnTime = 10 * kSecond;  // for other queries to end

// Class Requests answers the requests of one connection. Functions return an error only if the connection
// cannot continue.
class Requests {
 public:
  Requests(StoreServer& server, MessageChannel& channel, const std::string& job, uint64_t features)
      : server_(server), channel_(channel), job_(job), features_(features) {}

  // Where the connection is, or was when it ended.
  [[nodiscard]] ConnectionState state() const noexcept { return state_; }

  Status greet() {
    state_ = ConnectionState::kGreeting;
    return channel_.send(wire::StoreReady{.store = server_.id()}, deadline());
  }
  Status serve_one() {
    if (const Status s = wait_for_request(); !s.ok()) return s;
    state_ = ConnectionState::kRequest;
    if (const Status s = channel_.receive(deadline()); !s.ok()) return s;
    switch (channel_.type()) {
      case wire::FrameType::kModelQuery: return serve(&Requests::query);
      case wire::FrameType::kPush: return serve(&Requests::push);
      case wire::FrameType::kPushStep: return serve(&Requests::push_step);
      case wire::FrameType::kPull: return serve(&Requests::pull);
      case wire::FrameType::kCurrent: return serve(&Requests::current);
      case wire::FrameType::kInstall: return serve(&Requests::install);
      case wire::FrameType::kStartModel: return serve(&Requests::start_model);
      default: break;
    }
    if (job_ != wire::kReducerJob) return Errc::kUnexpectedMessage;
    switch (channel_.type()) {
      case wire::FrameType::kStep: return serve(&Requests::step);
      case wire::FrameType::kCopyVersion: return serve(&Requests::copy);
      case wire::FrameType::kCommitted: return serve(&Requests::committed);
      default: return Errc::kUnexpectedMessage;
    }
  }

 private:
  template <typename M>
  Status serve(Status (Requests::*handler)(const M&)) {
    M message;
    if (const Status s = channel_.decode(message); !s.ok()) return s;
    return (this->*handler)(message);
  }
  [[nodiscard]] Nanos deadline() const { return monotonic_now() + server_.deadlines().of(state_); }
  [[nodiscard]] Nanos wait_until(uint32_t timeout_ms) const {
    return monotonic_now() +
           std::min(static_cast<Nanos>(timeout_ms) * kMillisecond, server_.deadlines().wait);
  }
  Status wait_for_request() {
    state_ = ConnectionState::kIdle;
    const Nanos until = deadline();
    const Status s = channel_.wait(std::min(monotonic_now() + kIdleBuffers, until));
    if (s != Errc::kTimeout) return s;
    channel_.release_buffers();
    return channel_.wait(until);
  }
  template <typename M>
  Status answer(const M& message) {
    state_ = ConnectionState::kAnswering;
    return channel_.send(message, deadline());
  }
  Status refuse(const Error& error) { return answer(wire::Failed{.code = error.code, .text = error.text}); }
  Status done_or_refuse(const Result<void>& result) {
    return result ? answer(wire::Done{}) : refuse(result.error());
  }
  // Reads a body that nobody needs, and refuses the request.
  Status skip_and_refuse(uint64_t bytes, const Error& error) {
    if (bytes > kMaxSkipped) return Errc::kClosed;
    state_ = ConnectionState::kReceiving;
    const Status s =
        channel_.receive_pieces(bytes, [](uint64_t, std::span<const std::byte>) { return Status(); });
    return s.ok() ? refuse(error) : s;
  }
  // After an error of the connection, which the text tells.
  static bool is_broken(const Error& error) { return is_bad_frame(error.code); }

  // The body of a query, as far as it has arrived, and its place in the budget of the job.
  struct QueryBody {
    std::string text;
    std::vector<std::shared_ptr<void>> held;
    std::optional<Error> refusal;  // the budget is used up, and the rest has been skipped
  };
  Status receive_query(uint64_t bytes, QueryBody& body) {
    state_ = ConnectionState::kReceiving;
    return channel_.receive_pieces(bytes, [&](uint64_t, std::span<const std::byte> piece) {
      if (body.refusal) return Status();
      auto taken = server_.budgets().take_query_bytes(job_, piece.size());
      if (!taken) {
        body = {.text = {}, .held = {}, .refusal = taken.error()};
        return Status();
      }
      body.held.push_back(std::move(*taken));
      body.text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return Status();
    });
  }

  Status query(const wire::ModelQuery& m) {
    if (m.kind > wire::ModelQueryKind::kList) return Errc::kBadField;
    if (m.bytes > (m.kind == wire::ModelQueryKind::kCreate ? kMaxModelText : 0)) return Errc::kBadLength;
    Result<std::string> text;
    Result<std::shared_ptr<void>> held;  // for the answer
    {
      QueryBody body;
      if (const Status s = receive_query(m.bytes, body); !s.ok()) return s;
      if (body.refusal) return refuse(*body.refusal);
      const auto turn = server_.query_turns().take(job_, monotonic_now() + kTurnTime);
      if (!turn) return refuse(turn.error());
      text = execute(m, body.text);
      body.held.clear();
      if (text) held = server_.budgets().take_query_bytes(job_, text->size());
    }
    if (!text) return refuse(text.error());
    if (!held) return refuse(held.error());
    if (const Status s = answer(wire::ModelAnswer{.bytes = text->size()}); !s.ok()) return s;
    state_ = ConnectionState::kSending;
    return channel_.send_body(std::as_bytes(std::span(*text)));
  }
  Result<std::string> execute(const wire::ModelQuery& m, const std::string& body) {
    switch (m.kind) {
      case wire::ModelQueryKind::kOpen: return server_.describe(m.name);
      case wire::ModelQueryKind::kCreate: return server_.create(body, job_);
      case wire::ModelQueryKind::kList: return server_.list();
      case wire::ModelQueryKind::kDelete: {
        const auto removed = server_.remove(m.name, job_);
        return removed ? Result<std::string>("") : tl::unexpected(removed.error());
      }
    }
    return fail(Errc::kBadField, "an unknown query");
  }

  // What is not here is looked for in the coordinator, which may have to list and parse all models. So
  // clients do that in a turn of their job, as queries. Reducers have none: one may wait for an answer from
  // another.
  template <typename Here, typename Search>
  auto find_in_turn(const Here& here, const Search& search) -> decltype(search()) {
    if (auto found = here()) return found;
    if (job_ == wire::kReducerJob) return search();
    const auto turn = server_.query_turns().take(job_, monotonic_now() + kTurnTime);
    if (!turn) return tl::unexpected(turn.error());
    return search();
  }
  Result<std::shared_ptr<HostedModel>> find(uint64_t id) {
    return find_in_turn([&] { return server_.model_here(id); }, [&] { return server_.find(id); });
  }
  Result<std::shared_ptr<StepLeader>> find_leader(uint64_t id) {
    return find_in_turn([&] { return server_.leader_here(id); }, [&] { return server_.find_leader(id); });
  }
  // The model, if this job may change it.
  Result<std::shared_ptr<HostedModel>> find_own(uint64_t id) {
    auto model = find(id);
    if (!model || (*model)->job() == job_) return model;
    return fail(Errc::kUnauthenticated, other_job((*model)->spec().name, (*model)->job(), job_));
  }

  Status push(const wire::Push& m) {
    if (!is_body_type(m.dtype)) return Errc::kBadDType;
    const auto model = find_own(m.model);
    if (!model) return skip_and_refuse(m.bytes, model.error());
    const uint64_t elements = (*model)->layout().shard_elements();
    if (m.bytes != body_bytes(m.dtype, elements)) return Errc::kBadLength;
    auto taken = (*model)->take_buffer();
    if (!taken) return skip_and_refuse(m.bytes, taken.error());
    const auto delta = (*model)->begin_delta(m.shard, {m.worker, m.number}, std::move(*taken));
    const Status received = receive_delta(m, **model, *delta);
    Result<void> staged;
    if (received.ok()) {
      (*model)->counters()->delta_bytes.add(m.bytes);
      staged = (*model)->stage(m.shard, {m.worker, m.number}, *delta);
    }
    (*model)->end_delta(m.shard, m.worker, delta);
    return received.ok() ? done_or_refuse(staged) : received;
  }

  Status receive_delta(const wire::Push& m, HostedModel& model, ArrivingDelta& delta) {
    const std::span values(*delta.values);
    state_ = ConnectionState::kReceiving;
    if (m.dtype == wire::DType::kF32)
      return channel_.receive_body(std::as_writable_bytes(values), [&](uint64_t bytes) {
        model.advance_delta(delta, bytes / sizeof(float));
      });
    return channel_.receive_pieces(m.bytes, [&](uint64_t offset, std::span<const std::byte> piece) {
      const auto part = values_of_piece(values, m.dtype, offset, piece);
      const Status s = decode_body(m.dtype, piece.data(), part);
      if (s.ok()) model.advance_delta(delta, value_at(m.dtype, offset) + part.size());
      return s;
    });
  }

  Status push_step(const wire::PushStep& m) {
    const auto weight = std::bit_cast<float>(m.weight_bits);
    if (!std::isfinite(weight) || weight <= 0) return Errc::kBadField;
    if (m.early > 1) return Errc::kBadField;
    const auto model = find_own(m.model);
    if (!model) return refuse(model.error());
    // Elsewhere a step is for one push, and all others would wait for its delta.
    if (m.early == 1 && (*model)->spec().mode.kind != StepKind::kSync)
      return refuse({Errc::kInvalidArgument, "an early PUSH_STEP is for models whose mode is sync"});
    const auto leader = find_leader(m.model);
    if (!leader) return refuse(leader.error());
    const StagedPush staged{
        .identity = {m.worker, m.number}, .base = m.base, .weight = weight, .is_early = m.early == 1};
    const auto result = (*leader)->push(staged, wait_until(m.timeout_ms));
    if (result) (*leader)->counters().pushes[static_cast<size_t>(result->outcome)].add();
    return result ? answer(*result) : refuse(result.error());
  }

  // Ends the connection if the version of an early pull is not made, because its body cannot be completed.
  Status pull(const wire::Pull& m) {
    if (!is_body_type(m.dtype)) return Errc::kBadDType;
    if (m.early > 1) return Errc::kBadField;
    const auto found = find(m.model);
    if (!found) return refuse(found.error());
    HostedModel& model = **found;
    const bool is_early = m.early == 1;
    if (m.array >= (is_early ? 1 : model.arrays())) return Errc::kBadField;
    // A peer that reads no answers has no view meanwhile.
    state_ = ConnectionState::kAnswering;
    if (const Status s = channel_.wait_writable(deadline()); !s.ok()) return s;
    auto read = is_early ? model.follow(m.shard, m.version, wait_until(m.timeout_ms))
                         : model.view(m.shard, m.version);
    if (!read) return refuse(read.error());
    const uint64_t bytes = body_bytes(m.dtype, read->view.array(m.array).size());
    model.counters()->pulls.add();
    model.counters()->pull_bytes.add(bytes);
    Status s = answer(wire::PullAnswer{.steps = read->steps, .bytes = bytes});
    const auto reader =
        std::make_shared<VersionReader>(m.version, server_.deadlines().reader, monotonic_now());
    if (s.ok()) {
      state_ = ConnectionState::kSending;
      s = send_version(channel_, m, model, *read, reader);
    }
    model.end_view(std::move(read->view));
    if (s == Errc::kAborted) {
      model.counters()->ended_pulls.add();
      if ((features_ & wire::kFeatureBodyEnd) == 0) return Errc::kClosed;
      return refuse(
          {Errc::kTimeout, "model \"" + model.spec().name + "\": " + reader->reason(monotonic_now())});
    }
    if (!s.ok() || !is_early) return s;
    const StepProgress* const progress = read->progress.get();
    const bool is_committed =
        progress == nullptr || model.wait_committed(*progress, monotonic_now() + server_.deadlines().wait);
    return is_committed ? answer(wire::Done{}) : Status(Errc::kClosed);
  }

  Status current(const wire::Current& m) {
    const auto leader = find_leader(m.model);
    if (leader) {
      const uint64_t version = (*leader)->wait_current(m.at_least, wait_until(m.timeout_ms));
      return answer(wire::CurrentAnswer{.started = 1, .version = version});
    }
    if (server_.is_started(m.model) == false) return answer(wire::CurrentAnswer{});
    return refuse(leader.error());
  }

  Status install(const wire::Install& m) {
    const auto model = find_own(m.model);
    if (!model) return skip_and_refuse(m.bytes, model.error());
    if (m.array >= (*model)->arrays() || m.bytes != (*model)->layout().shard_elements() * sizeof(float))
      return Errc::kBadLength;
    const auto values = (*model)->take_buffer();
    if (!values) return skip_and_refuse(m.bytes, values.error());
    state_ = ConnectionState::kReceiving;
    const Status s = channel_.receive_body(std::as_writable_bytes(std::span(**values)));
    return s.ok() ? done_or_refuse((*model)->install(m, *values)) : s;
  }

  Status start_model(const wire::StartModel& m) {
    if (const auto model = find_own(m.model); !model) return refuse(model.error());
    const auto turn = server_.query_turns().take(job_, monotonic_now() + kTurnTime);
    return turn ? done_or_refuse(server_.start_model(m.model, m.version)) : refuse(turn.error());
  }

  Status step(const wire::Step& m) {
    if (m.bytes % wire::kStepPushBytes != 0 || m.bytes > size_t{kMaxQuorum} * wire::kStepPushBytes)
      return Errc::kBadLength;
    std::vector<std::byte> body;  // grows with what arrives
    state_ = ConnectionState::kReceiving;
    const auto append = [&body](uint64_t, std::span<const std::byte> piece) {
      body.insert(body.end(), piece.begin(), piece.end());
      return Status();
    };
    if (const Status s = channel_.receive_pieces(m.bytes, append); !s.ok()) return s;
    std::vector<StepPush> pushes(body.size() / wire::kStepPushBytes);
    for (size_t i = 0; i < pushes.size(); ++i) {
      const std::byte* const at = body.data() + i * wire::kStepPushBytes;
      pushes[i] = {.identity = {load_le<uint64_t>(at), load_le<uint64_t>(at + 8)},
                   .weight = std::bit_cast<float>(load_le<uint32_t>(at + 16)),
                   .is_early = at[20] != std::byte{0}};
      if (!std::isfinite(pushes[i].weight) || pushes[i].weight <= 0 || at[20] > std::byte{1})
        return Errc::kBadField;
    }
    if (pushes.empty()) return Errc::kBadLength;
    const auto model = find(m.model);
    if (!model) return refuse(model.error());
    auto made = (*model)->step(m, pushes);
    if (!made && made.error().code == Errc::kBadView && server_.refresh(m.model))
      made = (*model)->step(m, pushes);
    return done_or_refuse(made);
  }

  Status copy(const wire::CopyVersion& m) {
    // The owner may know of a change of hands before this reducer does.
    const auto model = server_.find_for_copy(m.model);
    if (!model) return Errc::kUnknownSession;
    if (m.shard >= (*model)->layout().shards()) return Errc::kBadField;
    if ((*model)->state().shards[m.shard].generation < m.generation)
      static_cast<void>(server_.refresh(m.model));
    state_ = ConnectionState::kReceiving;
    const auto stored = (*model)->receive_copy(m, channel_);
    if (!stored && is_broken(stored.error())) return stored.error().code;
    return done_or_refuse(stored);
  }

  Status committed(const wire::Committed& m) {
    const auto model = find(m.model);
    return model ? done_or_refuse((*model)->commit(m.shard, m.version)) : refuse(model.error());
  }

  StoreServer& server_;
  MessageChannel& channel_;
  const std::string& job_;
  const uint64_t features_;
  ConnectionState state_ = ConnectionState::kGreeting;
};

}  // namespace

void serve_store_connection(StoreServer& server, MessageChannel& channel, const std::string& peer,
                            const std::string& job, uint64_t features,
                            const std::function<void(const std::string&)>& log) noexcept {
  try {
    Requests requests(server, channel, job, features);
    Status status = requests.greet();
    while (status.ok()) status = requests.serve_one();
    if (status == Errc::kTimeout) server.budgets().count_late(requests.state());
    if (is_bad_frame(status.code()))
      log("connection of " + peer + " closed: " + std::string(to_string(status.code())));
    channel.socket().shutdown();
  } catch (const std::exception& e) {
    log("connection of " + peer + " closed: " + e.what());
  }
}

}  // namespace sluice::store
