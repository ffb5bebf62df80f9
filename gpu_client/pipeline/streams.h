// Class Streams runs collectives in the order of a device's streams. It merges operations into batches,
// splits batches into segments, and enqueues the work of each segment on the device and on the stream pump.
// The enqueue order is one that a single hardware queue could run (docs/design/adr/0012). The C API in
// include/sluice/streams.h sits on top and documents the rules for callers.
//
// Threads. Any thread may call any public function.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/session/collective_session.h"
#include "gpu_client/pipeline/batch.h"
#include "gpu_client/pipeline/device.h"
#include "gpu_client/pipeline/segments.h"
#include "gpu_client/pipeline/staging.h"
#include "gpu_client/pipeline/stream_pump.h"

namespace sluice::pipeline {

struct StreamsOptions {
  uint64_t staging_bytes = 64 * kMiB;
  uint32_t segment_bytes = 4 * kMiB;  // at most a quarter of staging_bytes, a multiple of 64 KiB
  WireCast cast = WireCast::kNone;    // for sums and averages of f32
  uint64_t min_cast_count = 0;        // operations of fewer elements are not cast
  bool measure_error = false;
  bool stochastic_rounding = false;  // of block types
  bool always_staged = false;        // only if the device can access host memory
  uint64_t fusion_bytes = 64 * kMiB;
};

struct StreamsStats {
  StreamPump::Counters completed;
  uint64_t batches = 0;
  uint64_t bytes_staged_out = 0;
  uint64_t bytes_staged_in = 0;
  uint64_t pinned_bytes = 0;
  uint64_t elements_cast = 0;
  CastError error;
};

class Streams {
 public:
  // Network operations in flight above which new operations are refused.
  static constexpr uint64_t kMaxInflight = 8192;

  // The session outlives the object. Returns kSystem if memory cannot be pinned or a thread cannot be
  // started.
  [[nodiscard]] static Result<std::unique_ptr<Streams>> open(engine::CollectiveSession& session,
                                                             std::unique_ptr<Device> device,
                                                             const StreamsOptions& options);
  // Waits for the device's own streams, which may still copy results.
  ~Streams();

  // All return a request for test() and wait(), or 0 unless `with_request`.
  // Runs an operation in the order of `stream`. A buffer of which this rank uses no element may be null.
  // `residual`, for casts to a block type, has request.count elements and may be null.
  [[nodiscard]] Result<uint64_t> submit(const engine::OpRequest& request, float* residual,
                                        Device::Stream stream, bool with_request);
  // Any operation but allreduce on buffers in host memory that takes no part in the order of the device's
  // streams, as it is: not divided, merged, staged or cast. Not within a group.
  [[nodiscard]] Result<uint64_t> collective(const engine::OpRequest& request);
  [[nodiscard]] Result<uint64_t> end_group(bool with_request);
  [[nodiscard]] Result<void> begin_group();
  // Makes end_group() fail, because an operation within the group was refused for the reason `why`.
  void fail_group(const Error& why);

  // Whether a request is one of this class and not one of the session.
  [[nodiscard]] static bool is_stream_request(uint64_t request) noexcept {
    return (request & kRequestBit) != 0;
  }
  // These behave as those of engine::CollectiveSession.
  [[nodiscard]] Status test(uint64_t request, bool& done);
  [[nodiscard]] Status wait(uint64_t request, Nanos deadline);

  [[nodiscard]] Result<StreamsStats> stats();
  // Waits for the work in flight. Fails the session at the deadline, which ends that work.
  void close(Nanos deadline) { pump_.close(deadline); }

 private:
  // The session's requests hold an index below 1024 in the lower half.
  static constexpr uint64_t kRequestBit = 0x80000000;

