// Class RecordWriter writes what an observer records to the file of its session from a thread of its own, so
// that a slow disk delays no operation. The observer puts its records into bounded rings, and the thread
// collects them every 20 ms. A killed process loses the records of this time.
//
// Threads: open(), start() and stop() from the observer's owner; has_failed() from any; the rest from the
// writer's thread, in calls of Source. Errors: one warning; the file ends, and the session continues.
//
// fork(): the thread does not exist in a child, whose sessions have their own observers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "core/ids.h"
#include "core/result.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/trace/session_file.h"

namespace sluice::engine {

class RecordWriter {
 public:
  struct Output {
    const char* noun;      // "trace", in log lines
    const char* variable;  // "SLUICE_TRACE", which names the file
    const char* thread;    // name of the thread, at most 15 characters
    uint64_t max_bytes;    // of the file
  };

  // The observer. Its calls may throw, as any error.
  class Source {
   public:
    // Appends the records since the last call with append(). `last`: no call follows.
    [[nodiscard]] virtual Result<void> append_records(RecordWriter& writer, bool last) = 0;
    // Appends the end of the file to `out`. `reason` says why the file ends before its session; empty: it
    // does not. No more than SessionFile::kEndBytes fit on a full disk.
    virtual void append_end(std::string& out, std::string_view reason) = 0;

   protected:
    ~Source() = default;
  };

  // True when the variable names a file.
  [[nodiscard]] static bool is_requested(const Output& output) noexcept;
  // Returns null when the variable is not set and, after a warning, when the file cannot be opened.
  [[nodiscard]] static std::unique_ptr<RecordWriter> open(const Output& output, const SessionId& session,
                                                          Rank rank);
  RecordWriter(const RecordWriter&) = delete;
  ~RecordWriter() { stop(); }

  // Writes the begin of the file and starts the thread. `source` lives until stop(). Returns false after a
  // warning.
  [[nodiscard]] bool start(Source& source, std::string_view begin);
  // Collects the last records and ends the file. Later calls have no effect.
  void stop() noexcept;
  // Nobody collects records any more.
  [[nodiscard]] bool has_failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

  // The text that is not in the file yet. Append whole pieces and call flush_if_large() between them.
  [[nodiscard]] std::string& text() noexcept { return text_; }
  [[nodiscard]] Result<void> flush_if_large();
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void warn(const std::string& line) const { log_.warn(line); }

 private:
  RecordWriter(const Output& output, SessionFile file, std::string path, SessionLog log);
  void run(Source& source) noexcept;
  [[nodiscard]] Result<void> write_until_stopped(Source& source);
  [[nodiscard]] Result<void> flush();

  const Output output_;
  const std::string path_;
  const SessionLog log_;
  std::atomic<bool> failed_{false};

  // By the writer's thread.
  SessionFile file_;
  std::string text_;

  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace sluice::engine
