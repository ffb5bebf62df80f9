// The entry points of ncclTuner, with an overload for each signature that a version has. TunerTable selects
// them. NCCL passes an error to the application, in spite of its header, so they return success, with one
// exception: where the job cannot go on and NCCL does not notice otherwise.
#pragma once

#include <memory>

#include "nccl_plugin/abi/guard.h"
#include "nccl_plugin/host/nccl_release.h"
#include "nccl_plugin/tuner/tuner.h"

namespace sluice::nccl::abi::tuner_entry {

// Without memory for a context the tuner does nothing, which is not an error.
inline Result init(void** context, uint64_t comm_id, size_t ranks, size_t nodes, Logger logger,
                   void* /*nvl_domains*/, void* /*constants*/) noexcept {
  *context = nullptr;
  (void)guarded("tuner init", [&] {
    set_logger(logger);
    record_release(logger);
    *context = std::make_unique<tuner::Tuner>(ranks, nodes, comm_id).release();
    return kSuccess;
  });
  return kSuccess;
}
inline Result init(size_t ranks, size_t nodes, Logger logger, void** context) noexcept {
  return init(context, 0, ranks, nodes, logger, nullptr, nullptr);
}

// The result of getCollInfo.
inline Result outcome(const tuner::Tuner& tuner) noexcept {
  return tuner.must_fail() ? kRemoteError : kSuccess;
}

inline Result get_coll_info(void* context, int function, size_t bytes, int collnet_support, int /*nvls*/,
                            int /*pipelined*/, int* algorithm, int* protocol, int* /*channels*/) noexcept {
  if (context == nullptr) return kSuccess;
  auto& tuner = *static_cast<tuner::Tuner*>(context);
  tuner.choose_algorithm(function, bytes, collnet_support != 0, algorithm, protocol);
  return outcome(tuner);
}
// `table` points to a matrix of floats, in spite of its type.
inline Result get_coll_info(void* context, int function, size_t bytes, int /*pipelined*/, float** table,
                            int algorithms, int protocols, int* /*channels*/) noexcept {
  if (context == nullptr) return kSuccess;
  auto& tuner = *static_cast<tuner::Tuner*>(context);
  tuner.adjust_costs(function, bytes, reinterpret_cast<float*>(table), algorithms, protocols);
  return outcome(tuner);
}
inline Result get_coll_info(void* context, int function, size_t bytes, int pipelined, float** table,
                            int algorithms, int protocols, int /*registered*/, int* channels) noexcept {
  return get_coll_info(context, function, bytes, pipelined, table, algorithms, protocols, channels);
}

inline Result chunk_size(void* context, int function, size_t bytes, int algorithm, int protocol, int channels,
                         size_t* chunk) noexcept {
  if (context != nullptr && protocol == tuner::kSimple) {
    *chunk = static_cast<tuner::Tuner*>(context)->chunk_bytes(function, bytes, algorithm, channels, *chunk);
  }
  return kSuccess;
}

inline Result finalize(void* context) noexcept {
  delete static_cast<tuner::Tuner*>(context);
  return kSuccess;
}

}  // namespace sluice::nccl::abi::tuner_entry
