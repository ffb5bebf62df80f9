#include <algorithm>
#include <cmath>

#include "config/sizing/formats/formats.h"

namespace sluice::config {

void append_wrapped(std::string& out, std::string_view text, std::string_view first_prefix,
                    std::string_view next_prefix) {
  constexpr size_t kWidth = 100;
  size_t column = first_prefix.size();
  out += first_prefix;
  bool has_word = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (has_word && column + 1 + end > kWidth) {
      out += '\n';
      out += next_prefix;
      column = next_prefix.size();
    } else if (has_word) {
      out += ' ';
      ++column;
    }
    out += text.substr(0, end);
    column += end;
    has_word = true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out += '\n';
}

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
