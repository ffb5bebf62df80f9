#include "tests/fault/fault_test_bed.h"

#include <algorithm>

namespace sluice::test {

using transport::fault::FaultContext;

struct FaultTestBed::Worker final : engine::ChunkScheduler::Listener {
  Worker(uint32_t own_rank, FaultTestBed& owner) : rank(own_rank), test_bed(owner) {}
  void on_scheduler_ended(const engine::SchedulerFailure& session_end) noexcept override {
    test_bed.reasons_[rank] = session_end.code;
  }
  void on_lane_lost(uint32_t, Errc reason) noexcept override {
    test_bed.reasons_[rank] = reason == Errc::kClosed ? Errc::kReducerLost : reason;
    scheduler->end(test_bed.reasons_[rank]);
  }

  const uint32_t rank;
  FaultTestBed& test_bed;
  std::unique_ptr<engine::OpTable> table;
  std::unique_ptr<engine::ChunkScheduler> scheduler;
  // Destroyed first: its endpoints refer to the scheduler's lane connections.
  std::unique_ptr<FaultContext> context;
  transport::Context* below = nullptr;
  std::vector<PendingOperation> operations;
};

struct FaultTestBed::Reducer {
  reducer::SessionPlan plan;
  std::unique_ptr<reducer::LaneSession> session;
  std::unique_ptr<reducer::Lane> lane;
  transport::Context* below = nullptr;  // wrapped by the fault context; creates the connections
};

FaultTestBed::FaultTestBed(const FaultTestOptions& options)
    : options_(options),
      network_(std::make_unique<transport::inproc::Network>()),
      reasons_(options.ranks, Errc::kOk) {
  wire::View view;
  view.slot_bytes = options.slot_bytes;
  for (uint32_t i = 0; i < options.reducers; ++i) {
    view.reducers.push_back({.id = 100 + i});
    auto r = std::make_unique<Reducer>();
    r->plan = {.handle = i + 1,
               .ranks = options.ranks,
               .slots = options.slots,
               .slot_bytes = options.slot_bytes,
               .view_hash = 5};
    r->session = std::make_unique<reducer::LaneSession>(r->plan, *reducer::SlotArena::map(r->plan));
    auto near_below = network_->make_context();
    r->below = near_below.get();
    r->lane = std::make_unique<reducer::Lane>(
        std::make_unique<FaultContext>(
            std::move(near_below),
            transport::fault::FaultPlan{.seed = options.seed * 1000 + i, .rules = options.reducer_faults}),
        nullptr, reducer::LaneOptions{});
    (void)r->lane->do_work(now_);
    reducers_.push_back(std::move(r));
  }
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    auto w = std::make_unique<Worker>(rank, *this);
    w->table = std::make_unique<engine::OpTable>(
        options.reducers, wire::ChunkSizes{.slot_bytes = options.slot_bytes}, options.ranks);
    engine::ChunkScheduler::Options o{.view_hash = 5,
                                      .slot_bytes = options.slot_bytes,
                                      .incarnation = 9,
                                      .rank = rank,
                                      .placement = wire::placement_table(view),
                                      .lanes = {}};
    for (const auto& r : reducers_) o.lanes.push_back({.handle = r->plan.handle, .slots = options.slots});
    w->scheduler = std::move(*engine::ChunkScheduler::create(std::move(o), *w->table, *w));
    auto far_below = network_->make_context();
    w->below = far_below.get();
    w->context = std::make_unique<FaultContext>(
        std::move(far_below),
        transport::fault::FaultPlan{.seed = options.seed * 7919 + rank, .rules = options.worker_faults});
    for (uint32_t i = 0; i < options.reducers; ++i) {
      Reducer& r = *reducers_[i];
      auto& lane_faults = static_cast<FaultContext&>(r.lane->context());
      const auto lane_options = r.lane->endpoint_options(r.plan);
      const auto worker_options = w->scheduler->endpoint_options(i);
      transport::EndpointOptions both = lane_options;
      both.send_queue = std::max(lane_options.send_queue, worker_options.send_queue);
      both.max_payload = std::max(lane_options.max_payload, worker_options.max_payload);
      transport::Handler& near_handler = lane_faults.wrap(r.session->connection(rank));
      transport::Handler& far_handler = w->context->wrap(w->scheduler->lane(i));
      auto [near_end, far_end] = network_->connect(*r.below, near_handler, *w->below, far_handler, both);
      r.lane->attach(*r.session, rank, *lane_faults.bind(near_handler, near_end, both));
      w->scheduler->lane(i).bind(*w->context->bind(far_handler, far_end, both));
    }
    (void)w->scheduler->begin();
    workers_.push_back(std::move(w));
  }
  open_operations();
}

