// The state of one reducer in Recovery, and of one that is being joined. Private to the sources of Recovery.
#pragma once

#include <sys/eventfd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu_client/engine/join/membership.h"
#include "gpu_client/engine/recovery/reconnector.h"
#include "gpu_client/engine/recovery/recovery.h"

namespace sluice::engine {

struct Recovery::ReducerState {
  // `lane` is an index in ChunkScheduler.
  [[nodiscard]] bool has(uint32_t lane) const noexcept {
    return lane >= first_lane && lane - first_lane < lanes;
  }

  size_t index = 0;  // in HeartbeatMonitor
  uint64_t id = 0;
  std::string name;
  config::Endpoint address;
  uint32_t handle = 0;
  uint32_t slots = 0;       // W
  uint32_t first_lane = 0;  // index of its first lane connection in ChunkScheduler
  uint32_t lanes = 0;
  std::vector<transport::tcp::Socket> new_lanes;  // of an added reducer, until the view has it
  std::unique_ptr<Reconnector> reconnector;       // created when it is first needed
  unsigned bad_frames = 0;                        // connections in a row closed for a malformed frame
  uint64_t broken_lanes = 0;                      // a bit per lane connection
  bool broken_control = false;
  bool draining = false;
  bool lost = false;  // suspected or removed
};

struct Recovery::PendingJoin {
  // Cancels what the thread waits for, except name resolution.
  void interrupt() const noexcept { static_cast<void>(::eventfd_write(interrupt_event.fd(), 1)); }

  uint64_t reducer = 0;
  std::string name;
  Nanos deadline = 0;
  bool abandoned = false;                  // the result is dropped
  transport::tcp::Socket interrupt_event;  // eventfd
  std::thread thread;
};

}  // namespace sluice::engine
