// What discovery comes to: who this process is, where the reducers are, who said so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"

namespace sluice::config::discovery {

enum class Role : uint8_t { kUnknown, kReducer, kWorker };

// In the order in which they are tried.
enum class Source : uint8_t {
  kStatic,
  kFile,
  kClusterSpec,
  kTfConfig,
  kSageMaker,
  kKubernetes,
  kSlurm,
};
inline constexpr Source kSources[] = {Source::kStatic,   Source::kFile,      Source::kClusterSpec,
                                      Source::kTfConfig, Source::kSageMaker, Source::kKubernetes,
                                      Source::kSlurm};

[[nodiscard]] std::string_view to_string(Role role) noexcept;
[[nodiscard]] std::string_view to_string(Source source) noexcept;  // as SLUICE_DISCOVERY has it

struct Found {
  Role role = Role::kUnknown;
  // Among those of its role; of a reducer its place in `reducers`.
  std::optional<uint32_t> index = {};
  std::vector<Endpoint> reducers = {};  // in the order that all processes of the job see; at least one
  uint32_t workers = 0;                 // hosts that contribute, as far as the source says; 0: it does not
  Source source = Source::kStatic;
  std::string file = {};                // where the list stands, of SLUICE_REDUCERS=@FILE; else empty
  std::string job = {};                 // a name for people and logs; empty: nobody gave one
  std::vector<std::string> notes = {};  // what a person may want to know, a line each
};

// A source that this process has not got, which is no mistake.
struct NotHere {
  std::string why;
};

// An error is a source that is there and wrong (kInvalidArgument, kSystem) or silent (kTimeout).
using Answer = Result<std::variant<Found, NotHere>>;

}  // namespace sluice::config::discovery
