// Reads the reducer list of a job: the list itself, or "@FILE", a file with one address per line that may
// change while jobs run. The client library, the NCCL plugin and the programs share this parser.
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
inline constexpr std::string_view kNoReducers = "none";

struct Pool {
  std::vector<Endpoint> reducers;
  std::string file;  // the file that lists the reducers; empty: the list was given directly
};

// Parses "host[:port][*weight],...", "@FILE", or "none" for a job without dedicated reducers, whose list is
// empty. Returns kSystem when the file cannot be read. Returns
// kInvalidArgument with the reason; for a file: `FILE:line:column: "b:99999": port "99999" is not
// in 1..65535`.
[[nodiscard]] Result<Pool> read_pool(std::string_view text);

// Like read_pool(), for callers that do not follow later changes of the file.
[[nodiscard]] Result<std::vector<Endpoint>> read_reducers(std::string_view text);

// Parses the contents of a pool file: "host[:port][*weight]" per line, comments from '#' to the end of the
// line, empty lines skipped. "slots=N", "max_slots=N" and "max-slots=N" after the host are ignored, so an MPI
// hostfile is a valid pool file. At least one address is required. Errors begin with "line:column: ".
[[nodiscard]] Result<std::vector<Endpoint>> parse_pool_file(std::string_view text);

// Class FileWatch detects by stat() when a file must be read again. A change counts once two calls in a row
// see the same file. Otherwise a file that is still being written could be read half-finished.
class FileWatch {
 public:
  explicit FileWatch(std::string path) : path_(std::move(path)) {}
  // Returns true once per change; the first sight of the file is a change. A missing file has not changed.
  [[nodiscard]] bool has_changed();
  // True for a regular file. A pipe is excluded: reading it again could block.
  [[nodiscard]] bool exists() const { return stat_file().has_value(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    Nanos modified = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  [[nodiscard]] std::optional<Stamp> stat_file() const;

  std::string path_;
  std::optional<Stamp> reported_;  // of the last reported change
  std::optional<Stamp> last_seen_;
};

}  // namespace sluice::config
