// Defines the result of discovery: the role of this process, the reducers, and the source of the information.
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

// In the order in which discovery tries them.
enum class Source : uint8_t {
  kStatic,
  kFile,
  kClusterSpec,
  kTfConfig,
  kSageMaker,
  kKubernetes,
  kSlurm,
  kJobHosts
};
inline constexpr Source kSources[] = {Source::kStatic,   Source::kFile,      Source::kClusterSpec,
                                      Source::kTfConfig, Source::kSageMaker, Source::kKubernetes,
                                      Source::kSlurm,    Source::kJobHosts};

[[nodiscard]] std::string_view to_string(Role role) noexcept;
[[nodiscard]] std::string_view to_string(Source source) noexcept;  // as in SLUICE_DISCOVERY

struct DiscoveryResult {
  Role role = Role::kUnknown;
  // Index among the processes of this role; for a reducer its index in `reducers`.
  std::optional<uint32_t> index = {};
  std::vector<Endpoint> reducers = {};  // at least one, in the same order for all processes of the job
  uint32_t workers = 0;                 // number of worker hosts; 0: unknown to the source
  Source source = Source::kStatic;
  std::string file = {};                // the file of SLUICE_REDUCERS=@FILE, otherwise empty
  std::string job = {};                 // job name for people and logs; empty: none is set
  std::vector<std::string> notes = {};  // further information for the log
};

// The source is not configured for this process, which is no error.
struct NotConfigured {
  std::string reason;
};

// An error means that the source is configured wrongly (kInvalidArgument, kSystem) or does not answer
// (kTimeout).
using SourceResult = Result<std::variant<DiscoveryResult, NotConfigured>>;

}  // namespace sluice::config::discovery
