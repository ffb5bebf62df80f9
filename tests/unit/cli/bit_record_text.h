// Makes the text of bit records for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gpu_client/engine/trace/bit_record_format.h"

namespace sluice::cli::test {

struct RecordShape {
  uint8_t session = 1;
  uint32_t rank = 0;
  uint32_t ranks = 4;
};

// The record of a rank whose session has closed.
inline std::string record_text(const RecordShape& shape,
                               const std::vector<engine::BitOperation>& operations) {
  std::string text = engine::bit_record_begin(
      {.session = {{shape.session}}, .rank = shape.rank, .ranks = shape.ranks, .job = "j"});
  engine::RunningHash running;
  for (const engine::BitOperation& o : operations) engine::append_operation(text, o, running);
  engine::append_bit_record_end(text, {});
  return text;
}

// Operations with different results.
inline std::vector<engine::BitOperation> operations(size_t count, wire::Kind kind = wire::Kind::kAllreduce) {
  std::vector<engine::BitOperation> out(count);
  for (size_t i = 0; i < count; ++i)
    out[i] = {.number = i, .count = 1024, .crc = static_cast<uint32_t>(i * 2654435761U), .kind = kind};
  return out;
}

}  // namespace sluice::cli::test
