#include "tests/fault/fault_world.h"

#include <algorithm>

namespace sluice::test {

using transport::fault::FaultContext;

struct FaultWorld::Worker final : engine::Exchange::Listener {
  Worker(uint32_t own_rank, FaultWorld& owner) : rank(own_rank), world(owner) {}
  void on_exchange_ended(const engine::Ending& ending) noexcept override {
    world.reasons_[rank] = ending.code;
  }
  void on_link_lost(uint32_t, Errc reason) noexcept override {
    world.reasons_[rank] = reason == Errc::kClosed ? Errc::kReducerLost : reason;
    exchange->end(world.reasons_[rank]);
  }

  const uint32_t rank;
  FaultWorld& world;
  std::unique_ptr<engine::OpTable> table;
  std::unique_ptr<engine::Exchange> exchange;
  std::unique_ptr<FaultContext> context;  // destroyed first: its endpoints refer to the exchange's links
  transport::Context* below = nullptr;
  std::vector<PendingOperation> operations;
};

struct FaultWorld::Reducer {
  reducer::SessionPlan plan;
  std::unique_ptr<reducer::LaneSession> session;
  std::unique_ptr<reducer::Lane> lane;
  transport::Context* below = nullptr;  // what the fault context wraps: connections are made there
};

FaultWorld::FaultWorld(const WorldOptions& options)
    : options_(options), network_(transport::inproc::make_network()), reasons_(options.ranks, Errc::kOk) {
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
        transport::fault::make_context(std::move(near_below),
                                       {.seed = options.seed * 1000 + i, .rules = options.reducer_faults}),
        nullptr, reducer::LaneOptions{});
    (void)r->lane->do_work(now_);
    reducers_.push_back(std::move(r));
  }
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    auto w = std::make_unique<Worker>(rank, *this);
    w->table = std::make_unique<engine::OpTable>(options.reducers, options.slot_bytes);
    engine::Exchange::Options o{.view_hash = 5,
                                .slot_bytes = options.slot_bytes,
                                .incarnation = 9,
                                .rank = rank,
                                .placement = wire::placement_table(view),
                                .links = {}};
    for (const auto& r : reducers_) o.links.push_back({.handle = r->plan.handle, .slots = options.slots});
    w->exchange = std::move(*engine::Exchange::create(std::move(o), *w->table, *w));
    auto far_below = network_->make_context();
    w->below = far_below.get();
    w->context = transport::fault::make_context(
        std::move(far_below), {.seed = options.seed * 7919 + rank, .rules = options.worker_faults});
    for (uint32_t i = 0; i < options.reducers; ++i) {
      Reducer& r = *reducers_[i];
      auto& lane_faults = static_cast<FaultContext&>(r.lane->context());
      const auto lane_options = r.lane->endpoint_options(r.plan);
      const auto link_options = w->exchange->endpoint_options(i);
      transport::EndpointOptions both = lane_options;
      both.send_queue = std::max(lane_options.send_queue, link_options.send_queue);
      both.max_payload = std::max(lane_options.max_payload, link_options.max_payload);
      transport::Handler& near_handler = lane_faults.wrap(r.session->link(rank));
      transport::Handler& far_handler = w->context->wrap(w->exchange->link(i));
      auto [near_end, far_end] = network_->connect(*r.below, near_handler, *w->below, far_handler, both);
      r.lane->attach(*r.session, rank, *lane_faults.bind(near_handler, near_end, both));
      w->exchange->link(i).bind(*w->context->bind(far_handler, far_end, both));
    }
    (void)w->exchange->begin();
    workers_.push_back(std::move(w));
  }
  open_operations();
}

FaultWorld::~FaultWorld() {
  for (auto& w : workers_) w->context.reset();
  for (auto& r : reducers_) r->lane.reset();
}

// The same operations on every rank, sizes and values from the seed; whole numbers, so that sums are exact.
void FaultWorld::open_operations() {
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
    for (PendingOperation& op : w->operations) {  // the vector has stopped moving
      op.index = *w->table->open({.send = reinterpret_cast<const std::byte*>(op.send.data()),
                                  .recv = reinterpret_cast<std::byte*>(op.recv.data()),
                                  .count = op.send.size()});
      w->exchange->issue(op.index);
    }
  }
}

void FaultWorld::turn() {
  now_ += 50 * kMicrosecond;
  for (auto& w : workers_) {
    (void)w->exchange->put_chunks(kMiB);
    (void)w->context->poll(now_, kMiB);
    if (w->exchange->drained()) w->exchange->give_up();
  }
  for (auto& r : reducers_) (void)r->lane->do_work(now_);
  play_conductor();
}

void FaultWorld::play_conductor() {
  for (auto& r : reducers_) {
    for (reducer::LaneEvent e; r->lane->poll_event(e);) {
      if (e.kind == reducer::LaneEvent::Kind::kClosed || e.kind == reducer::LaneEvent::Kind::kFailed)
        end_session();
    }
  }
}

void FaultWorld::end_session() {
  if (std::exchange(session_over_, true)) return;
  wire::Abort abort;
  abort.code = Errc::kPeerLost;
  abort.text = "a rank was lost";
  for (auto& r : reducers_) {
    r->session->set_ending(wire::encode_body(abort));
    (void)r->lane->command({.kind = reducer::LaneCommand::Kind::kEnd, .session = r->session.get()});
  }
}

bool FaultWorld::run(uint64_t turns) {
  const auto all_ended = [this] {
    return std::ranges::all_of(workers_, [](const auto& w) { return w->table->open_count() == 0; });
  };
  for (uint64_t t = 0; t < turns; ++t) {
    if (all_ended()) return true;
    turn();
  }
  return false;
}

FaultWorld::Outcome FaultWorld::outcome() const {
  Outcome o;
  for (const auto& w : workers_) {
    for (const PendingOperation& op : w->operations) {
      if ((*w->table)[op.index].status != Errc::kOk) {
        ++o.failed;
      } else {
        ++(op.recv == op.expected ? o.right : o.wrong);
      }
    }
  }
  return o;
}

transport::fault::FaultCounters FaultWorld::faults() const {
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
