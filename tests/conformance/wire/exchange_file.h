// Recorded exchanges: frames in the order of time, each begun by a line "@ connection > NAME" (from a client
// to the reducer) or
// "@ connection < NAME" (back), then bytes as hex digits; '#' begins a comment.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sluice::test {

struct RecordedFrame {
  std::string connection;
  bool to_reducer = false;
  std::string name;  // "HELLO"; data frames: "RESULT 0 to rank 1"
  std::vector<std::byte> bytes;
};

// Throws std::runtime_error, which fails the test that asked, when the file is missing or malformed.
[[nodiscard]] std::vector<RecordedFrame> read_exchange(const std::string& path);

}  // namespace sluice::test
