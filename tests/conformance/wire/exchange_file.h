// Reader of recorded exchanges. A file lists frames in the order of time. Each frame starts with a line "@
// connection > NAME" (client to reducer) or "@ connection < NAME" (reducer to client), followed by its bytes
// as hex digits. '#' begins a comment.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sluice::test {

struct RecordedFrame {
  std::string connection;
  bool to_reducer = false;
  std::string name;  // "HELLO", or "RESULT 0 to rank 1" for a data frame
  std::vector<std::byte> bytes;
};

// Throws std::runtime_error when the file is missing or malformed.
[[nodiscard]] std::vector<RecordedFrame> read_exchange(const std::string& path);

}  // namespace sluice::test
