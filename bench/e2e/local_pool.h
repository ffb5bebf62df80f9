// Reducers on loopback for one run: as many `sluice reducer` processes as asked for, on ports the OS chose.
#pragma once

#include <string>
#include <vector>

#include "bench/e2e/process_group.h"
#include "core/result.h"

namespace sluice::bench {

struct LocalPoolOptions {
  uint32_t reducers = 1;
  uint32_t lanes = 0;  // lane threads of each, and lane connections it offers a rank; 0: its defaults
  bool payload_crc = true;
  std::string key_file = {};  // empty: none
  std::string log_level = "warn";
  Nanos start_timeout = 20 * kSecond;
};

class LocalPool {
 public:
  // Returns when every reducer listens. On error those that were started are ended by `processes`.
  [[nodiscard]] static Result<LocalPool> start(ProcessGroup& processes, const LocalPoolOptions& options);

  // "127.0.0.1:40123,127.0.0.1:40127"
  [[nodiscard]] const std::string& list() const noexcept { return list_; }
  [[nodiscard]] const std::vector<size_t>& children() const noexcept { return children_; }

 private:
  std::string list_;
  std::vector<size_t> children_;
};

// A fresh directory under $TMPDIR (or /tmp), removed with what is in it.
class TemporaryDirectory {
 public:
  [[nodiscard]] static Result<TemporaryDirectory> make();
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Waits until `path` (written atomically by `child`) holds a port. Errors: the child ended first, the
// deadline passed, interrupted.
[[nodiscard]] Result<uint16_t> wait_for_port(ProcessGroup& processes, size_t child, const std::string& path,
                                             Nanos deadline);

}  // namespace sluice::bench
