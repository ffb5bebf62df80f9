// Class ChunkScheduler distributes the chunks of a session's operations over its lane connections, keeps each
// connection's window full and completes operations as their results arrive. The class is the core of the
// worker's data path. It knows transport endpoints, but no sockets, threads or clock.
//
// Every call runs on the thread of the progress loop unless its comment says otherwise. The code allocates
// nothing, locks nothing and makes no system call for a frame. The one exception is a query for packet losses
// for every 512 KiB that a connection has sent (transport/loss_detector.h).
//
// The first protocol violation or ABORT ends the scheduler: it reports the cause to its listener and closes
// every lane connection. A lost connection is reported, and the listener decides. Once the transport holds no
// buffer, fail_open_operations() ends the open operations. In a fault-tolerant session a violation closes
// only its connection; the listener then has the connection reopened, or changes the view with stop() and
// restart() (protocol.md section 11).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "blackbox/event_source.h"
#include "core/result.h"
#include "gpu_client/engine/data_path/chunk_ring.h"
#include "gpu_client/engine/data_path/inflight_limit.h"
#include "gpu_client/engine/data_path/lane_connection.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/engine/data_path/operation_recorder.h"
#include "gpu_client/engine/data_path/straggler_stats.h"
#include "transport/transport.h"
#include "wire/messages.h"

namespace sluice::engine {

inline constexpr uint32_t kNoLane = 0xffffffff;

// Why a lane connection failed or the session ended. Written without allocating memory.
struct SchedulerFailure {
  Errc code = Errc::kOk;
  uint32_t lane = kNoLane;        // index of the lane connection that showed the cause
  uint32_t rank = wire::kNoRank;  // the rank that the cause concerns
  bool from_peer = false;         // a reducer sent the code and the text in ABORT
  std::array<char, wire::kMaxErrorText + 1> text{};
};

class ChunkScheduler {
 public:
  struct LaneOptions {
    uint32_t handle = 0;  // the session's handle at the reducer of this lane connection
    uint32_t slots = 0;   // W, granted in ATTACHED; at most 65535
    bool sparse = false;  // payloads may be sparse, in both directions
    std::shared_ptr<transport::PathMonitor> path{};  // samples the connection; null: nobody asks
  };
  struct Options {
    uint64_t view_hash = 0;  // of the first view
    uint32_t slot_bytes = 0;
    uint64_t incarnation = 0;
    bool payload_crc = true;
    bool keep_results = true;                     // false: a result cannot be sent to a rank again
    bool fault_tolerant = false;                  // resume connections and change views; needs keep_results
    bool limit_inflight = true;                   // apply InflightLimit; false: always W chunks in flight
    SharedInflightLimit* shared_limit = nullptr;  // instead of an own one; outlives the scheduler
    // The first lane connection to serve has this index, so that ranks do not all start at the first reducer.
    uint32_t rank = 0;
    uint32_t ranks = 0;               // of the session; StragglerStats ignores ranks beyond
    Nanos begin = 0;                  // of the session; StragglerStats ignores time before
    std::vector<uint32_t> placement;  // wire::placement_table of the first view: indices into `lanes`
    std::vector<LaneOptions> lanes;
    blackbox::EventSource blackbox{};  // records when operations begin and end
  };

  // The view in which sequence numbers of the lane connections are valid.
  struct View {
    uint16_t version = 0;
    uint64_t hash = 0;
    uint64_t base = 0;  // first chunk
  };

  // All calls come from the thread of the progress loop.
  class Listener {
   public:
    // Once, before the lane connections are closed, so that an ABORT can reach the reducers ahead of the loss
    // of the connections.
    virtual void on_scheduler_ended(const SchedulerFailure& end) noexcept = 0;
    // A lane connection was closed without ABORT. The listener decides when the loss ends the session: the
    // reducer may be sending the cause on its control connection. `reason` is that of Handler::on_closed.
    virtual void on_lane_lost(uint32_t /*lane*/, Errc /*reason*/) noexcept {}
    // The replacement of a lost connection is in use.
    virtual void on_lane_resumed(uint32_t /*lane*/) noexcept {}
    // An operation that is about to end has a finding.
    virtual void on_finding(uint32_t /*op*/, const OperationFinding& /*finding*/) noexcept {}

   protected:
    ~Listener() = default;
  };

  // `table` and `listener` outlive the scheduler. Returns kSystem when the result ring cannot be allocated.
  [[nodiscard]] static Result<std::unique_ptr<ChunkScheduler>> create(Options options, OpTable& table,
                                                                      Listener& listener);
  ChunkScheduler(const ChunkScheduler&) = delete;

