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
  // kIfOffered: CollNet may be missing from the version, or have no devices, and then is left alone, as NCCL
  // does.
  enum class Want { kCollNet, kIfOffered };
  // Opens the file.
  Plugin(const Options& options, Want want);

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
  const Want want_;
  bool begun_ = false;
};

}  // namespace player
