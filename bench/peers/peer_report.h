// What rank 0 of a driver says: a table on stdout, and everything in JSON.
#pragma once

#include <string>
#include <vector>

#include "bench/peers/peer_bench.h"

namespace sluice::bench {

class PeerReport {
 public:
  PeerReport(const Peer& peer, const PeerOptions& options) : peer_(peer), options_(options) {}

  void add(const SizeResult& result);
  void add(const TraceResult& result, const Trace& trace);
  // Writes the JSON. kExitOk, or kExitWrongData.
  [[nodiscard]] int finish();

 private:
  [[nodiscard]] double cpu_per_gb(const std::vector<double>& cpu_seconds, double bytes) const;
  void say(const std::string& what, const std::vector<double>& seconds, double bytes,
           const std::vector<double>& cpu_seconds, uint64_t wrong);

  const Peer& peer_;
  const PeerOptions& options_;
  std::vector<SizeResult> sizes_;
  std::vector<TraceResult> traces_;
  uint64_t trace_bytes_ = 0;
  bool said_head_ = false;
};

}  // namespace sluice::bench