  [[nodiscard]] LaneConnection& lane(uint32_t i) noexcept { return lanes_[i]; }
  [[nodiscard]] uint32_t lane_count() const noexcept { return static_cast<uint32_t>(lanes_.size()); }
  // Measures the operations for observers, which costs time for every chunk. Before the first endpoint is
  // bound; the recorder outlives the endpoints.
  void set_recorder(OperationRecorder* recorder) noexcept { recorder_ = recorder; }
  [[nodiscard]] OperationRecorder* recorder() const noexcept { return recorder_; }
  // The handler of the endpoint for lane connection i.
  [[nodiscard]] transport::Handler& handler(uint32_t i) noexcept {
    return recorder_ == nullptr ? static_cast<transport::Handler&>(lanes_[i]) : recorder_->lane(i);
  }
  // InflightLimit::set_round_trip(). Before the first operation.
  void set_round_trip(Nanos round_trip) noexcept { inflight_limit_.set_round_trip(round_trip); }
  // Binds lane connection i to the endpoint that has handler(i).
  void bind(uint32_t i, transport::Endpoint& ep) noexcept {
    lanes_[i].bind(recorder_ == nullptr ? ep : recorder_->lane(i).attach(ep));
  }
  // The queue and payload sizes that the endpoint of lane connection i needs.
  [[nodiscard]] transport::EndpointOptions endpoint_options(uint32_t i) const noexcept;
  // Puts COMMIT on every lane connection. All must be bound.
  [[nodiscard]] Status begin() noexcept;

  // Sets the time of the following calls, for InflightLimit.
  void set_now(Nanos now) noexcept { now_ = now; }

  // Samples what the network does to the connections. Once a second, because each costs a system call.
  void sample_paths(Nanos now) noexcept {
    for (LaneConnection& lane : lanes_) lane.sample_path(now);
  }

  // Adds an operation with chunk_count > 0. Operations must come in the order of OpTable::open().
  void issue(uint32_t op) noexcept;
  // Puts chunks, one per lane connection in turn, until none can be put or about `budget` payload bytes have
  // been put. Returns the payload bytes put.
  size_t put_chunks(size_t budget) noexcept;

  // Puts no chunk until restart(). Chunks in flight continue.
  void stop() noexcept;
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_; }
  // The session's first chunk without a result at this rank. Any thread.
  [[nodiscard]] uint64_t first_unfinished() const noexcept { return ring_.first_unfinished(); }
  [[nodiscard]] uint32_t depth() const noexcept { return ring_.depth(); }
  // Adds a lane connection of an added reducer and returns its index. It gets chunks after the next
  // restart(). May allocate.
  uint32_t add_lane(const LaneOptions& options);
  // True when the scheduler is stopped and the transport holds no contribution, receives no result and has
  // returned all advertised buffers. Each of these happens soon, or the connection is lost.
  [[nodiscard]] bool is_quiescent() const noexcept;
  // Continues at chunk view.base in the new view. `placement` holds indices of lane connections; those that
  // occur neither there nor in `standby` are closed. Requires is_quiescent() and
  // first_unfinished() - depth() <= base <= first_unfinished(). May allocate.
  void restart(const View& view, const std::vector<uint32_t>& placement,
               const std::vector<uint32_t>& standby = {});

  // Ends the scheduler and closes every lane connection. Later calls have no effect.
  void end(Errc code) noexcept;
  [[nodiscard]] bool has_ended() const noexcept { return session_end_.code != Errc::kOk; }
  // True when the scheduler has ended and the transport holds no buffer.
  [[nodiscard]] bool is_drained() const noexcept { return has_ended() && open_lanes_ == 0; }
  // Ends every open operation with `code`: why the session ended for this rank's caller. A reducer's answer
  // to this rank's own ABORT may have ended the scheduler, with the code for the other ranks. Requires
  // is_drained().
  void fail_open_operations(Errc code) noexcept;

  // The open operation that was issued first, or kNoOperation.
  [[nodiscard]] uint32_t oldest_operation() const noexcept { return first_open_; }
  // Time with open operations since the session began, until `now`.
  [[nodiscard]] Nanos busy_time(Nanos now) const noexcept {
    return busy_time_ + (first_open_ == kNoOperation ? 0 : now - busy_since_);
  }
  // Operations that ended with kOk.
  [[nodiscard]] uint64_t operations_done() const noexcept { return operations_done_; }
  // Sums over the lane connections.
  struct Counters {
    transport::EndpointCounters lanes;
    uint64_t bytes_resent = 0;
    uint64_t results_copied = 0;  // bytes of results that were received in the ring (lane_connection.h)
    uint32_t rdma_lanes = 0;      // open ones that use RDMA
    uint32_t open_lanes = 0;
  };
  [[nodiscard]] Counters counters() const noexcept;
  // The last failure of a single connection in a fault-tolerant session.
  [[nodiscard]] const SchedulerFailure& last_failure() const noexcept { return last_failure_; }
  [[nodiscard]] const StragglerStats& straggler_stats() const noexcept { return straggler_stats_; }
  // The memory of the result ring, to be registered with RDMA devices, which pin all of it. Valid as long as
  // the scheduler lives.
  [[nodiscard]] std::span<std::byte> ring_memory() const noexcept {
    ring_.prefer_large_pages();
    return ring_.memory();
  }

