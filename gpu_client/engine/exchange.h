// The hot core of the worker: places the chunks of the session's operations on its lane connections, keeps
// each connection's window full, and brings the results home. Knows transport endpoints only, no sockets, no
// threads, no clock of its own.
//
// Everything here runs on one thread, the driver (whoever polls the transport context). Per frame: no
// allocation, lock or system call, but for one question for losses every 512 KiB that a connection has sent
// (transport/loss_watch.h). The first breach, loss or ABORT ends the whole exchange: it tells its
// listener why, closes every link, and once the transport has let go of the last buffer, give_up() ends the
// open operations. In a session that survives losses a breach ends only its connection; the listener has it
// opened again, or has the view changed: stop(), restart() (PROTOCOL.md section 11).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "gpu_client/engine/chunk_ring.h"
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
    uint64_t view_hash = 0;  // of the first view
    uint32_t slot_bytes = 0;
    uint64_t incarnation = 0;
    bool payload_crc = true;
    bool keep_results = true;  // false: no rank can be given a result again
    bool survives = false;     // connections are resumed, views change; needs keep_results
    bool paced = true;         // no more under way than pays (pace.h); false: always W
    // Links are served from this one on, so that ranks do not all begin at the first reducer.
    uint32_t rank = 0;
    uint32_t ranks = 0;               // of the session; stragglers of others are not counted
    std::vector<uint32_t> placement;  // wire::placement_table of the first view: indices into `links`
    std::vector<LinkOptions> links;
  };

  // What sequences on the links count from.
  struct View {
    uint16_t version = 0;
    uint64_t hash = 0;
    uint64_t base = 0;  // chunk
  };

  class Listener {
   public:
    // Driver thread, all of them.
    // Once. Called before the links are closed, so that an ABORT can be sent ahead of the
    // broken connections.
    virtual void on_exchange_ended(const Ending& ending) noexcept = 0;
    // A lane connection was lost without a word. The listener decides when that ends the session: the reducer
    // may be saying why on its control connection. `reason` as in Handler::on_closed.
    virtual void on_link_lost(uint32_t link, Errc reason) noexcept = 0;
    // A connection that took the place of a lost one is in use.
    virtual void on_link_resumed(uint32_t /*link*/) noexcept {}

   protected:
    ~Listener() = default;
  };

  // `table` and `listener` outlive the exchange. kMemoryLimit when the result ring can't be had.
  [[nodiscard]] static Result<std::unique_ptr<Exchange>> create(Options options, OpTable& table,
                                                                Listener& listener);
  Exchange(const Exchange&) = delete;

  [[nodiscard]] Link& link(uint32_t i) noexcept { return links_[i]; }
  [[nodiscard]] uint32_t open_links() const noexcept { return open_links_; }
  // Of those, over RDMA.
  [[nodiscard]] uint32_t rdma_links() const noexcept;
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

  // Puts no chunk until restart(). What is under way goes on.
  void stop() noexcept;
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }
  // First chunk, through the session, that has no result here. Any thread.
  [[nodiscard]] uint64_t first_unfinished() const noexcept { return ring_.first_unfinished(); }
  [[nodiscard]] uint32_t depth() const noexcept { return ring_.depth(); }
  // One more link, of a reducer that was added; it gets chunks with the next restart(). May allocate.
  uint32_t add_link(const LinkOptions& options);
  // Stopped, and the transport has let go of all contributions, is in no result, and has back all places that
  // were lent: all of that comes soon, or the connection is lost.
  [[nodiscard]] bool quiet() const noexcept;
  // From view.base on in the new view. `placement` names links; those that it does not name are closed. Only
  // when quiet, with first_unfinished() - depth() <= base <= first_unfinished(). May allocate.
  void restart(const View& view, const std::vector<uint32_t>& placement);

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
  [[nodiscard]] uint64_t bytes_resent() const noexcept;
  // Bytes of results that were received in the ring and copied (link.h).
  [[nodiscard]] uint64_t result_bytes_copied() const noexcept;
  [[nodiscard]] const Ending& last_breach() const noexcept { return breach_; }
  [[nodiscard]] const Stragglers& stragglers() const noexcept { return stragglers_; }

  // For Link.
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const View& view() const noexcept { return view_; }
  [[nodiscard]] OpTable& table() noexcept { return table_; }
  [[nodiscard]] ChunkRing& ring() noexcept { return ring_; }
  // Where results are received that the user's buffers can't keep, as long as the exchange lives; for
  // devices, which touch all of it.
  [[nodiscard]] std::span<std::byte> ring_for_devices() const noexcept {
    ring_.prefer_large_pages();
    return ring_.memory();
  }
  // Chunks below may have been put before the last restart.
  [[nodiscard]] uint64_t resend_until() const noexcept { return resend_until_; }
  void chunk_put(uint64_t chunk) noexcept { put_until_ = std::max(put_until_, chunk + 1); }
  // The open operation with this chunk, or kNoOperation. Cold.
  [[nodiscard]] uint32_t operation_of(uint64_t chunk) const noexcept;
  void chunk_done(uint32_t op) noexcept;
  [[nodiscard]] Pace& pace() noexcept { return pace_; }
  void result_came(uint32_t link, bool losses, uint64_t bytes) noexcept;
  // Packets of some connection were lost. Told on the first one, whose results are the clock of the pace: so
  // every rank hears of it at the same time.
  void losses_seen() noexcept;
  void came_last(const wire::ResultInfo& info) noexcept { stragglers_.note(info); }
  void told_abort(uint32_t link, std::span<const std::byte> body) noexcept;
  void link_opened() noexcept { ++open_links_; }
  void link_resumed(uint32_t link) noexcept;
  void link_closed(uint32_t link, Errc reason) noexcept;
  // Ends the exchange with words in printf's manner; returns `code`. Where the session survives, words about
  // a link are kept (last_breach) and nothing ends but that connection, which the caller closes.
  __attribute__((format(printf, 4, 5))) Errc breach(uint32_t link, Errc code, const char* format,
                                                    ...) noexcept;

 private:
  Exchange(Options options, OpTable& table, Listener& listener, ChunkRing ring);
  [[nodiscard]] std::vector<Link::Share> shares(const std::vector<uint32_t>& placement) const;
  void queue_operation(uint32_t op, uint64_t from) noexcept;
  void end_with(uint32_t link, Errc code) noexcept;
  void close_links() noexcept;

  const Options options_;
  OpTable& table_;
  Listener& listener_;
  View view_;
  ChunkRing ring_;
  std::vector<uint32_t> placement_;
  std::deque<Link> links_;            // links do not move
  uint32_t clock_link_ = 0;           // the first that has chunks: its results are the clock of the pace
  std::vector<uint64_t> last_issue_;  // per link: number of the last issue() that reached it
  uint64_t issues_ = 0;
  uint32_t next_link_ = 0;   // where the next round begins
  uint32_t open_links_ = 0;  // with a connection
  bool stopped_ = false;
  uint64_t put_until_ = 0;     // behind the last chunk ever put
  uint64_t resend_until_ = 0;  // what that was at the last restart
  uint32_t first_open_ = kNoOperation, last_open_ = kNoOperation;
  uint64_t operations_done_ = 0;
  Nanos now_ = 0;
  Pace pace_;
  Stragglers stragglers_;
  Ending ending_;
  Ending breach_;
};

}  // namespace sluice::engine
