#include "nccl_plugin/tuner/tuner.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <string>

#include "config/nccl_releases.h"
#include "nccl_plugin/host/capabilities.h"
#include "nccl_plugin/host/communicator_registry.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/nccl_release.h"
#include "nccl_plugin/host/process_stats.h"
#include "nccl_plugin/host/stats_file.h"

namespace sluice::nccl::tuner {
namespace {

bool has_algorithm(int algorithm, const float* table, int algorithms, int protocols) noexcept {
  return protocols > kSimple && algorithms > algorithm && table[algorithm * protocols + kSimple] >= 0;
}

// Why no communicator of this process could join the reducers; empty if one could, or none tried.
std::string refusal() {
  const ProcessStats& stats = process_stats();
  return stats.failures() > 0 && stats.connections() == 0 ? stats.last_failure() : std::string();
}

}  // namespace

Tuner::Tuner(size_t ranks, size_t nodes, uint64_t comm_id)
    : ranks_(ranks),
      nodes_(nodes),
      comm_id_(comm_id),
      avoid_chain_(chain_may_crash(ranks, nodes, nccl_release(), capabilities().collnet.size())),
      range_(offload_range({.nodes = nodes, .ranks = ranks}, settings())),
      failures_before_(communicator_registry().failures()) {
  OffloadFacts facts;
  facts.ranks = ranks;
  facts.nodes = nodes;
  facts.refusal = refusal();  // NCCL connects CollNet before it creates the tuner
  if (auto verdict = decide_early(facts, settings(), capabilities())) {
    decided_.store(true, std::memory_order_relaxed);
    set_verdict(std::move(*verdict));
  }
  communicator_registry().add_tuner();
}

void Tuner::decide_once(bool collnet, bool direct) noexcept {
  if (decided_.exchange(true, std::memory_order_relaxed)) return;
  try {
    OffloadFacts facts;
    facts.ranks = ranks_;
    facts.nodes = nodes_;
    facts.release = nccl_release();
    facts.has_collnet = collnet;
    facts.has_direct = direct;
    facts.refusal = refusal();
    const bool child_may_lose_collnet =
        facts.release == 0 || config::has_defect(facts.release, config::NcclDefect::kChildLosesCollNet);
    if (const auto parent = communicator_registry().find(nodes_);
        parent && !collnet && child_may_lose_collnet) {
      facts.has_parent = true;
      facts.parent_comm_id = parent->comm_id;
    }
    set_verdict(decide(facts, settings(), capabilities(), &read_variable));
  } catch (const std::exception&) {  // a missing log line must not fail the job
  }
}

void Tuner::set_verdict(Verdict verdict) noexcept {
  verdict_ = std::move(verdict);
  std::array<char, 32> id{};
  if (comm_id_ != 0) std::snprintf(id.data(), id.size(), ", commId 0x%" PRIx64, comm_id_);
  if (!verdict_.is_on()) {
    info("offload OFF (%s), %zu ranks on %zu node%s%s", verdict_.text.c_str(), ranks_, nodes_,
         nodes_ == 1 ? "" : "s", id.data());
    return;
  }
  try {
    std::string transport;
    if (const auto session = communicator_registry().find(nodes_)) transport = session->transport;
    // The tuner of a rank without a session does not know the transport.
    communicator_registry().add({.owner = this, .nodes = nodes_, .comm_id = comm_id_, .transport = {}});
    const char* const over = transport.empty() ? "" : range_.colocated_share > 0 ? ", over " : " over ";
    info("offload ON %s%s%s, %zu ranks on %zu nodes, allreduces of %s%s",
         reducers_text(settings(), range_).c_str(), over, transport.c_str(), ranks_, nodes_,
         verdict_.text.c_str(), id.data());
  } catch (const std::exception&) {  // a missing log line must not fail the job
  }
}

bool Tuner::must_fail() const noexcept {
  return communicator_registry().has_failure(nodes_, failures_before_) &&
         config::has_defect(nccl_release(), config::NcclDefect::kErrorsDropped);
}

void Tuner::count_allreduce(uint64_t bytes, bool offload) noexcept {
  process_stats().add_allreduce(bytes, offload);
  allreduces_ += 1;
  allreduce_bytes_ += bytes;
  if (offload) offload_bytes_ += bytes;
}

Tuner::~Tuner() {
  communicator_registry().remove_tuner();
  communicator_registry().remove(this);
  try {
    if (!decided_.load(std::memory_order_relaxed))
      set_verdict({.reason = OffReason::kNoAllreduce, .text = "the communicator ran no allreduce"});
    if (!has_stats_file()) return;
    StatsLine line("communicator");
    line.number("ranks", ranks_).number("nodes", nodes_).number("reducers", settings().pool_size());
    line.real("colocated_share", range_.colocated_share);
    line.number("allreduces", allreduces_)
        .number("allreduce_bytes", allreduce_bytes_)
        .number("offload_bytes", offload_bytes_);
    line.boolean("offload", verdict_.is_on());
    if (!verdict_.is_on()) line.text("reason", to_string(verdict_.reason)).text("why_not", verdict_.text);
    append_stats(line);
  } catch (const std::exception&) {  // out of memory: the line is lost
  }
}

void Tuner::adjust_costs(int function, uint64_t bytes, float* table, int algorithms, int protocols) noexcept {
  const CollectiveQuery q{.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_};
  const bool direct = has_algorithm(kCollNetDirect, table, algorithms, protocols);
  const bool collnet = direct || has_algorithm(kCollNetChain, table, algorithms, protocols);
  if (function == kAllReduce) decide_once(collnet, direct);
  const bool offload = tuner::adjust_costs(q, settings(), range_, table, algorithms, protocols, avoid_chain_);
  if (function == kAllReduce) count_allreduce(bytes, offload);
}

void Tuner::choose_algorithm(int function, uint64_t bytes, bool collnet, int* algorithm,
                             int* protocol) noexcept {
  if (function != kAllReduce) return;
  const CollectiveQuery q{.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_};
  decide_once(collnet, false);
  const bool offload = collnet && should_offload(q, settings(), range_);
  count_allreduce(bytes, offload);
  if (!collnet) return;
  if (offload) {
    *algorithm = kCollNetChain;
    *protocol = kSimple;
  } else if (nodes_ > 1) {
    // NCCL estimates the chain as cheaper than the ring almost everywhere, and v2 cannot exclude an
    // algorithm. So this names the algorithm that NCCL would choose without CollNet.
    *algorithm = bytes <= 64 * kKiB ? kTree : kRing;
    *protocol = bytes <= 512 * kKiB ? kLL : kSimple;
  }
}

size_t Tuner::chunk_bytes(int function, uint64_t bytes, int algorithm, int channels,
                          size_t proposed) const noexcept {
  return tuner::chunk_bytes({.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_},
                            algorithm, channels, proposed);
}

}  // namespace sluice::nccl::tuner
