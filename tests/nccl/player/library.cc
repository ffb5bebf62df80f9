#include "tests/nccl/player/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <vector>

#include "tests/nccl/player/failure.h"

// Exported by the program. The plugin looks it up where it finds the logger, as in NCCL's library.
// NOLINTNEXTLINE(readability-identifier-naming): the name of NCCL
extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = player::played_release;
  return player::played_release == 0 ? 4 : 0;  // ncclInvalidArgument, ncclSuccess
}

namespace player {

int played_release = 0;

namespace {

struct Log {
  std::mutex mutex;
  std::condition_variable changed;
  std::string prefix;
  bool show = false;
  std::vector<std::string> lines;
};
// Never destroyed: threads of the plugin outlive main().
Log& log() {
  static Log& log = *new Log;
  return log;
}

}  // namespace

Library::Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) throw Failure(std::string("dlopen: ") + dlerror());
}

Library::~Library() {
  dlclose(handle_);
}

void* Library::table(const char* family, int abi) const {
  const std::string symbol = std::string(family) + "_v" + std::to_string(abi);
  void* const found = dlsym(handle_, symbol.c_str());
  if (found == nullptr) throw Failure("the plugin has no symbol " + symbol);
  return found;
}

void set_log_prefix(const std::string& prefix, bool show) {
  const std::lock_guard lock(log().mutex);
  log().prefix = prefix;
  log().show = show;
}

void log_from_plugin(int level, unsigned long, const char*, int, const char* format, ...) {
  char text[1024];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(log().mutex);
  log().lines.emplace_back(text);
  log().changed.notify_all();
  if (log().show || level <= kLogWarn) {
    std::fprintf(stderr, "%s%s %s\n", log().prefix.c_str(), level <= kLogWarn ? "WARN" : "INFO", text);
  }
}

bool wait_for_log(const std::string& text, std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(log().mutex);
  return log().changed.wait_until(lock, deadline, [&] {
    return std::ranges::any_of(log().lines,
                               [&](const std::string& line) { return line.find(text) != line.npos; });
  });
}

}  // namespace player
