#include "config/sizing/formats/shipped.h"

#include <algorithm>
#include <map>

#include "core/assert.h"

namespace sluice::config {

std::string with_figures(std::string_view text, std::span<const Figure> figures) {
  // By place: what is put in may read like what another figure replaces.
  std::map<size_t, const Figure*> places;
  for (const Figure& figure : figures) {
    const size_t at = text.find(figure.shipped);
    SLUICE_ASSERT(at != std::string_view::npos &&
                  text.find(figure.shipped, at + 1) == std::string_view::npos);
    SLUICE_ASSERT(places.emplace(at, &figure).second);
  }
  std::string out;
  size_t done = 0;
  for (const auto& [at, figure] : places) {
    SLUICE_ASSERT(at >= done);
    out += text.substr(done, at - done);
    out += figure->planned;
    done = at + figure->shipped.size();
  }
  out += text.substr(done);
  return out;
}

std::vector<Switch> nccl_switches() {
  std::vector<Switch> out;
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
