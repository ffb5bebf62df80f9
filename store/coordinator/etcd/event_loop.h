// Class EventLoop runs asynchronous operations for a thread that waits for one of them, until a deadline.
//
// One thread at a time.
#pragma once

#include "core/units.h"
#include "store/coordinator/etcd/beast.h"

namespace sluice::store::etcd {

class EventLoop {
 public:
  [[nodiscard]] asio::io_context& io() noexcept { return io_; }
  // Runs handlers until one sets `done` or the deadline passes. Returns `done`.
  bool run_until(const bool& done, Nanos deadline);
  // Runs the handlers that are ready.
  void run_ready();

 private:
  asio::io_context io_{1};
};

}  // namespace sluice::store::etcd
