// The entry points that the versions of ncclTuner share. They always return success: NCCL passes an error to
// the application, in spite of its header.
#pragma once

#include <memory>

#include "nccl_plugin/abi/guard.h"
#include "nccl_plugin/abi/net_entries.h"
#include "nccl_plugin/tuner/tuner.h"

namespace sluice::nccl::abi::tuner_entry {

[[nodiscard]] inline const char* name() noexcept {
  return net_entry::name();
}

// Without memory for a context the tuner does nothing, which is not an error.
inline Result init(size_t ranks, size_t nodes, Logger logger, void** context) noexcept {
  *context = nullptr;
  (void)guarded("tuner init", [&] {
    set_logger(logger);
    *context = std::make_unique<tuner::Tuner>(ranks, nodes).release();
    return kSuccess;
  });
  return kSuccess;
}

// `table` points to a matrix of floats, in spite of its type.
inline Result get_costs(void* context, int function, size_t bytes, float** table, int algorithms,
                        int protocols) noexcept {
  if (context != nullptr) {
    static_cast<tuner::Tuner*>(context)->adjust_costs(function, bytes, reinterpret_cast<float*>(table),
                                                      algorithms, protocols);
  }
  return kSuccess;
}

inline Result choose(void* context, int function, size_t bytes, bool collnet, int* algorithm,
                     int* protocol) noexcept {
  if (context != nullptr)
    static_cast<tuner::Tuner*>(context)->choose_algorithm(function, bytes, collnet, algorithm, protocol);
  return kSuccess;
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
