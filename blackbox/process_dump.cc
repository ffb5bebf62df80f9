#include "blackbox/process_dump.h"

#include <limits.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "blackbox/dump_file.h"
#include "config/file_pattern.h"
#include "config/host/writable_path.h"
#include "core/assert.h"
#include "core/log.h"

namespace sluice::blackbox {
namespace {

constexpr size_t kMaxPath = PATH_MAX - 64;  // room for the suffix of write_dump()

// Constant-initialized and never destroyed, because threads may use it while the process exits.
struct Settings {
  std::array<char, 64> program{};
  std::array<char, 16> suffix{};
  std::array<char, kMaxPath> pattern{};  // empty: none
  std::array<char, kMaxPath> path{};     // of the pattern for process `path_process`
  pid_t path_process = 0;
  pid_t process = 0;  // that has recorded its start
};
constinit Settings settings;
constinit std::atomic<bool> has_path{false};
constinit std::atomic<bool> has_failed{false};  // the last write, of dump_after_failure()

// The process that uses `settings` or writes a file now; 0: none. Not a mutex: a child of fork() must not
// wait for a thread of its parent.
constinit std::atomic<pid_t> owner{0};

class Ownership {
 public:
  // `waits` false: gives up at once if another thread has the ownership.
  explicit Ownership(bool waits = true) noexcept {
    for (;;) {
      pid_t current = 0;
      if (owner.compare_exchange_strong(current, self_, std::memory_order_acquire)) break;
      if (current != self_ && owner.compare_exchange_strong(current, self_, std::memory_order_acquire)) break;
      if (!waits) return;
      const timespec pause{.tv_sec = 0, .tv_nsec = kMillisecond};
      ::nanosleep(&pause, nullptr);
    }
    is_held_ = true;
  }
  ~Ownership() {
    if (is_held_) owner.store(0, std::memory_order_release);
  }
  Ownership(const Ownership&) = delete;
  [[nodiscard]] bool is_held() const noexcept { return is_held_; }

 private:
  const pid_t self_ = ::getpid();
  bool is_held_ = false;
};

template <size_t kSize>
void assign(std::array<char, kSize>& to, std::string_view text) noexcept {
  to.fill('\0');
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), to.begin());
}

DumpHeader header_for(std::string_view why) noexcept {
  const std::string_view program = settings.program.data();
  return {.program = program.empty() ? "sluice" : program, .why = why};
}

std::string own_path(std::string_view pattern) {
  return dump_path(pattern, config::host_name(), ::getpid(), settings.suffix.data());
}

// Resolves the pattern for this process. With ownership.
void update_path() {
  if (settings.pattern[0] == '\0') return;
  const std::string path = own_path(settings.pattern.data());
  assign(settings.path, path.size() < kMaxPath ? std::string_view(path) : std::string_view());
  settings.path_process = ::getpid();
}

// Must not allocate or wait: the process may have been interrupted anywhere.
void dump_after_assertion() noexcept {
  const Ownership ownership(false);
  // A child of fork() must not replace the file of its parent.
  if (!ownership.is_held() || settings.path[0] == '\0' || settings.path_process != ::getpid()) return;
  static_cast<void>(write_dump(settings.path.data(), header_for("assertion failed"), process_rings()));
}

std::string default_folder() {
  const char* const logs = std::getenv("LOGS_DIRECTORY");  // a list of paths with colons between them
  if (logs != nullptr && *logs != '\0') return {logs, std::strcspn(logs, ":")};
  const char* const folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/tmp";
}

void warn(std::string_view why, const std::string& reason) {
  log::warn("black box not written (" + std::string(why) + "): " + reason);
}

// A failure that follows is not another warning.
void check_at_start() noexcept {
  if (settings.pattern[0] == '\0') return;
  try {
    const Result<void> checked = check_dump_path(settings.pattern.data());
    if (!checked && !has_failed.exchange(true, std::memory_order_relaxed))
      warn("check at start", checked.error().text);
  } catch (const std::exception&) {  // out of memory: the failure will warn
  }
}

}  // namespace

