#include <algorithm>
#include <cmath>

#include "config/sizing/formats/formats.h"
#include "config/sizing/formats/wrapped_text.h"

namespace sluice::config {
std::string plan_as_comment(const Plan& plan) {
  std::string out;
  append_wrapped(out, verdict_sentence(plan) + ".", "# ", "# ");
  for (const std::string& warning : plan.warnings) append_wrapped(out, "Mind: " + warning + ".", "# ", "# ");
  return out;
}

bool is_job_name(std::string_view text) noexcept {
  constexpr size_t kLongest = 40;
  if (text.empty() || text.size() > kLongest || text.front() < 'a' || text.front() > 'z' ||
      text.back() == '-')
    return false;
  for (const char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return false;
  }
  return true;
}

uint64_t processors_to_ask(const Plan& plan) noexcept {
  return 1 + static_cast<uint64_t>(std::ceil(plan.busy_processors));
}

uint64_t gibibytes_to_ask(const Plan& plan) noexcept {
  // Beside what sessions reserve there are sockets' buffers: a fifth of the container's is left for them.
  return std::max(div_ceil(plan.resident_bytes, kGiB) + 1,
                  div_ceil(plan.memory_limit + plan.memory_limit / 4, kGiB));
}

}  // namespace sluice::config
