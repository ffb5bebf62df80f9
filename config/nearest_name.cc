#include "config/nearest_name.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace sluice::config {
namespace {

constexpr size_t kMaxLength = 64;  // names come from files and environments, so the work must be bounded

size_t distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kMaxLength);
  b = b.substr(0, kMaxLength);
  std::array<size_t, kMaxLength + 1> row{};
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names) {
  const auto nearest =
      std::ranges::min_element(names, {}, [name](std::string_view known) { return distance(name, known); });
  return nearest == names.end() ? std::string_view() : *nearest;
}

}  // namespace sluice::config
