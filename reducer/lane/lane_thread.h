// Class LaneThread runs the loop of a lane on a separate thread and idles by an IdleStrategy.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "reducer/lane/lane.h"
#include "reducer/reducer.h"

namespace sluice::reducer {

class LaneThread {
 public:
  LaneThread(std::unique_ptr<Lane> lane, IdleStrategy idle, Nanos spin);
  ~LaneThread();  // stops and joins

  void start();
  void stop() noexcept;
  [[nodiscard]] Lane& lane() noexcept { return *lane_; }
  [[nodiscard]] const Lane& lane() const noexcept { return *lane_; }

 private:
  void run() noexcept;

  std::unique_ptr<Lane> lane_;
  const IdleStrategy idle_;
  const Nanos spin_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::reducer
