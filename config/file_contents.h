// Reads a whole file up to a size limit. The limit is needed because users and platforms choose the path. The
// caller formats the error message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice::config {

struct FileContents {
  // kNotFound: no such file or directory. kNotRegular: not a regular file. kTooLong: `text` is truncated.
  enum class Status : uint8_t { kOk, kNotFound, kUnreadable, kNotRegular, kTooLong };
  Status status = Status::kOk;
  int error = 0;  // errno for kNotFound and kUnreadable
  std::string text = {};
};

// kRegular never blocks. kAny also accepts a pipe, such as a shell's <(...), and waits for its writer.
enum class FileKind : uint8_t { kRegular, kAny };

[[nodiscard]] FileContents read_file_contents(const std::string& path, size_t max_bytes, FileKind kind);

}  // namespace sluice::config
