#include "nccl_plugin/host/stats_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>

#include "config/file_pattern.h"
#include "config/json_text.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/settings.h"

namespace sluice::nccl {
namespace {

constexpr size_t kMaxTextBytes = 512;  // of a value, before its encoding

// "2026-11-23T06:41:21.042Z"
std::string utc_now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  std::array<char, 32> day{};
  std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%s.%03dZ", day.data(), static_cast<int>(now.tv_nsec / 1'000'000));
  return text.data();
}

void append_json(std::string& out, std::string_view text) {
  config::append_json_text(out, text, kMaxTextBytes);
}

}  // namespace

StatsLine::StatsLine(std::string_view kind) {
  text("time", utc_now()).text("host", config::host_name());
  number("pid", static_cast<uint64_t>(getpid())).text("job", settings().job).text("kind", kind);
}

void StatsLine::key(std::string_view name) {
  line_ += line_.empty() ? "{" : ",";
  append_json(line_, name);
  line_ += ':';
}

StatsLine& StatsLine::text(std::string_view name, std::string_view value) {
  key(name);
  append_json(line_, value);
  return *this;
}

StatsLine& StatsLine::number(std::string_view name, uint64_t value) {
  key(name);
  line_ += std::to_string(value);
  return *this;
}

StatsLine& StatsLine::real(std::string_view name, double value) {
  key(name);
  std::array<char, 40> digits{};
  std::snprintf(digits.data(), digits.size(), "%.9g", std::isfinite(value) ? value : 0.0);
  for (char& c : digits) {
    if (c == ',') c = '.';  // the job may have set a locale
  }
  line_ += digits.data();
  return *this;
}

StatsLine& StatsLine::boolean(std::string_view name, bool value) {
  key(name);
  line_ += value ? "true" : "false";
  return *this;
}

std::string StatsLine::take() {
  return std::move(line_) + "}\n";
}

std::string stats_path(std::string_view pattern, std::string_view host, int64_t pid) {
  return config::expand_file_pattern(pattern, {{'h', host}, {'p', std::to_string(pid)}});
}

bool append_line(const std::string& path, const std::string& line, std::string& error) {
  // Without O_NONBLOCK, a pipe without a reader would block the job. O_NOFOLLOW, because in a shared folder
  // others could foresee the name.
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
  const int fd = open(path.c_str(), kFlags, 0644);
  if (fd < 0) {
    error = errno == ELOOP ? "not a regular file" : std::strerror(errno);
    return false;
  }
  struct stat file {};
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
    error = "not a regular file";
  } else if (static_cast<uint64_t>(file.st_size) >= kMaxStatsBytes) {
    error = "the file has reached its limit of " + std::to_string(kMaxStatsBytes) + " bytes";
  } else if (const ssize_t written = write(fd, line.data(), line.size());
             written != static_cast<ssize_t>(line.size())) {
    error = written < 0 ? std::strerror(errno) : "the file system is full";
  }
  close(fd);
  return error.empty();
}

bool has_stats_file() noexcept {
  return !config::names_no_file(settings().stats_file);
}

void append_stats(StatsLine& line) noexcept {
  static std::atomic<bool> warned{false};
  try {
    const std::string path = stats_path(settings().stats_file, config::host_name(), getpid());
    std::string error;
    if (!append_line(path, line.take(), error) && !warned.exchange(true))
      warn("cannot write to SLUICE_STATS_FILE \"%s\": %s", path.c_str(), error.c_str());
  } catch (const std::exception&) {  // out of memory: the line is lost
  }
}

void append_refusal(OffReason reason, std::string_view text) noexcept {
  if (!has_stats_file()) return;
  try {
    StatsLine line("refused");
    append_stats(line.text("reason", to_string(reason)).text("why", text));
  } catch (const std::exception&) {  // out of memory: the line is lost
  }
}

}  // namespace sluice::nccl
