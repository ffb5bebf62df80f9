// Class Tuner calls the tuner table of a plugin, independent of its version.
#pragma once

#include <memory>

#include "tests/nccl/player/library.h"
#include "tests/nccl/player/nccl_types.h"

namespace player {

using CostTable = float[kAlgorithms][kProtocols];

class Tuner {
 public:
  virtual ~Tuner() = default;

  virtual Result init(uint64_t comm_id, size_t ranks, size_t nodes, void** context) = 0;
  // From v3 on: the plugin changes `costs`.
  virtual Result tune(void* context, Function function, size_t bytes, CostTable& costs, int* channels) = 0;
  // v2 only: the plugin chooses an algorithm and a protocol; -1 in both is no choice.
  virtual Result choose(void* context, Function function, size_t bytes, bool collnet, int* algorithm,
                        int* protocol, int* channels) = 0;
  // Whether to call choose() instead of tune().
  [[nodiscard]] virtual bool is_choice() const = 0;
  // From v6 on, and optional there; otherwise *chunk does not change.
  virtual Result chunk_size(void* context, Function function, size_t bytes, int algorithm, int protocol,
                            int channels, size_t* chunk) = 0;
  virtual Result end(void* context) = 0;
};

inline constexpr int kFirstTunerAbi = 2, kLastTunerAbi = 7;
std::unique_ptr<Tuner> load_tuner(const Library& library, int abi);

}  // namespace player
