// The text of a file that people or platforms write. Bounded, since its path may name anything; the caller
// has the words for what went wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice::config {

struct WholeFile {
  // kMissing: no such file or folder. kNoFile: something else than a regular file. kTooLong: `text` is cut.
  enum class End : uint8_t { kRead, kMissing, kUnreadable, kNoFile, kTooLong };
  End end = End::kRead;
  int error = 0;  // errno, of kMissing and kUnreadable
  std::string text = {};
};

// kRegular never blocks. kAny takes a pipe too, as a shell makes one of <(...), and waits for its writer.
enum class FileKind : uint8_t { kRegular, kAny };

// At most `most` bytes.
[[nodiscard]] WholeFile read_whole_file(const std::string& path, size_t most, FileKind kind);

}  // namespace sluice::config
