#include "config/sizing/formats/templates.h"

#include <algorithm>
#include <map>

#include "core/assert.h"

namespace sluice::config {

std::string fill_template(std::string_view text, std::span<const Substitution> substitutions) {
  // All offsets are found first, because a replacement may contain the original of another substitution.
  std::map<size_t, const Substitution*> offsets;
  for (const Substitution& substitution : substitutions) {
    const size_t at = text.find(substitution.original);
    SLUICE_ASSERT(at != std::string_view::npos &&
                  text.find(substitution.original, at + 1) == std::string_view::npos);
    SLUICE_ASSERT(offsets.emplace(at, &substitution).second);
  }
  std::string out;
  size_t done = 0;
  for (const auto& [at, substitution] : offsets) {
    SLUICE_ASSERT(at >= done);
    out += text.substr(done, at - done);
    out += substitution->replacement;
    done = at + substitution->original.size();
  }
  out += text.substr(done);
  return out;
}

std::vector<EnvVariable> nccl_variables() {
  std::vector<EnvVariable> out;
  std::string_view rest = kNcclConf;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string_view::npos) continue;
    out.push_back(
        {.name = std::string(line.substr(0, equals)), .value = std::string(line.substr(equals + 1))});
  }
  return out;
}

}  // namespace sluice::config
