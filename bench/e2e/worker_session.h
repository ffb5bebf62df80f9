// One rank's session as the tools use it: a thin layer over the public C face that throws Failure, and what
// ranks tell each other about a run (barriers, times, counts, names), itself carried by allreduces, so that
// it works on one machine and on many.
#pragma once

#include <sluice/sluice.h>
#include <sluice/streams.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/e2e/pool_reload.h"
#include "wire/dtype.h"

namespace sluice::bench {

struct WorkerOptions {
  std::string reducers;  // "host:port,...", or "@FILE": SIGHUP has the file read again
  std::string session;   // 32 hex digits
  uint32_t rank = 0;
  uint32_t ranks = 1;
  std::string job;     // empty: "default"
  std::string tenant;  // empty: the library's default
  std::string key_file;
  std::string token_file;
  uint32_t lanes = 0;         // connections per reducer; 0: what it offers
  uint64_t window_bytes = 0;  // 0: the library's default
  uint64_t slot_bytes = 0;
  uint32_t progress_threads = 1;
  bool payload_crc = true;
  bool keep_results = true;
  int64_t connect_timeout_ms = 0;  // 0: the library's default
  int64_t join_timeout_ms = 0;
  std::string interface_address;
};

class WorkerSession {
 public:
  // Joins; collective. Failure: kExitUsage for options, kExitUnavailable otherwise, with the library's text.
  explicit WorkerSession(const WorkerOptions& options);
  // Leaves, within the linger time; what close() would report is lost.
  ~WorkerSession() = default;

  [[nodiscard]] uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] uint32_t ranks() const noexcept { return ranks_; }

  // Memory of later operations: used in place over RDMA, where the card takes it; a word on stderr where not.
  // Stays mapped until the session is closed.
  void use_memory(void* bytes, size_t size);
  void allreduce(const void* send, void* recv, size_t count, wire::DType dtype, wire::Op op);
  [[nodiscard]] sluice_request start(const void* send, void* recv, size_t count, wire::DType dtype,
                                     wire::Op op);
  void wait(sluice_request request);
  // False when it is still open after `timeout_ms`.
  [[nodiscard]] bool wait_for(sluice_request request, int timeout_ms);

  // From now on operations go by streams alone: start_on_stream() and wait(), none of the others. Failure:
  // kExitUsage for options, kExitUnavailable where there is no such device.
  void open_streams(const sluice_stream_options& options);
  [[nodiscard]] sluice_request start_on_stream(const void* send, void* recv, size_t count, wire::DType dtype,
                                               wire::Op op, sluice_stream stream);
  [[nodiscard]] sluice_stream_stats stream_stats() const;

  // Collective, each of them.
  void barrier();
  [[nodiscard]] double reduce(double value, wire::Op op);
  [[nodiscard]] uint64_t reduce(uint64_t value, wire::Op op);
  // Every rank's text, cut to 120 bytes, in order of rank.
  [[nodiscard]] std::vector<std::string> gather(const std::string& text);

  [[nodiscard]] sluice_stats stats() const;
  // Leaves and says how it went.
  void close();

 private:
  struct Close {
    void operator()(sluice_session* session) const noexcept;
  };
  void check(sluice_status status, const char* what) const;

  std::unique_ptr<sluice_session, Close> session_;
  std::unique_ptr<PoolReload> reload_;  // before the session goes
  uint32_t rank_;
  uint32_t ranks_;
};

// 32 random hex digits.
[[nodiscard]] std::string random_session_id();

}  // namespace sluice::bench
