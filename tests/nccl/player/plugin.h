// Class Plugin owns the loaded plugin of this process and initializes it for each communicator, like NCCL's
// init thread.
#pragma once

#include <memory>
#include <mutex>

#include "tests/nccl/player/collnet.h"
#include "tests/nccl/player/job.h"
#include "tests/nccl/player/net.h"

namespace player {

// The contexts that init returned for one communicator.
struct Contexts {
  void* net = nullptr;
  void* collnet = nullptr;
};

class Plugin {
 public:
  // kIfOffered: CollNet is not used if the ABI version lacks it or if it has no devices, as in NCCL.
  enum class CollNetUse { kRequired, kIfOffered };
  // Loads the file.
  Plugin(const Options& options, CollNetUse collnet_use);

  // Calls init and devices of net and CollNet, and checks that both return the same device list. Any thread.
  Contexts init(uint64_t comm_id);
  void finalize(const Contexts& contexts);

  [[nodiscard]] Net& net() { return *net_; }
  [[nodiscard]] CollNet& collnet() { return *collnet_; }
  [[nodiscard]] const Library& library() const { return library_; }

 private:
  void check_devices();

  std::mutex mutex_;
  const int abi_;
  Library library_;
  std::unique_ptr<Net> net_;
  std::unique_ptr<CollNet> collnet_;
  const CollNetUse collnet_use_;
  bool initialized_ = false;
};

}  // namespace player
