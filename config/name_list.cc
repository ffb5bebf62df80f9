#include "config/name_list.h"

#include <algorithm>
#include <string>
#include <utility>

namespace sluice::config {

bool is_listed(std::string_view list, std::string_view name, unsigned port) {
  const bool excludes = list.starts_with('^');
  if (excludes) list.remove_prefix(1);
  const bool exact = list.starts_with('=');
  if (exact) list.remove_prefix(1);
  bool listed = false;
  while (!list.empty() && !listed) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view entry = list.substr(0, comma);
    const size_t colon = std::min(entry.find(':'), entry.size());
    const std::string_view pattern = entry.substr(0, colon);
    const bool port_matches =
        port == 0 || colon == entry.size() || entry.substr(colon + 1) == std::to_string(port);
    listed = !pattern.empty() && port_matches && (exact ? name == pattern : name.starts_with(pattern));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return listed != excludes;
}

std::function<bool(std::string_view device, unsigned port)> port_filter(std::string list) {
  if (list.empty()) return {};
  return [list = std::move(list)](std::string_view device, unsigned port) {
    return is_listed(list, device, port);
  };
}

}  // namespace sluice::config
