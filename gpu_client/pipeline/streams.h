// Allreduce in the order of a device's streams: puts operations into rounds, cuts rounds into pieces, and
// gives the device and the courier what is to be done with each, in an order that one hardware queue could
// run (docs/adr/0012). Behind the C face, whose words it keeps: include/sluice/streams.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "gpu_client/engine/session.h"
#include "gpu_client/pipeline/courier.h"
#include "gpu_client/pipeline/device.h"
#include "gpu_client/pipeline/flight.h"
#include "gpu_client/pipeline/round.h"
#include "gpu_client/pipeline/staging.h"

namespace sluice::pipeline {

struct StreamsOptions {
  uint64_t staging_bytes = 64 * kMiB;
  uint32_t piece_bytes = 4 * kMiB;  // at most a quarter of staging_bytes, a multiple of 64 KiB
  WireCast cast = WireCast::kNone;  // of sums and averages of f32
  bool measure_error = false;
  bool always_staged = false;  // only where the device reaches host memory
  uint64_t fusion_bytes = 64 * kMiB;
};

struct StreamsStats {
  Courier::Counts carried;
  uint64_t rounds = 0;
  uint64_t bytes_staged_out = 0;
  uint64_t bytes_staged_in = 0;
  uint64_t pinned_bytes = 0;
  uint64_t elements_cast = 0;
  CastError error;
};

class Streams {
 public:
  // Parcels under way beyond which nothing more is taken.
  static constexpr uint64_t kMostUnderWay = 8192;

  // The session outlives it. kSystem: no memory can be pinned, no thread.
  [[nodiscard]] static Result<std::unique_ptr<Streams>> open(engine::Session& session,
                                                             std::unique_ptr<Device> device,
                                                             const StreamsOptions& options);
  // Waits for the device's own streams, which may still copy results back.
  ~Streams();

  // Any thread, all of them. Names are for test() and wait(); 0 unless `asked`.
  [[nodiscard]] Result<uint64_t> allreduce(const engine::OpRequest& request, Device::Stream stream,
                                           bool asked);
  [[nodiscard]] Result<void> begin_group();
  [[nodiscard]] Result<uint64_t> end_group(bool asked);
  // Why an operation within the group was refused, so that its end is too.
  void spoil_group(const Error& why);

  // A name of operations here, not of the session's.
  [[nodiscard]] static bool is_name(uint64_t name) noexcept { return (name & kNameBit) != 0; }
  // As engine::Session has them.
  [[nodiscard]] Status test(uint64_t name, bool& done);
  [[nodiscard]] Status wait(uint64_t name, Nanos deadline);

  [[nodiscard]] Result<StreamsStats> stats();
  // Waits for what is under way until the deadline, then fails the session, with which it ends.
  void close(Nanos deadline);

 private:
  static constexpr uint64_t kNameBit = 0x80000000;  // the session's names have an index below 1024 there

  Streams(engine::Session& session, std::unique_ptr<Device> device, const StreamsOptions& options,
          Staging staging);
  [[nodiscard]] Result<uint64_t> take(const engine::OpRequest& request, Device::Stream stream, bool asked);
  [[nodiscard]] Result<uint64_t> take_group(bool asked);
  template <typename Give>
  [[nodiscard]] Result<uint64_t> or_end(Give&& give);
  void end_with(const Error& why) noexcept;
  [[nodiscard]] Status end(uint64_t name, Flight& flight, Errc how);
  void let_go(const std::vector<Round>& rounds);
  [[nodiscard]] Result<Tensor> look_at(const engine::OpRequest& request, Device::Stream stream);
  [[nodiscard]] Result<uint64_t> give(const std::vector<Tensor>& tensors, uint64_t operations, bool asked);
  [[nodiscard]] uint64_t parcels_of(const std::vector<Round>& rounds) const noexcept;
  [[nodiscard]] uint64_t piece_elements_of(const Round& round) const noexcept;
  [[nodiscard]] Status give_round(const Round& round, const std::shared_ptr<Flight>& flight);
  [[nodiscard]] Status give_exponents(const Round& round, const std::shared_ptr<Flight>& flight, Cast& cast);
  [[nodiscard]] Status give_staged(const Round& round, const std::shared_ptr<Flight>& flight, Cast cast);
  [[nodiscard]] Status give_in_place(const Round& round, const std::shared_ptr<Flight>& flight);
  // The round's pieces where they lie; without an order they are ready now.
  [[nodiscard]] Status give_parcels(const Round& round, const std::shared_ptr<Flight>& flight, bool in_order);
  [[nodiscard]] Status make_ready(std::unique_ptr<Event>& event);
  [[nodiscard]] uint64_t name_flight(std::shared_ptr<Flight> flight);
  [[nodiscard]] std::shared_ptr<Flight> find(uint64_t name);
  void forget(uint64_t name);

  engine::Session& session_;
  const StreamsOptions options_;
  std::unique_ptr<Device> device_;

  std::mutex giving_;  // what the device and the courier are given is in one order; with it:
  Staging staging_;
  std::unique_ptr<Event> begun_, ended_;  // of the round that is being given
  std::vector<Segment> parts_;            // of the piece that is being given
  uint32_t given_ = 0;                    // number of the last parcel
  bool in_group_ = false;
  std::vector<Tensor> group_;
  uint64_t group_operations_ = 0;
  Result<void> group_error_;
  StreamsStats stats_;

  std::atomic<bool> broken_{false};  // an operation that other ranks may wait for was not given
  std::mutex measuring_;

  std::mutex names_;
  std::unordered_map<uint64_t, std::shared_ptr<Flight>> flights_;
  uint32_t next_name_ = 1;

  Courier courier_;  // its threads end before the rest goes
};

}  // namespace sluice::pipeline
