// Class Library loads the plugin file as NCCL does. The functions below it record the log of the plugin.
#pragma once

#include <chrono>
#include <string>

#include "tests/nccl/player/nccl_types.h"

namespace player {

class Library {
 public:
  // Throws Failure with the text of dlerror().
  explicit Library(const std::string& path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Returns the table of a version: ("ncclNetPlugin", 8) is the symbol ncclNetPlugin_v8. Throws Failure
  // without the symbol.
  [[nodiscard]] void* table(const char* family, int abi) const;

 private:
  void* handle_;
};

// What the player's ncclGetVersion() returns: 22705 is NCCL 2.27.5. 0: it fails, so the plugin knows no
// release.
extern int played_release;

// The logger that the player passes to the plugin. It records lines and prints them to stderr with the rank.
// Any thread.
void log_from_plugin(int level, unsigned long flags, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 5, 6)));
// Waits for a line that contains `text`. Returns false at the deadline.
[[nodiscard]] bool wait_for_log(const std::string& text, std::chrono::steady_clock::time_point deadline);
void set_log_prefix(const std::string& prefix, bool show);

}  // namespace player
