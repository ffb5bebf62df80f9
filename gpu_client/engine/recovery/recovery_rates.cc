// Recovery's part in changing link rates while jobs run: it measures this rank's link and reports changes.
#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/recovery/recovery.h"

namespace sluice::engine {
namespace {

// With fewer ranks the shares do not depend on the rates, or a slow link looks the same from both ends.
constexpr size_t kLeastRanks = 3;
// Payload and frame headers over the bytes on the link: TCP segments in Ethernet frames of 1500 bytes.
constexpr double kGoodput = 0.95;

std::string rate_text(uint64_t rate) {
  const bool is_gbit = rate >= 1'000'000'000;
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), is_gbit ? "%.4g Gbit/s" : "%.4g Mbit/s",
                      static_cast<double>(rate) / (is_gbit ? 1e9 : 1e6));
  return text.data();
}

std::string percent_text(double share) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

}  // namespace

// Every rank decides alike whether rates may change, because all have the same WELCOMEs.
void Recovery::prepare_meter(const Membership& membership) {
  const uint32_t rank = options_.identity.rank;
  if (first_view_.worker_rates.size() < kLeastRanks) return;
  for (const ReducerReservation& reservation : membership.reservations) {
    if ((reservation.features & wire::kFeatureRateChanges) != 0) continue;
    if (rank == 0)
      log_.info("shares do not follow the rates of links: " + reservation.name + " has an older version");
    return;
  }
  require_features(wire::kFeatureRateChanges);
  const auto own = std::ranges::find(first_view_.reducers, rank, &wire::ViewReducer::host_rank);
  if (own == first_view_.reducers.end()) return;
  own_reducer_ = own->id;
  meter_.emplace(static_cast<uint32_t>(first_view_.worker_rates.size()), first_view_.worker_rates[rank]);
  own_rate_ = first_view_.worker_rates[rank];
  own_share_ = share_in_view();
}

double Recovery::share_in_view() const {
  const std::vector<double> shares = wire::reducer_shares(follower_.view());
  for (size_t i = 0; i < shares.size(); ++i) {
    if (follower_.view().reducers[i].id == own_reducer_) return shares[i];
  }
  return 0;
}

void Recovery::sample_link() {
  const uint32_t rank = options_.identity.rank;
  const Nanos now = monotonic_now();
  if (now < next_sample_) return;
  next_sample_ = now + LinkMeter::kInterval;
  const std::vector<wire::RateChange>& changes = follower_.history().rate_changes();
  const auto own = std::ranges::find(changes, rank, &wire::RateChange::rank);
  const bool is_pending = own != changes.end() && own->rate != own_rate_;
  if (is_pending || follower_.is_stopped() || restart_pending_) return meter_->restart();
  if (parts_.scheduler.table().open_count() == 0) return;  // without waking the progress loop

  LinkMeter::Sample sample;
  if (!run_on_loop([&] { sample = take_link_sample(); })) return;
  const auto rate = meter_->add(std::move(sample), own_rate_, own_share_ > 0);
  if (!rate || *rate == own_rate_) return;
  if (!follower_.change_rate(rank, *rate)) {
    log_.warn("shares do not follow the rates of links any more: the session has had too many changes");
    return meter_.reset();
  }
  stall_reason_ = "this rank's link has another rate";
  send_known_changes();
}

// Thread of the progress loop. A result of this rank's own reducer arrives here without using the link, and
// goes to every other rank over the link.
LinkMeter::Sample Recovery::take_link_sample() {
  ChunkScheduler& scheduler = parts_.scheduler;
  const uint64_t others = first_view_.worker_rates.size() - 1;
  LinkMeter::Sample sample;
  sample.busy = scheduler.busy_time(monotonic_now());
  uint64_t sent = 0;
  for (const ReducerState& r : reducers_) {
    for (uint32_t lane = r.first_lane; lane < r.first_lane + r.lanes; ++lane) {
      const LaneConnection& connection = scheduler.lane(lane);
      const transport::EndpointCounters counters = connection.counters();
      sample.results += counters.payload_bytes_in;
      sent += r.id == own_reducer_ ? others * counters.payload_bytes_in : counters.wire_bytes_out;
      sample.connections.push_back({.bytes = r.id == own_reducer_ ? 0 : counters.wire_bytes_out,
                                    .network_limited = connection.network_limited_time()});
    }
  }
  sample.bytes = static_cast<uint64_t>(static_cast<double>(sent) / kGoodput);
  const StragglerStats::Waits waits = scheduler.straggler_stats().waits_for(options_.identity.rank);
  sample.own_wait_us = waits.rank_us;
  sample.all_wait_us = waits.all_us;
  return sample;
}

// After a view change. Every rank reports its own link only.
void Recovery::update_rate() {
  const uint32_t rank = options_.identity.rank;
  const uint64_t rate_before = std::exchange(own_rate_, follower_.view().worker_rates[rank]);
  const double share_before = std::exchange(own_share_, share_in_view());
  meter_->restart();
  if (own_rate_ == rate_before) return;
  blackbox_.record(blackbox::EventKind::kLinkRateChanged, {.a = own_rate_, .b = rate_before});
  log_.warn("rank " + std::to_string(rank) + "'s link: " + rate_text(own_rate_) + " instead of " +
            rate_text(rate_before) + "; its share goes from " + percent_text(share_before) + " to " +
            percent_text(own_share_));
}

}  // namespace sluice::engine
