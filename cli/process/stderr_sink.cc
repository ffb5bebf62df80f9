#include "cli/process/stderr_sink.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string>

namespace sluice::cli {
namespace {

// So many bytes fit into a pipe that poll() calls writable, and processes that share it do not mix them.
constexpr size_t kPiece = PIPE_BUF;

bool is_writable(int patience) noexcept {
  pollfd stream{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&stream, 1, patience);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;  // errors are those of the write
}

}  // namespace

bool StderrSink::write(std::string_view line) const noexcept {
  int patience = lost_ == 0 ? kPatience : 0;
  while (!line.empty()) {
    if (!is_writable(patience)) return false;
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size() < kPiece ? line.size() : kPiece);
    if (written > 0) {
      line.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      return true;  // a closed stderr must not end the process
    }
    patience = kPatience;
  }
  return true;
}

std::string_view StderrSink::format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& buffer) {
  buffer.clear();
  formatter_->format(message, buffer);
  return {buffer.data(), buffer.size()};
}

void StderrSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t buffer;
  if (lost_ > 0) {
    spdlog::details::log_msg note = message;
    const std::string text = fmt::format(
        "\"{} log lines were lost here: stderr did not accept them within {} ms\"", lost_, kPatience);
    note.level = spdlog::level::warn;
    note.payload = text;
    if (!write(format(note, buffer))) {
      ++lost_;
      return;
    }
    lost_ = 0;
  }
  if (!write(format(message, buffer))) ++lost_;
}

}  // namespace sluice::cli
