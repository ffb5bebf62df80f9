// What the versions of ncclTuner share. Always success: NCCL passes an error on to the application, whatever
// its header says.
#pragma once

#include <memory>

#include "nccl_plugin/abi/guard.h"
#include "nccl_plugin/abi/net_entries.h"
#include "nccl_plugin/tuner/tuner.h"

namespace sluice::nccl::abi::tuner_entry {

[[nodiscard]] inline const char* name() noexcept {
  return net_entry::name();
}

// Without memory for a context the tuner has nothing to say, which is no error.
inline Result begin(size_t ranks, size_t nodes, Logger logger, void** context) noexcept {
  *context = nullptr;
  (void)guarded("tuner init", [&] {
    set_logger(logger);
    *context = std::make_unique<tuner::Tuner>(ranks, nodes).release();
    return kSuccess;
  });
  return kSuccess;
}

// `table` is a matrix, whatever its type says.
inline Result price(void* context, int function, size_t bytes, float** table, int algorithms,
                    int protocols) noexcept {
  if (context != nullptr) {
    static_cast<tuner::Tuner*>(context)->price(function, bytes, reinterpret_cast<float*>(table), algorithms,
                                               protocols);
  }
  return kSuccess;
}

inline Result choose(void* context, int function, size_t bytes, bool collnet, int* algorithm,
                     int* protocol) noexcept {
  if (context != nullptr)
    static_cast<tuner::Tuner*>(context)->choose(function, bytes, collnet, algorithm, protocol);
  return kSuccess;
}

inline Result chunk_size(void* context, int function, size_t bytes, int algorithm, int protocol, int channels,
                         size_t* chunk) noexcept {
  if (context != nullptr && protocol == tuner::kSimple) {
    *chunk = static_cast<tuner::Tuner*>(context)->chunk_bytes(function, bytes, algorithm, channels, *chunk);
  }
  return kSuccess;
}

inline Result end(void* context) noexcept {
  delete static_cast<tuner::Tuner*>(context);
  return kSuccess;
}

}  // namespace sluice::nccl::abi::tuner_entry
