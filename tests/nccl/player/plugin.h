// The plugin in this process, begun for each communicator as NCCL's comm-init thread does.
#pragma once

#include <memory>
#include <mutex>

#include "tests/nccl/player/collnet.h"
#include "tests/nccl/player/job.h"
#include "tests/nccl/player/net.h"

namespace player {

// What init gave, for one communicator.
struct Contexts {
  void* net = nullptr;
  void* collnet = nullptr;
};

class Plugin {
 public:
  // Opens the file. `with_collnet`: as NCCL, only where the version has one.
  Plugin(const Options& options, bool with_collnet);

  // net init, devices; CollNet init, devices; properties of both, which must be one list of devices. Any
  // thread, one at a time.
  Contexts begin(uint64_t comm_id);
  void end(const Contexts& contexts);

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
  bool begun_ = false;
};

}  // namespace player
