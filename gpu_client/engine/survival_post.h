// A reducer as Survival sees it, by the keeper's index: which links are its, and what is broken. And one that
// is to become that.
#pragma once

#include <sys/eventfd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu_client/engine/membership.h"
#include "gpu_client/engine/mender.h"
#include "gpu_client/engine/survival.h"

namespace sluice::engine {

struct Survival::Post {
  [[nodiscard]] bool has(uint32_t link) const noexcept {
    return link >= first_link && link - first_link < lanes;
  }

  size_t index = 0;
  uint64_t id = 0;
  std::string name;
  config::Endpoint address;
  uint32_t handle = 0;
  uint32_t slots = 0;  // W
  uint32_t first_link = 0;
  uint32_t lanes = 0;
  std::vector<transport::tcp::Socket> waiting_lanes;  // of a newcomer, until the view has it
  std::unique_ptr<Mender> mender;                     // made when it is first needed
  unsigned bad_frames = 0;                            // in a row
  uint64_t broken_lanes = 0;                          // a bit each
  bool broken_control = false;
  bool draining = false;
  bool lost = false;  // suspected, or removed
};

struct Survival::Joining {
  // Ends what it waits for, but not the resolving of a name.
  void interrupt() const noexcept { static_cast<void>(::eventfd_write(interrupted.fd(), 1)); }

  uint64_t reducer = 0;
  Nanos deadline = 0;
  bool given_up = false;               // what comes of it is dropped
  transport::tcp::Socket interrupted;  // eventfd
  std::thread thread;
};

}  // namespace sluice::engine
