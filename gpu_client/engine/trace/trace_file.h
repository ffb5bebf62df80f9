// Class TraceFile is the file that SLUICE_TRACE names: opened for one session of one rank, and written in
// whole pieces, so that it ends with a complete event at any time.
//
// Threads: one at a time. Errors are texts for a warning; after one, finish() still ends the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::engine {

inline constexpr uint64_t kMaxTraceBytes = 256 * kMiB;  // a viewer in a browser opens no larger one

// The name of the file of one session and rank. "%r" is the rank, "%s" the first 8 digits of the session's
// id, "%h" the host and "%p" the process. Without any of them "-SESSION-rankN" is inserted before the
// extension, because ranks and sessions on one host must not write to the same file.
[[nodiscard]] std::string trace_path(std::string_view pattern, const SessionId& session, Rank rank);

class TraceFile {
 public:
  // Empties the file. Returns an error when it is not regular, another session writes to it, or the system
  // refuses it. Never waits for a reader of a pipe.
  [[nodiscard]] static Result<TraceFile> open(const std::string& path);
  TraceFile(TraceFile&& other) noexcept;
  TraceFile(const TraceFile&) = delete;
  ~TraceFile();

  // Appends all of `text` or, with an error, nothing. Blocks as writes to a local file do.
  [[nodiscard]] Result<void> append(std::string_view text);
  // Writes the last text. Up to kEndBytes of it fit even after append() has failed, because append() writes
  // so many spaces behind each text and this call overwrites them.
  [[nodiscard]] Result<void> finish(std::string_view text);

  static constexpr size_t kEndBytes = 256;

 private:
  explicit TraceFile(int fd) : fd_(fd) {}
  [[nodiscard]] Result<void> write_at(uint64_t offset, std::string_view text);

  int fd_;
  uint64_t size_ = 0;
};

}  // namespace sluice::engine