  // For LaneConnection.
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const View& view() const noexcept { return view_; }
  [[nodiscard]] OpTable& table() noexcept { return table_; }
  [[nodiscard]] ChunkRing& ring() noexcept { return ring_; }
  // Chunks below this number may have been put before the last restart.
  [[nodiscard]] uint64_t resend_until() const noexcept { return resend_until_; }
  void chunk_put(uint64_t chunk) noexcept { put_until_ = std::max(put_until_, chunk + 1); }
  // The open operation that contains the chunk, or kNoOperation. Not for every frame.
  [[nodiscard]] uint32_t operation_of(uint64_t chunk) const noexcept;
  void chunk_done(uint32_t op) noexcept;
  [[nodiscard]] uint32_t inflight_limit() const noexcept {
    return options_.shared_limit != nullptr ? options_.shared_limit->limit() : inflight_limit_.limit();
  }
  // Whether this scheduler finds the limit.
  [[nodiscard]] bool makes_trials() const noexcept {
    return options_.limit_inflight && options_.shared_limit == nullptr;
  }
  void note_limited() noexcept {
    if (options_.shared_limit != nullptr) return options_.shared_limit->note_limited();
    inflight_limit_.note_limited();
  }
  // Lane connections with chunks in the current view, and whether all have as many of them.
  [[nodiscard]] uint32_t connections_in_use() const noexcept { return connections_in_use_; }
  [[nodiscard]] bool has_equal_shares() const noexcept { return has_equal_shares_; }
  void result_received(uint32_t lane, bool losses, uint64_t bytes) noexcept;
  // Packets of some connection were lost. The clock lane's next contribution carries the information, so that
  // every rank learns of the loss at the same result.
  void packet_loss_seen() noexcept;
  void note_last_rank(const wire::ResultInfo& info) noexcept { straggler_stats_.note(info, now_); }
  void note_finding(uint32_t op, const wire::Finding& finding) noexcept {
    if (finding.rank < options_.ranks) table_[op].findings.add(finding);
  }
  void abort_received(uint32_t lane, std::span<const std::byte> body) noexcept;
  void lane_opened() noexcept { ++open_lanes_; }
  void lane_resumed(uint32_t lane) noexcept;
  void lane_closed(uint32_t lane, Errc reason) noexcept;
  // Ends the scheduler with a text in printf format and returns `code`. In a fault-tolerant session a failure
  // of a lane connection is only stored in last_failure(); the caller closes that connection.
  __attribute__((format(printf, 4, 5))) Errc report_failure(uint32_t lane, Errc code, const char* format,
                                                            ...) noexcept;

 private:
  ChunkScheduler(Options options, OpTable& table, Listener& listener, ChunkRing ring);
  // The shares of placement_, which also set the two members below.
  [[nodiscard]] std::vector<LaneConnection::Share> assign_shares();
  void report_finding(uint32_t op) noexcept;
  void record(blackbox::EventKind kind, const Operation& o, Errc status) const noexcept;
  void queue_operation(uint32_t op, uint64_t from) noexcept;
  void end_with(uint32_t lane, Errc code) noexcept;
  void close_lanes() noexcept;

  const Options options_;
  OpTable& table_;
  Listener& listener_;
  OperationRecorder* recorder_ = nullptr;
  View view_;
  ChunkRing ring_;
  std::vector<uint32_t> placement_;
  std::deque<LaneConnection> lanes_;  // a deque, because a LaneConnection must not move
  uint32_t connections_in_use_ = 0;
  bool has_equal_shares_ = true;
  uint32_t clock_lane_ = 0;           // the first with chunks: its results are the clock of InflightLimit
  std::vector<uint64_t> last_issue_;  // per lane connection: number of the last issue() with a chunk for it
  uint64_t issues_ = 0;
  uint32_t next_lane_ = 0;   // where the next round starts
  uint32_t open_lanes_ = 0;  // lane connections that are bound to an endpoint
  bool stopped_ = false;
  uint64_t put_until_ = 0;     // one past the highest chunk ever put
  uint64_t resend_until_ = 0;  // put_until_ at the last restart
  uint32_t first_open_ = kNoOperation, last_open_ = kNoOperation;
  uint64_t operations_done_ = 0;
  Nanos now_ = 0;
  Nanos busy_since_ = 0;  // while operations are open
  Nanos busy_time_ = 0;   // before that
  InflightLimit inflight_limit_;
  StragglerStats straggler_stats_;
  SchedulerFailure session_end_;
  SchedulerFailure last_failure_;
};

}  // namespace sluice::engine
