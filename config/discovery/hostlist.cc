#include "config/discovery/hostlist.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace sluice::config::discovery {
namespace {

constexpr size_t kMaxDigits = 18;     // what 64 bits hold for certain
constexpr size_t kMaxHostName = 253;  // RFC 1035 section 2.3.4

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<std::vector<std::string>> all() {
    std::vector<std::string> out;
    for (;;) {
      auto names = one_item(kMaxHosts - out.size());
      if (!names) return tl::unexpected(names.error());
      out.insert(out.end(), names->begin(), names->end());
      if (at_ == text_.size()) return out;
      ++at_;  // the comma
    }
  }

 private:
  using Names = std::vector<std::string>;

  [[nodiscard]] bool is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  [[nodiscard]] tl::unexpected<Error> wrong(size_t at, const std::string& what) const {
    return fail(Errc::kInvalidArgument, "column " + std::to_string(at + 1) + ": " + what);
  }

  // Up to a comma outside of brackets, or the end.
  Result<Names> one_item(size_t room) {
    const size_t begin = at_;
    Names names{""};
    if (room == 0) return wrong(begin, too_many());
    while (at_ < text_.size() && text_[at_] != ',') {
      Names parts;
      if (text_[at_] == '[') {
        auto numbers = bracket(room);
        if (!numbers) return numbers;
        parts = std::move(*numbers);
      } else {
        auto word = plain();
        if (!word) return tl::unexpected(word.error());
        parts = {std::move(*word)};
      }
      if (parts.size() > room / names.size()) return wrong(begin, too_many());
      Names longer;
      longer.reserve(names.size() * parts.size());
      for (const std::string& name : names) {
        for (const std::string& part : parts) longer.push_back(name + part);
      }
      names = std::move(longer);
      if (names.front().size() > kMaxHostName) return wrong(begin, "the name is too long");
    }
    if (names.front().empty()) return wrong(begin, "a host is missing");
    return names;
  }

  Result<std::string> plain() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '[') {
      const char c = text_[at_];
      const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           c == '-' || c == '_' || c == '.';
      if (!allowed) return wrong(at_, "a character that no host has");
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  // "[1-3,07,9]"
  Result<Names> bracket(size_t room) {
    const size_t open = at_++;
    Names out;
    for (;;) {
      if (auto added = range(room, out); !added) return tl::unexpected(added.error());
      if (is(']')) break;
      if (at_ == text_.size()) return wrong(open, "the bracket is not closed");
      if (!is(',')) return wrong(at_, "',', '-' or ']' is wanted");
      ++at_;
    }
    ++at_;
    return out;
  }

  Result<void> range(size_t room, Names& out) {
    const size_t begin = at_;
    uint64_t first = 0, last = 0;
    size_t width = 0, ignored = 0;
    if (auto read = number(first, width); !read) return read;
    last = first;
    if (is('-')) {
      ++at_;
      if (auto read = number(last, ignored); !read) return read;
    }
    if (last < first) return wrong(begin, "the range goes backwards");
    if (last - first >= room - std::min(room, out.size())) return wrong(begin, too_many());
    for (uint64_t n = first; n <= last; ++n) {
      const std::string digits = std::to_string(n);
      out.push_back(std::string(width - std::min(width, digits.size()), '0') + digits);
    }
    return {};
  }

  Result<void> number(uint64_t& value, size_t& width) {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    width = at_ - begin;
    if (width == 0) return wrong(begin, "a number is wanted");
    if (width > kMaxDigits) return wrong(begin, "the number has too many digits");
    std::from_chars(text_.data() + begin, text_.data() + at_, value);
    return {};
  }

  static std::string too_many() { return "more than " + std::to_string(kMaxHosts) + " hosts"; }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text) {
  return Reader(text).all();
}

}  // namespace sluice::config::discovery
