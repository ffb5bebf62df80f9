// Class SessionFile is a file that an observer writes for one session of one rank. It is written in whole
// pieces, so that it ends with a complete piece at any time.
//
// Threads: one at a time. Errors are texts for a warning; after one, finish() still ends the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/result.h"

namespace sluice::engine {

// The name of the file of one session and rank. "%r" is the rank, "%s" the first 8 digits of the session's
// id, "%h" the host and "%p" the process. Without any of them "-SESSION-rankN" is inserted before the
// extension, because ranks and sessions on one host must not write to the same file.
[[nodiscard]] std::string session_file_path(std::string_view pattern, const SessionId& session, Rank rank);

class SessionFile {
 public:
  // Empties the file, which append() lets grow to `max_bytes`. Returns an error when it is a link or not
  // regular, another session writes to it, or the system refuses it. Never waits for a reader of a pipe.
  [[nodiscard]] static Result<SessionFile> open(const std::string& path, uint64_t max_bytes);
  SessionFile(SessionFile&& other) noexcept;
  SessionFile(const SessionFile&) = delete;
  ~SessionFile();

  // Appends all of `text` or, with an error, nothing. Blocks as writes to a local file do.
  [[nodiscard]] Result<void> append(std::string_view text);
  // Writes the last text. Up to kEndBytes of it fit even after append() has failed, because append() writes
  // so many spaces behind each text and this call overwrites them.
  [[nodiscard]] Result<void> finish(std::string_view text);

  static constexpr size_t kEndBytes = 256;

 private:
  SessionFile(int fd, uint64_t max_bytes) : fd_(fd), max_bytes_(max_bytes) {}
  [[nodiscard]] Result<void> write_at(uint64_t offset, std::string_view text);

  int fd_;
  uint64_t max_bytes_;
  uint64_t size_ = 0;
};

}  // namespace sluice::engine
