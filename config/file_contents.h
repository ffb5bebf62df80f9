// Reads a whole file up to a size limit. The limit is needed because users and platforms choose the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace sluice::config {

struct FileContents {
  // kNotFound: no such file or directory. kNotRegular: not a regular file. kTooLong: `text` is truncated.
  enum class Status : uint8_t { kOk, kNotFound, kUnreadable, kNotRegular, kTooLong };
  Status status = Status::kOk;
  int error = 0;  // errno for kNotFound and kUnreadable; EPIPE: a pipe without a writer
  std::string text = {};
};

// kRegular never blocks. kAny also accepts a pipe, such as a shell's <(...): it waits 5 s for a writer, and
// then until the writer closes the pipe.
enum class FileKind : uint8_t { kRegular, kAny };

[[nodiscard]] FileContents read_file_contents(const std::string& path, size_t max_bytes, FileKind kind);

// Returns the text, or an error: kSystem, "cannot read KIND PATH: REASON"; kInvalidArgument, "PATH: not a
// regular file" or "PATH: NOUN is longer than MAX bytes".
[[nodiscard]] Result<std::string> text_or_error(FileContents file, const std::string& path, size_t max_bytes,
                                                std::string_view noun, std::string_view kind = "");

// Reads the file. Errors: those of text_or_error().
[[nodiscard]] Result<std::string> read_text_file(const std::string& path, size_t max_bytes, FileKind kind,
                                                 std::string_view noun, std::string_view shown_kind = "");

// Returns "cannot read SHOWN: REASON" for an `errno` of opening or reading `path`. If the reason is the
// file's owner and mode, the text names them and what to do.
[[nodiscard]] std::string read_failure(const std::string& shown, const std::string& path, int error);

}  // namespace sluice::config
