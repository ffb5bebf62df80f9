#include "gpu_client/engine/trace/bit_record_format.h"

#include <unistd.h>

#include <array>
#include <ctime>
#include <span>

#include "config/file_pattern.h"
#include "config/printable_text.h"
#include "core/text_encoding.h"

#ifndef SLUICE_VERSION
#error "SLUICE_VERSION is defined by the build"
#endif

namespace sluice::engine {
namespace {

constexpr size_t kMaxReducersText = 4096;

// "2026-11-20T10:00:00.123Z"; `sluice bits` orders the sessions of a folder by it.
std::string begin_text() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  ::gmtime_r(&now.tv_sec, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  const std::string milliseconds = std::to_string(1000 + now.tv_nsec / kMillisecond).substr(1);
  return std::string(text.data()) + '.' + milliseconds + 'Z';
}

}  // namespace

void RunningHash::add(std::string_view columns) {
  std::string text(digest_.begin(), digest_.end());
  text += columns;
  digest_ = wire::sha256(std::as_bytes(std::span(text)));
}

uint64_t RunningHash::value() const noexcept {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof value; ++i) value = value << 8 | digest_[i];
  return value;
}

std::string bit_record_begin(const BitRecordSession& session) {
  std::string out(kBitRecordTitle);
  const auto add = [&out](std::string_view name, std::string_view value) {
    (((out += "\n# ") += name) += ' ') += config::printable(value, kMaxReducersText);
  };
  add("session", to_string(session.session));
  add("rank", std::to_string(session.rank));
  add("ranks", std::to_string(session.ranks));
  add("job", session.job);
  add("host", config::host_name());
  add("process", std::to_string(::getpid()));
  add("started", begin_text());
  add("library", SLUICE_VERSION);
  add("reducers", session.reducers);
  return ((out += '\n') += kBitRecordColumns) += '\n';
}

void append_operation(std::string& out, const BitOperation& operation, RunningHash& running) {
  const size_t begin = out.size();
  const std::string_view op = wire::copies(operation.kind) ? "-" : wire::to_string(operation.op);
  (out += std::to_string(operation.number)) += '\t';
  (out += wire::to_string(operation.kind)) += '\t';
  (out += wire::to_string(operation.dtype)) += '\t';
  (out += op) += '\t';
  (out += std::to_string(operation.count)) += '\t';
  switch (operation.state) {
    case ResultState::kHashed: out += hex_digits(operation.crc, 8); break;
    case ResultState::kNone: out += "none"; break;
    case ResultState::kOnDevice: out += "device"; break;
  }
  running.add(std::string_view(out).substr(begin));
  ((out += '\t') += hex_digits(running.value(), RunningHash::kDigits)) += '\n';
}

void append_bit_record_end(std::string& out, std::string_view reason) {
  ((out += "# end ") += reason.empty() ? "session closed" : config::printable(reason)) += '\n';
}

}  // namespace sluice::engine
