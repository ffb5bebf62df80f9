// The text of the files that SLUICE_BITS names (docs/guides/verify-bits.md), for the code that writes and the
// code that reads them: lines "# name value" that describe the session, then a line for each operation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/units.h"
#include "wire/dtype.h"
#include "wire/frame.h"
#include "wire/sha256.h"

namespace sluice::engine {

inline constexpr uint64_t kMaxBitRecordBytes = kGiB;  // more than 10 million operations

inline constexpr std::string_view kBitRecordTitle = "# sluice bit record 1";  // 1: the version of the format
inline constexpr std::string_view kBitRecordColumns =
    "operation\tkind\tdtype\top\tcount\tcrc32c\trunning_sha256";

struct BitRecordSession {
  SessionId session;
  Rank rank = 0;
  uint32_t ranks = 0;
  std::string job{};
  std::string reducers{};  // of the first view: "reducer 10.0.0.2:7470, reducer 10.0.0.3:7470"
};

// Whether the result could be hashed.
enum class ResultState : uint8_t { kHashed, kNone, kOnDevice };

struct BitOperation {
  uint64_t number = 0;  // in the session, from 0; operations without any element are counted but not recorded
  uint64_t count = 0;   // elements of the operation, all ranks' parts together
  uint32_t crc = 0;     // CRC-32C of this rank's result
  ResultState state = ResultState::kHashed;
  wire::Kind kind = wire::Kind::kAllreduce;
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;  // no meaning where wire::copies(kind)
};

// Class RunningHash computes the last column: SHA-256 over the previous one, all 32 bytes of it, and the
// columns of the line before it.
class RunningHash {
 public:
  static constexpr size_t kDigits = 16;

  void add(std::string_view columns);
  // The first 64 bits, which the file has.
  [[nodiscard]] uint64_t value() const noexcept;

 private:
  wire::Digest digest_{};
};

// The begin of the file.
[[nodiscard]] std::string bit_record_begin(const BitRecordSession& session);
// Appends the operation's line and adds it to the running hash.
void append_operation(std::string& out, const BitOperation& operation, RunningHash& running);
// Appends the last line. `reason` says why the record ends before its session; empty: it does not.
void append_bit_record_end(std::string& out, std::string_view reason);

}  // namespace sluice::engine
