// Class LocalPool starts `sluice reducer` processes on loopback for one run, on ports that the kernel
// assigns.
#pragma once

#include <string>
#include <vector>

#include "bench/e2e/process/process_group.h"
#include "core/result.h"

namespace sluice::bench {

struct LocalPoolOptions {
  uint32_t reducers = 1;  // 0: none; the workers reduce by themselves, and SLUICE_RENDEZVOUS is set for them
  uint32_t lanes = 0;     // lane threads per reducer and lane connections per rank; 0: the defaults
  bool payload_crc = true;
  bool health = false;     // scan contributions
  std::string state = {};  // folder in which a single reducer keeps models; empty: none
  std::string log_level = "warn";
  Nanos start_timeout = 20 * kSecond;
};

class LocalPool {
 public:
  // Returns when every reducer listens. After an error, `processes` still owns the reducers that were
  // started.
  [[nodiscard]] static Result<LocalPool> start(ProcessGroup& processes, const LocalPoolOptions& options);

  // Returns the pool list, for example "127.0.0.1:40123,127.0.0.1:40127"; "none" without reducers.
  [[nodiscard]] const std::string& list() const noexcept { return list_; }
  [[nodiscard]] const std::vector<size_t>& children() const noexcept { return children_; }

 private:
  std::string list_;
  std::vector<size_t> children_;
};

// Class TemporaryDirectory creates a directory in $TMPDIR (or /tmp) and removes it with its content.
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

// Waits until `child` writes its port to `path`; write_port_file() writes atomically. Errors: the child
// ended, the deadline passed, or a signal arrived.
[[nodiscard]] Result<uint16_t> wait_for_port(ProcessGroup& processes, size_t child, const std::string& path,
                                             Nanos deadline);

}  // namespace sluice::bench
