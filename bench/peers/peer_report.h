// Class PeerReport prints the table of a driver on rank 0 and writes the JSON file.
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
  // Writes the JSON file. Returns kExitOk or kExitWrongData.
  [[nodiscard]] int finish();

 private:
  [[nodiscard]] double cpu_per_gb(const std::vector<double>& cpu_seconds, double bytes) const;
  void print_row(const std::string& name, const std::vector<double>& seconds, double bytes,
                 const std::vector<double>& cpu_seconds, uint64_t wrong);

  const Peer& peer_;
  const PeerOptions& options_;
  std::vector<SizeResult> sizes_;
  std::vector<TraceResult> traces_;
  uint64_t trace_bytes_ = 0;
  bool has_header_ = false;
};

}  // namespace sluice::bench
