// Class WorkerSession is the session of one rank in a benchmark: a thin layer over the public C API that
// throws Failure. It also exchanges the data of a run between the ranks (barriers, times, counts, names). The
// exchange uses allreduces, so it works on one machine and on many.
#pragma once

#include <sluice/sluice.h>
#include <sluice/streams.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/e2e/worker/signal_thread.h"
#include "wire/dtype.h"

namespace sluice::bench {

struct WorkerOptions {
  std::string reducers;  // "host:port,...", or "@FILE", which is read again on SIGHUP
  std::string session;   // 32 hex digits
  uint32_t rank = 0;
  uint32_t ranks = 1;
  uint32_t ranks_per_host = 0;  // that --ranks-per-host made; 0: the library finds the hosts
  uint32_t lanes = 0;           // connections per reducer; 0: the number that the reducer offers
  uint64_t window_bytes = 0;    // 0: the default of the library
  uint64_t slot_bytes = 0;
  uint32_t progress_threads = 1;
  bool payload_crc = true;
  bool keep_results = true;
  int64_t connect_timeout_ms = 0;  // 0: the default of the library
  int64_t join_timeout_ms = 0;
  std::string interface_address;
};

class WorkerSession {
 public:
  // Joins the session; collective. Throws Failure with the text of the library: kExitUsage for invalid
  // options, otherwise kExitUnavailable.
  explicit WorkerSession(const WorkerOptions& options);
  // Leaves within the linger time. Ignores errors; close() reports them.
  ~WorkerSession();

  [[nodiscard]] uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] uint32_t ranks() const noexcept { return ranks_; }

  // Registers memory of later operations, so that RDMA transfers it without a copy. When registration fails,
  // prints the reason to stderr and operations copy. The memory must stay mapped until the session is closed.
  void register_memory(void* bytes, size_t size);
  void allreduce(const void* send, void* recv, size_t count, wire::DType dtype, wire::Op op);
  [[nodiscard]] sluice_request start(const void* send, void* recv, size_t count, wire::DType dtype,
                                     wire::Op op);
  // `counts` has the elements of each rank's part.
  [[nodiscard]] sluice_request start_reduce_scatter(const void* send, void* recv,
                                                    std::span<const size_t> counts, wire::DType dtype,
                                                    wire::Op op);
  [[nodiscard]] sluice_request start_all_gather(const void* send, void* recv, std::span<const size_t> counts,
                                                wire::DType dtype);
  [[nodiscard]] sluice_request start_reduce(const void* send, void* recv, size_t count, wire::DType dtype,
                                            wire::Op op, uint32_t root);
  [[nodiscard]] sluice_request start_broadcast(void* buffer, size_t count, wire::DType dtype, uint32_t root);
  void wait(sluice_request request);
  // Returns false when the operation is not complete after `timeout_ms`.
  [[nodiscard]] bool wait_for(sluice_request request, int timeout_ms);

  // After this call allreduces run on no stream, unless start_on_stream() names one. Throws Failure:
  // kExitUsage for invalid options, kExitUnavailable when the device does not exist.
  void open_streams(const sluice_stream_options& options);
  [[nodiscard]] sluice_request start_on_stream(const void* send, void* recv, size_t count, wire::DType dtype,
                                               wire::Op op, sluice_stream stream);
  [[nodiscard]] sluice_stream_stats stream_stats() const;

  // The following three functions are collective.
  void barrier();
  [[nodiscard]] double reduce(double value, wire::Op op);
  [[nodiscard]] uint64_t reduce(uint64_t value, wire::Op op);
  // Returns the texts of all ranks, sorted by rank, each truncated to 120 bytes.
  [[nodiscard]] std::vector<std::string> gather(const std::string& text);

  [[nodiscard]] sluice_stats stats() const;
  // Leaves the session. Throws Failure on error.
  void close();

 private:
  struct SessionDeleter {
    void operator()(sluice_session* session) const noexcept;
  };
  void check(sluice_status status, const char* operation) const;

  SignalThread dumper_;  // writes the black box on SIGUSR2; first: before the library starts threads
  std::unique_ptr<sluice_session, SessionDeleter> session_;
  // Reads the pool file again on SIGHUP; only with a pool file. Destroyed before session_.
  std::optional<SignalThread> reloader_;
  uint32_t rank_;
  uint32_t ranks_;
  bool has_streams_ = false;
};

// Returns 32 random hex digits.
[[nodiscard]] std::string random_session_id();

}  // namespace sluice::bench
