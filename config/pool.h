// Which reducers a job uses, as people say it: the list itself, or "@FILE", a file with one address a line
// that may change while jobs run. One reader for library, plugin and programs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::config {

inline constexpr size_t kMaxPoolFile = kMiB;

struct Pool {
  std::vector<Endpoint> reducers;
  std::string file;  // where they stand; empty: the list was given as it is
};

// "host[:port][*weight],..." or "@FILE". kSystem when the file can't be read; kInvalidArgument names what is
// wrong, of a file as `FILE:line:column: "b:99999": port 99999 is not in 1..65535`.
[[nodiscard]] Result<Pool> read_pool(std::string_view text);

// The same, of who needs the addresses of this moment alone.
[[nodiscard]] Result<std::vector<Endpoint>> read_reducers(std::string_view text);

// What such a file holds: "host[:port][*weight]" a line; from '#' on a line is a comment; empty lines are
// skipped. "slots=N", "max_slots=N" and "max-slots=N" behind the host mean nothing here: a hostfile of an
// MPI can be such a list. At least one address. Errors begin with "line:column: ".
[[nodiscard]] Result<std::vector<Endpoint>> parse_pool_file(std::string_view text);

// Tells by stat() alone when a file is to be read again. It must have stood still from one look to the next,
// so that one that is being written is not taken for a short one.
class FileWatch {
 public:
  explicit FileWatch(std::string path) : path_(std::move(path)) {}
  // True once for each change; the first sight of the file is one. A file that is not there, for a moment or
  // for good, has not changed.
  [[nodiscard]] bool changed();
  // It is a file that can be read over and over: no pipe, which could block whoever reads it again.
  [[nodiscard]] bool there() const { return look().has_value(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    Nanos written = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  [[nodiscard]] std::optional<Stamp> look() const;

  std::string path_;
  std::optional<Stamp> read_;
  std::optional<Stamp> seen_;
};

}  // namespace sluice::config
