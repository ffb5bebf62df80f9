#include "cli/process/logging.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "cli/process/stderr_sink.h"
#include "config/json.h"
#include "core/log.h"
#include "core/text_encoding.h"

namespace sluice::cli {
namespace {

bool as_json = false;  // set before other threads start

void to_spdlog(log::Level level, std::string_view line) noexcept {
  try {
    const auto as_spdlog = level == log::Level::kDebug  ? spdlog::level::debug
                           : level == log::Level::kInfo ? spdlog::level::info
                           : level == log::Level::kWarn ? spdlog::level::warn
                                                        : spdlog::level::err;
    if (!spdlog::should_log(as_spdlog)) return;
    spdlog::log(as_spdlog, "{}",
                as_json ? config::json_text(nlohmann::json(visible_text(line))) : logfmt_quoted(line));
  } catch (...) {  // out of memory or a closed stderr must not end the process
  }
}

constexpr std::string_view kErrorPriority = "<3>";

// Class JournalPriority writes the syslog priority of a line (sd-daemon(3)).
class JournalPriority final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& to) override {
    const std::string_view text = message.level == spdlog::level::debug  ? "<7>"
                                  : message.level == spdlog::level::info ? "<6>"
                                  : message.level == spdlog::level::warn ? "<4>"
                                                                         : kErrorPriority;
    to.append(text.data(), text.data() + text.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JournalPriority>();
  }
};

// JOURNAL_STREAM is the device:inode of the stderr that systemd opened (systemd.exec(5)). A child inherits
// the variable even when its stderr is redirected, so both are compared.
bool stderr_is_journal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat info {};
  return stream != nullptr && ::fstat(STDERR_FILENO, &info) == 0 &&
         fmt::format("{}:{}", info.st_dev, info.st_ino) == stream;
}

}  // namespace

std::string with_error_priority(std::string_view lines) {
  if (!stderr_is_journal()) return std::string(lines);
  std::string out(kErrorPriority);
  for (const char c : lines) {
    out += c;
    if (c == '\n') out += kErrorPriority;
  }
  return out;
}

std::string logfmt_quoted(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return '"' + visible_text(escaped) + '"';
}

void start_logging(const std::string& level, const std::string& format) {
  auto logger = std::make_shared<spdlog::logger>("sluice", std::make_shared<StderrSink>());
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
  set_log_format(format);
  log::set_sink(&to_spdlog);
}

void set_log_format(const std::string& format) {
  as_json = format == "json";
  auto pattern = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  pattern->add_flag<JournalPriority>('*');
  pattern->set_pattern(std::string(stderr_is_journal() ? "%*" : "") +
                       (as_json ? R"({"ts":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","msg":%v})"
                                : "ts=%Y-%m-%dT%H:%M:%S.%eZ level=%l msg=%v"));
  spdlog::default_logger()->set_formatter(std::move(pattern));
}

void set_log_level(const std::string& level) {
  spdlog::set_level(spdlog::level::from_str(level));
}

}  // namespace sluice::cli
