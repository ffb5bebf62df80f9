// The hot core of the worker: places the chunks of the session's operations on its lane connections, keeps
// each connection's window full, and brings the results home. Knows transport endpoints only, no sockets, no
// threads, no clock of its own.
//
// Everything here runs on one thread, the driver (whoever polls the transport context). Per frame: no
// allocation, lock or system call, but for one question for losses every 512 KiB that a connection has sent
// (transport/loss_watch.h). The first breach, loss or ABORT ends the whole exchange: it tells its
// listener why, closes every link, and once the transport has let go of the last buffer, give_up() ends the
// open operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/result.h"
#include "gpu_client/engine/ending.h"
#include "gpu_client/engine/link.h"
#include "gpu_client/engine/op_table.h"
#include "gpu_client/engine/pace.h"
#include "gpu_client/engine/stragglers.h"
#include "transport/transport.h"

namespace sluice::engine {

class Exchange {
 public:
  struct LinkOptions {
    uint32_t handle = 0;  // the session's name at this link's reducer
    uint32_t slots = 0;   // W, granted in ATTACHED; at most 65535
  };
  struct Options {
    uint16_t view_version = 0;
    uint32_t view_hash = 0;  // low half
    uint32_t slot_bytes = 0;
    uint64_t incarnation = 0;
    bool payload_crc = true;
    bool keep_results = true;  // false: no rank can be given a result again
    bool paced = true;         // no more under way than pays (pace.h); false: always W
    // Links are served from this one on, so that ranks do not all begin at the first reducer.
    uint32_t rank = 0;
    uint32_t ranks = 0;               // of the session; stragglers of others are not counted
    std::vector<uint32_t> placement;  // wire::placement_table: indices into `links`
    std::vector<LinkOptions> links;
  };

  class Listener {
   public:
    // Driver thread, once. Called before the links are closed, so that an ABORT can be sent ahead of the
    // broken connections.
    virtual void on_exchange_ended(const Ending& ending) noexcept = 0;
    // A lane connection was lost without a word. The listener decides when that ends the session: the reducer
    // may be saying why on its control connection. `reason` as in Handler::on_closed.
    virtual void on_link_lost(uint32_t link, Errc reason) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  // `table` and `listener` outlive the exchange. kMemoryLimit when the result ring can't be had.
  [[nodiscard]] static Result<std::unique_ptr<Exchange>> create(Options options, OpTable& table,
                                                                Listener& listener);
  Exchange(const Exchange&) = delete;

  [[nodiscard]] Link& link(uint32_t i) noexcept { return links_[i]; }
  [[nodiscard]] uint32_t link_count() const noexcept { return static_cast<uint32_t>(links_.size()); }
  // What the endpoint of link i must be able to queue and receive.
  [[nodiscard]] transport::EndpointOptions endpoint_options(uint32_t i) const noexcept;
  // Puts COMMIT on every link. All are bound.
  [[nodiscard]] Status begin() noexcept;

  // The time of what follows, for the pace.
  void set_now(Nanos now) noexcept { now_ = now; }

  // Operations in the order in which they were opened in the table; chunk_count > 0.
  void issue(uint32_t op) noexcept;
  // Puts chunks, one per link and round, until nothing can go or about `budget` payload bytes have been put.
  // Bytes put.
  size_t put_chunks(size_t budget) noexcept;

  // Ends the exchange: closes every link. Later calls do nothing.
  void end(Errc code) noexcept;
  [[nodiscard]] bool ended() const noexcept { return ending_.code != Errc::kOk; }
  // Ended, and the transport holds no buffer any more.
  [[nodiscard]] bool drained() const noexcept { return ended() && open_links_ == 0; }
  // Ends every open operation with the status of the ending. Only when drained.
  void give_up() noexcept;

  // The open operation that was issued first, or kNoOperation.
  [[nodiscard]] uint32_t oldest() const noexcept { return first_open_; }
  // Operations that ended with kOk.
  [[nodiscard]] uint64_t operations_done() const noexcept { return operations_done_; }
  [[nodiscard]] transport::EndpointCounters counters() const noexcept;
  // Bytes of results that were received in the ring and copied (link.h).
  [[nodiscard]] uint64_t result_bytes_copied() const noexcept;
  [[nodiscard]] const Stragglers& stragglers() const noexcept { return stragglers_; }

  // For Link.
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] OpTable& table() noexcept { return table_; }
  void chunk_done(uint32_t op) noexcept;
  [[nodiscard]] Pace& pace() noexcept { return pace_; }
  void result_came(uint32_t link, bool losses, uint64_t bytes) noexcept;
  // Packets of some connection were lost. Told on the first one, whose results are the clock of the pace: so
  // every rank hears of it at the same time.
  void losses_seen() noexcept;
  void came_last(const wire::ResultInfo& info) noexcept { stragglers_.note(info); }
  void told_abort(uint32_t link, std::span<const std::byte> body) noexcept;
  void link_closed(uint32_t link, Errc reason) noexcept;
  // Ends the exchange with words in printf's manner; returns `code`.
  __attribute__((format(printf, 4, 5))) Errc breach(uint32_t link, Errc code, const char* format,
                                                    ...) noexcept;

 private:
  Exchange(Options options, OpTable& table, Listener& listener, Arena ring);
  void close_links() noexcept;

  const Options options_;
  OpTable& table_;
  Listener& listener_;
  const Arena ring_;
  std::deque<Link> links_;            // links do not move
  std::vector<uint64_t> last_issue_;  // per link: number of the last issue() that reached it
  uint64_t issues_ = 0;
  uint32_t next_link_ = 0;  // where the next round begins
  uint32_t open_links_ = 0;
  uint32_t first_open_ = kNoOperation, last_open_ = kNoOperation;
  uint64_t operations_done_ = 0;
  Nanos now_ = 0;
  Pace pace_;
  Stragglers stragglers_;
  Ending ending_;
};

}  // namespace sluice::engine
