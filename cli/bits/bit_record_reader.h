// Reads the files that SLUICE_BITS names (gpu_client/engine/trace/bit_record_format.h). Their text is not
// trusted. The last line may be incomplete, because the process may have been killed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "gpu_client/engine/trace/bit_record_format.h"

namespace sluice::cli {

struct RecordedOperation {
  engine::BitOperation operation;
  uint64_t running = 0;  // RunningHash up to this operation
};

// One file: what one rank recorded of one session.
struct BitRecord {
  std::string file;
  std::string session;  // 32 hex digits
  uint32_t rank = 0;
  uint32_t ranks = 0;
  std::string job;
  std::string host;
  std::string started;
  std::string library;
  std::string end;            // why the record ends; empty: the process was killed or still runs
  bool is_truncated = false;  // the last line is incomplete and was left out
  std::vector<RecordedOperation> operations;  // their numbers increase
};

// Returns kSystem when the file cannot be read, and kInvalidArgument with the line when it is no bit record.
[[nodiscard]] Result<BitRecord> read_bit_record(const std::string& path);

// The same for the text of a file.
[[nodiscard]] Result<BitRecord> parse_bit_record(std::string_view text, const std::string& path);

}  // namespace sluice::cli
