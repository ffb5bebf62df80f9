#include "config/discovery/natural_order.h"

#include <algorithm>

namespace sluice::config::discovery {
namespace {

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

std::string_view digits_of(std::string_view text) noexcept {
  const auto end = std::ranges::find_if_not(text, is_digit);
  return text.substr(0, static_cast<size_t>(end - text.begin()));
}

std::string_view value_of(std::string_view digits) noexcept {
  return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) noexcept {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view da = digits_of(a), db = digits_of(b);
      const std::string_view va = value_of(da), vb = value_of(db);
      if (va.size() != vb.size()) return va.size() < vb.size();
      if (va != vb) return va < vb;
      a.remove_prefix(da.size());
      b.remove_prefix(db.size());
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a.size() != whole_b.size() ? whole_a.size() < whole_b.size() : whole_a < whole_b;
}

}  // namespace sluice::config::discovery