void name_process(std::string_view program, std::string_view suffix) noexcept {
  const Ownership ownership;
  if (settings.program[0] != '\0') return;
  assign(settings.program, program);
  assign(settings.suffix, suffix);
}

void set_dump_path(std::string_view pattern) noexcept {
  const Ownership ownership;
  const bool is_usable = pattern.size() < kMaxPath && !config::names_no_file(pattern);
  assign(settings.pattern, is_usable ? pattern : std::string_view());
  assign(settings.path, {});
  try {
    update_path();
  } catch (const std::exception&) {  // out of memory: only an assertion misses the path
  }
  has_path.store(settings.pattern[0] != '\0', std::memory_order_relaxed);
  if (settings.pattern[0] != '\0') set_assert_hook(&dump_after_assertion);
}

bool has_dump_path() noexcept {
  return has_path.load(std::memory_order_relaxed);
}

Result<void> check_dump_path(std::string_view pattern) {
  if (config::names_no_file(pattern)) return {};
  return config::check_replaceable_file(own_path(pattern));
}

void begin_in_library(std::string_view library) noexcept {
  name_process(library);
  if (!has_dump_path()) {
    const char* const pattern = std::getenv("SLUICE_BLACKBOX");
    if (pattern != nullptr) set_dump_path(pattern);
  }
  const pid_t process = ::getpid();
  const Ownership ownership;
  if (settings.process == process) return;
  ProcessRings& rings = process_rings();
  if (settings.process != 0) {  // a child of fork(): these events are the parent's
    rings.events.clear();
    rings.frequent.clear();
  }
  settings.process = process;
  check_at_start();
  EventSource().record(EventKind::kStarted, {}, settings.program.data());
}

Result<std::string> write_process_dump(std::string_view why) {
  const Ownership ownership;
  std::string path;
  if (settings.pattern[0] != '\0') {
    update_path();  // the folder may exist by now
    path = settings.path.data();
    if (path.empty()) return fail(Errc::kSystem, std::strerror(ENAMETOOLONG));
  } else {
    path = own_path(default_folder() + "/sluice-blackbox.jsonl");
  }
  const char* const error = write_dump(path.c_str(), header_for(why), process_rings());
  if (error != nullptr) return fail(Errc::kSystem, "cannot write \"" + path + "\": " + error);
  return path;
}

void dump_on_request(std::string_view why) noexcept {
  try {
    const Result<std::string> path = write_process_dump(why);
    if (!path) return warn(why, path.error().text);
    log::info("black box written to " + *path + " (" + std::string(why) + ")");
  } catch (const std::exception&) {  // out of memory: no file
  }
}

void dump_after_failure(std::string_view why) noexcept {
  if (!has_dump_path()) return;
  try {
    const Result<std::string> path = write_process_dump(why);
    if (path) log::info("black box written to " + *path + " (" + std::string(why) + ")");
    if (!has_failed.exchange(!path, std::memory_order_relaxed) && !path) warn(why, path.error().text);
  } catch (const std::exception&) {  // out of memory: no file
  }
}

std::string dump_path(std::string_view pattern, std::string_view host, int64_t pid, std::string_view suffix) {
  const std::string process = std::to_string(pid);
  const auto expand = [&](std::string_view text) {
    return config::expand_file_pattern(text, {{'h', host}, {'p', process}});
  };
  std::string path = expand(pattern);
  struct stat info {};
  const bool is_folder = path.ends_with('/') || (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode));
  if (is_folder) {
    if (!path.ends_with('/')) path += '/';
    return path.append("blackbox-").append(host).append("-").append(process).append(suffix).append(".jsonl");
  }
  // "%%" and "%h" distinguish no processes.
  const bool has_process = path != config::expand_file_pattern(pattern, {{'h', host}});
  const size_t slash = path.rfind('/');
  const size_t dot = path.rfind('.');
  const size_t name = slash == path.npos ? 0 : slash + 1;
  const bool has_extension = dot != path.npos && dot > name;
  std::string inserted = has_process ? std::string() : "-" + std::string(host) + "-" + process;
  return path.insert(has_extension ? dot : path.size(), inserted.append(suffix));
}

}  // namespace sluice::blackbox
