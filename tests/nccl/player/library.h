// The plugin's file, opened as NCCL does.
#pragma once

#include <chrono>
#include <string>

#include "tests/nccl/player/words.h"

namespace player {

class Library {
 public:
  // Throws Failure with dlerror()'s text.
  explicit Library(const std::string& path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // "ncclNetPlugin", 8: the symbol ncclNetPlugin_v8. Throws Failure where the file has none.
  [[nodiscard]] void* table(const char* family, int abi) const;
  [[nodiscard]] bool has(const char* family, int abi) const;

 private:
  void* handle_;
};

// NCCL's logger: lines of the plugin go to stderr with the rank in front, and are kept. Any thread.
void log_from_plugin(int level, unsigned long flags, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 5, 6)));
// All lines logged so far that contain `text`.
[[nodiscard]] int logged(const std::string& text);
// Until there is one. False: not by the deadline.
[[nodiscard]] bool wait_logged(const std::string& text, std::chrono::steady_clock::time_point deadline);
void set_log_prefix(const std::string& prefix, bool show);

}  // namespace player
