#include "gpu_client/engine/trace/record_writer.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <utility>

#include "config/file_pattern.h"
#include "core/units.h"
#include "gpu_client/engine/base/thread.h"

namespace sluice::engine {
namespace {

constexpr size_t kFlushBytes = 256 * kKiB;
// How often the thread looks at the rings. No other thread wakes it, because that would cost the progress
// loop a system call.
constexpr auto kInterval = std::chrono::milliseconds(20);

std::string cannot_write(const RecordWriter::Output& output, const std::string& path,
                         const std::string& why) {
  return std::string(": cannot write to ") + output.variable + " \"" + path + "\": " + why;
}

}  // namespace

bool RecordWriter::is_requested(const Output& output) noexcept {
  const char* const pattern = std::getenv(output.variable);
  return pattern != nullptr && !config::names_no_file(pattern);
}

std::unique_ptr<RecordWriter> RecordWriter::open(const Output& output, const SessionId& session, Rank rank) {
  if (!is_requested(output)) return nullptr;
  std::string path = session_file_path(std::getenv(output.variable), session, rank);
  const SessionLog log(session, rank);
  auto file = SessionFile::open(path, output.max_bytes);
  if (file) {
    return std::unique_ptr<RecordWriter>(new RecordWriter(output, std::move(*file), std::move(path), log));
  }
  log.warn(std::string("no ") + output.noun + cannot_write(output, path, file.error().text));
  return nullptr;
}

RecordWriter::RecordWriter(const Output& output, SessionFile file, std::string path, SessionLog log)
    : output_(output), path_(std::move(path)), log_(std::move(log)), file_(std::move(file)) {}

bool RecordWriter::start(Source& source, std::string_view begin) {
  text_ = begin;
  Result<void> started = flush();
  if (started) {
    auto thread = start_thread(output_.thread, [this, &source] { run(source); });
    if (thread) {
      thread_ = std::move(*thread);
      return true;
    }
    started = tl::unexpected(thread.error());
  }
  log_.warn(std::string("no ") + output_.noun + cannot_write(output_, path_, started.error().text));
  return false;
}

void RecordWriter::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

Result<void> RecordWriter::flush_if_large() {
  return text_.size() >= kFlushBytes ? flush() : Result<void>();
}

void RecordWriter::run(Source& source) noexcept {
  std::string error;
  try {
    const Result<void> written = write_until_stopped(source);
    if (!written) error = written.error().text;
  } catch (const std::exception& e) {
    error = e.what();
  }
  failed_.store(true, std::memory_order_relaxed);
  try {
    text_.clear();
    source.append_end(text_, error);
    const Result<void> ended = file_.finish(text_);
    if (error.empty() && !ended) error = ended.error().text;
    if (!error.empty())
      log_.warn(std::string("the ") + output_.noun + " ends early" + cannot_write(output_, path_, error));
  } catch (const std::exception&) {  // out of memory: the file has no end
  }
}

Result<void> RecordWriter::write_until_stopped(Source& source) {
  std::unique_lock lock(mutex_);
  for (bool last = false; !last;) {
    last = stop_.wait_for(lock, kInterval, [this] { return stopping_; });
    lock.unlock();
    SLUICE_RETURN_IF_ERROR(source.append_records(*this, last));
    SLUICE_RETURN_IF_ERROR(flush());
    lock.lock();
  }
  return {};
}

Result<void> RecordWriter::flush() {
  if (text_.empty()) return {};
  const Result<void> written = file_.append(text_);
  text_.clear();
  return written;
}

}  // namespace sluice::engine