  Streams(engine::CollectiveSession& session, std::unique_ptr<Device> device, const StreamsOptions& options,
          Staging staging);
  [[nodiscard]] Result<uint64_t> add_operation(const engine::OpRequest& request, float* residual,
                                               Device::Stream stream, bool with_request);
  [[nodiscard]] Result<uint64_t> submit_collective(const engine::OpRequest& request);
  [[nodiscard]] Result<uint64_t> enqueue_group(bool with_request);
  template <typename Enqueue>
  [[nodiscard]] Result<uint64_t> fail_session_on_error(Enqueue&& enqueue);
  void fail_session(const Error& why) noexcept;
  [[nodiscard]] Result<Tensor> make_tensor(const engine::OpRequest& request, float* residual,
                                           Device::Stream stream);
  // Where the buffers of the tensor are. Returns kInvalidArgument if they are not in one kind of memory.
  [[nodiscard]] Result<Device::MemoryLocation> locate_buffers(const Tensor& tensor, float* residual);
  // Whether a buffer is in memory that only network cards access.
  [[nodiscard]] bool is_registered(std::span<const std::byte> buffer) const;

  // These need enqueue_mutex_.
  [[nodiscard]] Result<void> check_open();
  [[nodiscard]] Result<uint64_t> enqueue(const std::vector<Tensor>& tensors, uint64_t operations,
                                         bool with_request);
  // The segments of a batch, as all ranks have them.
  [[nodiscard]] std::vector<Band> segments_of(const Batch& batch) const;
  [[nodiscard]] uint64_t network_operations(const std::vector<Batch>& batches) const;
  // Whether the batch is reduced in place, and its operation waits for no work of the device.
  [[nodiscard]] bool is_beside_streams(const Batch& batch) const;
  using OperationPtr = std::shared_ptr<StreamOperation>;
  [[nodiscard]] Status enqueue_batch(const Batch& batch, const OperationPtr& operation);
  [[nodiscard]] Status enqueue_exponents(const Batch& batch, const OperationPtr& operation, Cast& cast);
  [[nodiscard]] Status enqueue_staged(const Batch& batch, const OperationPtr& operation, const Cast& cast);
  // These copy a segment between the caller's buffers and the staging, and pass it to the pump.
  struct StagedSegment {
    const Batch& batch;
    const Band& band;
    Cast cast;  // with `first` of the segment
    StagingBuffer* buffer = nullptr;
    uint32_t number = 0;  // of the network operation
  };
  [[nodiscard]] Status copy_out(StagedSegment& segment, const OperationPtr& operation);
  [[nodiscard]] Status copy_in(const StagedSegment& segment);
  [[nodiscard]] Status enqueue_in_place(const Batch& batch, const OperationPtr& operation);
  // Submits the batch's segments for reduction in place. Without `in_order` the contribution is ready now.
  [[nodiscard]] Status submit_in_place(const Batch& batch, const OperationPtr& operation, bool in_order);
  // Sets `event` to one that completes after the work enqueued so far on the copy-out stream.
  [[nodiscard]] Status record_ready(std::unique_ptr<Event>& event);
  void release_streams(const std::vector<Batch>& batches);

  [[nodiscard]] uint64_t register_operation(OperationPtr operation);
  [[nodiscard]] OperationPtr find_operation(uint64_t request);
  void remove_operation(uint64_t request);
  [[nodiscard]] Status complete_request(uint64_t request, StreamOperation& operation, Errc result);

  engine::CollectiveSession& session_;
  const StreamsOptions options_;
  std::unique_ptr<Device> device_;

  // Gives the work on the device and on the pump one order. Protects all members down to stats_.
  std::mutex enqueue_mutex_;
  Staging staging_;
  std::unique_ptr<Event> caller_reached_, batch_done_;  // of the batch that is being enqueued
  std::vector<BufferRange> segment_ranges_;             // of the segment that is being copied
  std::vector<Run> segment_runs_;                       // the same
  uint32_t last_number_ = 0;                            // of the last network operation
  bool in_group_ = false;
  std::vector<Tensor> group_;
  uint64_t group_operations_ = 0;
  Result<void> group_error_;
  StreamsStats stats_;

  std::atomic<bool> has_failed_{false};  // an operation was not enqueued for which other ranks may wait
  std::mutex cast_error_mutex_;

  std::mutex requests_mutex_;
  std::unordered_map<uint64_t, OperationPtr> operations_;
  uint32_t next_request_ = 1;

  StreamPump pump_;  // the last member: its threads must end before the others are destroyed
};

}  // namespace sluice::pipeline
