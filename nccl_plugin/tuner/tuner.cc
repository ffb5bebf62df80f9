#include "nccl_plugin/tuner/tuner.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "core/units.h"
#include "nccl_plugin/host/ledger.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/offer.h"
#include "nccl_plugin/host/stats_file.h"

namespace sluice::nccl::tuner {
namespace {

const char* from_environment(const char* name) {
  return std::getenv(name);
}

bool has_collnet(const float* table, int algorithms, int protocols) noexcept {
  if (protocols <= kSimple || algorithms <= kCollNetChain) return false;
  return table[kCollNetDirect * protocols + kSimple] >= 0 || table[kCollNetChain * protocols + kSimple] >= 0;
}

}  // namespace

const char* likely_cause(size_t ranks, size_t nodes, const char* (*environment)(const char*)) noexcept {
  const auto value = [environment](const char* name) {
    const char* v = environment(name);
    return v != nullptr ? v : "";
  };
  if (nodes < 2) return "one node: nothing goes over the network";
  if (std::strcmp(value("NCCL_COLLNET_ENABLE"), "1") != 0) {
    return "NCCL_COLLNET_ENABLE=1 is not set; put it into /etc/nccl.conf (sluice install --nccl-conf) or the "
           "environment";
  }
  if (const char* threshold = value("NCCL_COLLNET_NODE_THRESHOLD");
      *threshold != '\0' && std::strtoull(threshold, nullptr, 10) > nodes) {
    return "fewer nodes than NCCL_COLLNET_NODE_THRESHOLD";
  }
  if (const char* protocols = value("NCCL_PROTO");
      *protocols != '\0' && std::strstr(protocols, "imple") == nullptr) {
    return "NCCL_PROTO leaves out Simple, the only protocol that CollNet has";
  }
  if (ranks > 8 * nodes) return "more than 8 GPUs on a node: NCCL has no CollNet there";
  return "NCCL has no CollNet for this communicator: a communicator made by ncclCommSplit without shared "
         "resources, an operator or a "
         "type that is not taken, a rank without the plugin, or a topology without a way to the network";
}

Tuner::Verdict Tuner::verdict(bool collnet) const {
  const Settings& s = settings();
  const Ledger& l = ledger();
  const auto off = [](std::string why) { return Verdict{.on = false, .words = std::move(why)}; };
  const std::string nodes = std::to_string(nodes_);
  if (collnet && s.offload == OffloadPolicy::kNever) return off("SLUICE_OFFLOAD=never");
  if (collnet && s.offload == OffloadPolicy::kAuto && nodes_ < s.min_nodes)
    return off(nodes + " nodes: nothing is gained below " + std::to_string(s.min_nodes) +
               ", SLUICE_MIN_NODES");
  if (collnet && s.offload == OffloadPolicy::kAuto &&
      !pool_is_wide_enough({.nodes = nodes_, .ranks = ranks_}, s.pool_size())) {
    return off(std::to_string(s.pool_size()) + " reducers are too few for " + nodes +
               " nodes: a ring is faster unless their links are; SLUICE_OFFLOAD=always overrides");
  }
  if (collnet) {
    return {.on = true,
            .words = s.offload == OffloadPolicy::kAlways ? "any size"
                                                         : std::to_string(s.min_bytes / kKiB) + " KiB"};
  }
  if (!offer().why.empty()) return off(offer().why);
  if (l.failures() > 0 && l.connections() == 0) return off(l.last_failure());
  return off(likely_cause(ranks_, nodes_, &from_environment));
}

void Tuner::tell_once(bool collnet) noexcept {
  if (told_.exchange(true, std::memory_order_relaxed)) return;
  try {
    verdict_ = verdict(collnet);
    if (verdict_.on) {
      info("offload ON %zu reducers tcp, %zu ranks on %zu nodes, allreduces of %s and more",
           settings().pool_size(), ranks_, nodes_, verdict_.words.c_str());
    } else if (settings().offload == OffloadPolicy::kNever && collnet) {
      info("offload OFF (%s), %zu ranks on %zu nodes", verdict_.words.c_str(), ranks_, nodes_);
    } else {
      info("offload OFF (%s)", verdict_.words.c_str());
    }
  } catch (const std::exception&) {  // a line of the log is not worth the job
  }
}

void Tuner::asked(uint64_t bytes, bool offload) noexcept {
  ledger().asked(bytes, offload);
  asked_ += 1;
  asked_bytes_ += bytes;
  if (offload) wanted_bytes_ += bytes;
}

Tuner::~Tuner() {
  if (!has_stats_file()) return;
  try {
    StatsLine line("communicator");
    line.number("ranks", ranks_).number("nodes", nodes_).number("reducers", settings().pool_size());
    line.number("allreduces", asked_)
        .number("allreduce_bytes", asked_bytes_)
        .number("offload_bytes", wanted_bytes_);
    line.truth("offload", verdict_.on);
    if (!verdict_.on) line.text("why_not", asked_ == 0 ? "no allreduce was asked for" : verdict_.words);
    append_stats(line);
  } catch (const std::exception&) {  // out of memory for a line of statistics
  }
}

void Tuner::price(int function, uint64_t bytes, float* table, int algorithms, int protocols) noexcept {
  const Question q{.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_};
  const bool collnet = has_collnet(table, algorithms, protocols);
  const bool chosen = tuner::price(q, settings(), table, algorithms, protocols);
  if (function != kAllReduce) return;
  asked(bytes, chosen);
  tell_once(collnet);
}

void Tuner::choose(int function, uint64_t bytes, bool collnet, int* algorithm, int* protocol) noexcept {
  if (function != kAllReduce) return;
  const Question q{.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_};
  const bool chosen = collnet && wants_offload(q, settings());
  asked(bytes, chosen);
  tell_once(collnet);
  if (!collnet) return;
  if (chosen) {
    *algorithm = kCollNetChain;
    *protocol = kSimple;
  } else if (nodes_ > 1) {
    // NCCL prices the chain below the ring almost everywhere, and here nothing can be ruled out: name what it
    // would take without CollNet.
    *algorithm = bytes <= 64 * kKiB ? kTree : kRing;
    *protocol = bytes <= 512 * kKiB ? kLL : kSimple;
  }
}

size_t Tuner::chunk_bytes(int function, uint64_t bytes, int algorithm, int channels,
                          size_t wanted) const noexcept {
  return tuner::chunk_bytes({.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_},
                            algorithm, channels, wanted);
}

}  // namespace sluice::nccl::tuner