FaultTestBed::~FaultTestBed() {
  for (auto& w : workers_) w->context.reset();
  for (auto& r : reducers_) r->lane.reset();
}

// The same operations on every rank, with sizes and values from the seed. Integer values make sums exact.
void FaultTestBed::open_operations() {
  std::mt19937_64 random(options_.seed);
  const size_t sum_of_factors = size_t{options_.ranks} * (options_.ranks + 1) / 2;
  for (uint32_t i = 0; i < options_.operations; ++i) {
    const size_t count = 1 + random() % 60'000;
    const auto salt = static_cast<uint32_t>(random() % 1000);
    for (auto& w : workers_) {
      PendingOperation& op = w->operations.emplace_back();
      op.send.resize(count);
      op.expected.resize(count);
      for (size_t k = 0; k < count; ++k) {
        op.send[k] = static_cast<float>((k + salt) % 97 * (w->rank + 1));
        op.expected[k] = static_cast<float>((k + salt) % 97 * sum_of_factors);
      }
      op.recv.assign(count, -1.0f);
    }
  }
  for (auto& w : workers_) {
    for (PendingOperation& op : w->operations) {  // after the vector has its final size
      op.index = *w->table->open({.send = reinterpret_cast<const std::byte*>(op.send.data()),
                                  .recv = reinterpret_cast<std::byte*>(op.recv.data()),
                                  .count = op.send.size()});
      w->scheduler->issue(op.index);
    }
  }
}

void FaultTestBed::turn() {
  now_ += 50 * kMicrosecond;
  for (auto& w : workers_) {
    (void)w->scheduler->put_chunks(kMiB);
    (void)w->context->poll(now_, kMiB);
    if (w->scheduler->is_drained()) w->scheduler->fail_open_operations(reasons_[w->rank]);
  }
  for (auto& r : reducers_) (void)r->lane->do_work(now_);
  handle_lane_events();
}

void FaultTestBed::handle_lane_events() {
  for (auto& r : reducers_) {
    for (reducer::LaneEvent e; r->lane->poll_event(e);) {
      if (e.kind == reducer::LaneEvent::Kind::kClosed || e.kind == reducer::LaneEvent::Kind::kFailed)
        end_session();
    }
  }
}

void FaultTestBed::end_session() {
  if (std::exchange(session_ended_, true)) return;
  wire::Abort abort;
  abort.code = Errc::kPeerLost;
  abort.text = "a rank is lost";
  for (auto& r : reducers_) {
    r->session->set_end_message(wire::encode_body(abort));
    (void)r->lane->command({.kind = reducer::LaneCommand::Kind::kEnd, .session = r->session.get()});
  }
}

bool FaultTestBed::run(uint64_t turns) {
  const auto all_ended = [this] {
    return std::ranges::all_of(workers_, [](const auto& w) { return w->table->open_count() == 0; });
  };
  for (uint64_t t = 0; t < turns; ++t) {
    if (all_ended()) return true;
    turn();
  }
  return false;
}

FaultTestBed::Outcome FaultTestBed::outcome() const {
  Outcome o;
  for (const auto& w : workers_) {
    for (const PendingOperation& op : w->operations) {
      if ((*w->table)[op.index].status != Errc::kOk) {
        ++o.failed;
      } else {
        ++(op.recv == op.expected ? o.correct : o.wrong);
      }
    }
  }
  return o;
}

transport::fault::FaultCounters FaultTestBed::faults() const {
  transport::fault::FaultCounters sum;
  const auto add = [&sum](const transport::fault::FaultCounters& c) {
    sum.drops += c.drops, sum.resets += c.resets, sum.delays += c.delays;
    sum.corruptions += c.corruptions, sum.stalls += c.stalls;
  };
  for (const auto& w : workers_) add(w->context->faults());
  for (const auto& r : reducers_) add(static_cast<FaultContext&>(r->lane->context()).faults());
  return sum;
}

}  // namespace sluice::test
