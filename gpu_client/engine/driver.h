// One turn of a session: takes submitted operations, puts chunks, polls the transport, looks at deadlines.
// Callable by hand with any clock; who calls it, and how it sleeps, is progress.h's business.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "core/spsc_ring.h"
#include "core/units.h"
#include "gpu_client/engine/exchange.h"
#include "gpu_client/engine/fate.h"

namespace sluice::engine {

class Driver final : public Exchange::Listener {
 public:
  // How long a lost lane connection is not held against its reducer: the reason may be on its way on the
  // control connection, and is the better one to report.
  static constexpr Nanos kLinkGrace = 250 * kMillisecond;

  class Listener {
   public:
    // Driver thread, once, when the session ends by what the driver saw. See Exchange::Listener.
    virtual void on_driver_ended(const Ending& ending) noexcept = 0;
    // Driver thread, in sessions that survive losses only: as of Exchange::Listener.
    virtual void on_link_lost(uint32_t /*link*/, Errc /*reason*/) noexcept {}
    virtual void on_link_resumed(uint32_t /*link*/) noexcept {}

   protected:
    ~Listener() = default;
  };

  // `fate` is watched: once sealed by anybody, the next turn ends the exchange.
  Driver(const Fate& fate, Listener& listener)
      : fate_(fate), listener_(listener), submitted_(OpTable::kCapacity) {}
  // Before the first turn. Both outlive the driver's last turn.
  void attach(Exchange& exchange, transport::Context& context) noexcept;

  // Hands over an operation opened in the table. One thread at a time (the submission lock), any thread.
  // Never full: the ring holds as many as the table.
  void submit(uint32_t op) noexcept;

  // From now on a reducer that closes its lane connections in order, with no operation open, has done with
  // this rank: reducers need not be done at the same moment. Any thread.
  void leave() noexcept { leaving_.store(true, std::memory_order_release); }

  // Has `work` done by the thread that drives, in its next turn: cold work on the exchange, after a loss. The
  // caller wakes the driver. Any thread. After the last turn it is never done.
  void post(std::function<void()> work);

  // The thread that drives. How much was done: 0 means that it may sleep.
  unsigned turn(Nanos now) noexcept;
  // When the next turn is due even if nothing happens; 0: never.
  [[nodiscard]] Nanos next_deadline() const noexcept;
  // Counts turns that ended operations: who waits for one looks again.
  [[nodiscard]] uint64_t endings() const noexcept { return endings_; }

  // The exchange has ended, the transport holds no buffer, every operation has ended. Any thread.
  [[nodiscard]] bool drained() const noexcept { return drained_.load(std::memory_order_acquire); }

  void on_exchange_ended(const Ending& ending) noexcept override { listener_.on_driver_ended(ending); }
  void on_link_lost(uint32_t link, Errc reason) noexcept override;
  void on_link_resumed(uint32_t link) noexcept override { listener_.on_link_resumed(link); }

 private:
  unsigned take_submissions() noexcept;
  unsigned do_posted() noexcept;
  void check_deadlines(Nanos now) noexcept;
  [[nodiscard]] bool harmless(Errc reason) const noexcept;

  const Fate& fate_;
  Listener& listener_;
  Exchange* exchange_ = nullptr;
  transport::Context* context_ = nullptr;
  SpscRing<uint32_t> submitted_;
  std::atomic<bool> any_posted_{false};
  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;
  Nanos now_ = 0;
  Nanos lost_at_ = 0;  // 0: no link was lost
  uint32_t lost_link_ = kNoLink;
  Errc lost_reason_ = Errc::kOk;
  uint64_t operations_seen_ = 0;
  uint64_t endings_ = 0;
  std::atomic<bool> leaving_{false};
  std::atomic<bool> drained_{false};
};

}  // namespace sluice::engine
