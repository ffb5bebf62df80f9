#include "cli/logging.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "core/log.h"

namespace sluice::cli {
namespace {

void to_spdlog(log::Level level, std::string_view line) noexcept {
  try {
    const auto as_spdlog = level == log::Level::kDebug  ? spdlog::level::debug
                           : level == log::Level::kInfo ? spdlog::level::info
                           : level == log::Level::kWarn ? spdlog::level::warn
                                                        : spdlog::level::err;
    spdlog::log(as_spdlog, "{}", quoted(line));
  } catch (...) {  // out of memory or a closed stderr: a log line is not worth the process
  }
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

void start_logging(const std::string& level) {
  auto logger = spdlog::stderr_logger_mt("sluice");
  logger->set_pattern("ts=%Y-%m-%dT%H:%M:%S.%eZ level=%l msg=%v", spdlog::pattern_time_type::utc);
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  log::set_sink(&to_spdlog);
}

}  // namespace sluice::cli
