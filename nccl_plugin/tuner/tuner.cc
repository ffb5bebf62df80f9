#include "nccl_plugin/tuner/tuner.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "core/units.h"
#include "nccl_plugin/host/ledger.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/offer.h"

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

void Tuner::tell_once(bool collnet) noexcept {
  if (told_.exchange(true, std::memory_order_relaxed)) return;
  try {
    const Settings& s = settings();
    const Ledger& l = ledger();
    if (collnet && s.offload == OffloadPolicy::kNever) {
      info("offload OFF (SLUICE_OFFLOAD=never), %zu ranks on %zu nodes", ranks_, nodes_);
    } else if (collnet && s.offload == OffloadPolicy::kAuto && nodes_ < s.min_nodes) {
      info("offload OFF (%zu nodes: nothing is gained below %u, SLUICE_MIN_NODES)", nodes_, s.min_nodes);
    } else if (collnet && s.offload == OffloadPolicy::kAuto &&
               !pool_is_wide_enough({.nodes = nodes_, .ranks = ranks_}, s.pool_size())) {
      info(
          "offload OFF (%zu reducers are too few for %zu nodes: a ring is faster unless their links are; "
          "SLUICE_OFFLOAD=always overrides)",
          s.pool_size(), nodes_);
    } else if (collnet) {
      info("offload ON %zu reducers tcp, %zu ranks on %zu nodes, allreduces of %s and more", s.pool_size(),
           ranks_, nodes_,
           s.offload == OffloadPolicy::kAlways ? "any size"
                                               : (std::to_string(s.min_bytes / kKiB) + " KiB").c_str());
    } else if (!offer().why.empty()) {
      info("offload OFF (%s)", offer().why.c_str());
    } else if (l.failures() > 0 && l.connections() == 0) {
      info("offload OFF (%s)", l.last_failure().c_str());
    } else {
      info("offload OFF (%s)", likely_cause(ranks_, nodes_, &from_environment));
    }
  } catch (const std::exception&) {  // a line of the log is not worth the job
  }
}

void Tuner::price(int function, uint64_t bytes, float* table, int algorithms, int protocols) noexcept {
  const Question q{.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_};
  const bool collnet = has_collnet(table, algorithms, protocols);
  const bool chosen = tuner::price(q, settings(), table, algorithms, protocols);
  if (function != kAllReduce) return;
  ledger().asked(bytes, chosen);
  tell_once(collnet);
}

void Tuner::choose(int function, uint64_t bytes, bool collnet, int* algorithm, int* protocol) noexcept {
  if (function != kAllReduce) return;
  const Question q{.function = function, .bytes = bytes, .nodes = nodes_, .ranks = ranks_};
  const bool chosen = collnet && wants_offload(q, settings());
  ledger().asked(bytes, chosen);
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
