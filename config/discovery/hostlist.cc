#include "config/discovery/hostlist.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace sluice::config::discovery {
namespace {

constexpr size_t kMaxDigits = 18;     // any such number fits into 64 bits
constexpr size_t kMaxHostName = 253;  // RFC 1035 section 2.3.4

class HostlistParser {
 public:
  explicit HostlistParser(std::string_view text) : text_(text) {}

  Result<std::vector<std::string>> parse() {
    std::vector<std::string> out;
    for (;;) {
      SLUICE_ASSIGN_OR_RETURN(names, parse_item(kMaxHosts - out.size()));
      out.insert(out.end(), names.begin(), names.end());
      if (at_ == text_.size()) return out;
      ++at_;  // the comma
    }
  }

 private:
  using Names = std::vector<std::string>;

  [[nodiscard]] bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  [[nodiscard]] tl::unexpected<Error> error(size_t at, const std::string& message) const {
    return invalid("column " + std::to_string(at + 1) + ": " + message);
  }

  // Parses up to a comma outside brackets, or the end. `capacity` is the number of hosts still allowed.
  Result<Names> parse_item(size_t capacity) {
    const size_t begin = at_;
    Names names{""};
    if (capacity == 0) return error(begin, too_many());
    while (at_ < text_.size() && text_[at_] != ',') {
      Names parts;
      if (text_[at_] == '[') {
        SLUICE_ASSIGN_OR_RETURN(numbers, parse_bracket(capacity));
        parts = std::move(numbers);
      } else {
        SLUICE_ASSIGN_OR_RETURN(literal, parse_literal());
        parts = {std::move(literal)};
      }
      if (parts.size() > capacity / names.size()) return error(begin, too_many());
      Names expanded;
      expanded.reserve(names.size() * parts.size());
      for (const std::string& name : names) {
        for (const std::string& part : parts) expanded.push_back(name + part);
      }
      names = std::move(expanded);
      if (names.front().size() > kMaxHostName)
        return error(begin, "host name is longer than " + std::to_string(kMaxHostName) + " characters");
    }
    if (names.front().empty()) return error(begin, "expected a host name");
    return names;
  }

  Result<std::string> parse_literal() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '[') {
      const char c = text_[at_];
      const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           c == '-' || c == '_' || c == '.';
      if (!allowed) return error(at_, "character is not allowed in a host name");
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  // Parses "[1-3,07,9]".
  Result<Names> parse_bracket(size_t capacity) {
    const size_t open = at_++;
    Names out;
    for (;;) {
      SLUICE_RETURN_IF_ERROR(parse_range(capacity, out));
      if (next_is(']')) break;
      if (at_ == text_.size()) return error(open, "missing \"]\"");
      if (!next_is(',')) return error(at_, "expected \",\", \"-\" or \"]\"");
      ++at_;
    }
    ++at_;
    return out;
  }

  Result<void> parse_range(size_t capacity, Names& out) {
    const size_t begin = at_;
    uint64_t first = 0, last = 0;
    size_t width = 0, ignored = 0;
    SLUICE_RETURN_IF_ERROR(parse_number(first, width));
    last = first;
    if (next_is('-')) {
      ++at_;
      SLUICE_RETURN_IF_ERROR(parse_number(last, ignored));
    }
    if (last < first) return error(begin, "end of range is below its start");
    if (last - first >= capacity - std::min(capacity, out.size())) return error(begin, too_many());
    for (uint64_t n = first; n <= last; ++n) {
      const std::string digits = std::to_string(n);
      out.push_back(std::string(width - std::min(width, digits.size()), '0') + digits);
    }
    return {};
  }

  Result<void> parse_number(uint64_t& value, size_t& width) {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    width = at_ - begin;
    if (width == 0) return error(begin, "expected a number");
    if (width > kMaxDigits)
      return error(begin, "number has more than " + std::to_string(kMaxDigits) + " digits");
    std::from_chars(text_.data() + begin, text_.data() + at_, value);
    return {};
  }

  static std::string too_many() { return "more than " + std::to_string(kMaxHosts) + " hosts"; }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text) {
  return HostlistParser(text).parse();
}

}  // namespace sluice::config::discovery
