#include <algorithm>
#include <cmath>

#include "config/sizing/formats/formats.h"
#include "config/sizing/formats/wrapped_text.h"

namespace sluice::config {
std::string plan_as_comment(const Plan& plan) {
  std::string out;
  append_wrapped(out, verdict_sentence(plan) + ".", "# ", "# ");
  for (const std::string& warning : plan.warnings)
    append_wrapped(out, "Warning: " + warning + ".", "# ", "# ");
  return out;
}

bool is_job_name(std::string_view text) noexcept {
  constexpr size_t kMaxLength = 40;
  if (text.empty() || text.size() > kMaxLength || text.front() < 'a' || text.front() > 'z' ||
      text.back() == '-')
    return false;
  for (const char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return false;
  }
  return true;
}

uint64_t requested_cpus(const Plan& plan) noexcept {
  return 1 + static_cast<uint64_t>(std::ceil(plan.busy_processors));
}

uint64_t requested_gibibytes(const Plan& plan) noexcept {
  // A fifth of the container's memory is left for socket buffers, which sessions do not reserve.
  return std::max(div_ceil(plan.resident_bytes, kGiB) + 1,
                  div_ceil(plan.memory_limit + plan.memory_limit / 4, kGiB));
}

}  // namespace sluice::config
