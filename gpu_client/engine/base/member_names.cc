#include "gpu_client/engine/base/member_names.h"

#include <array>
#include <cctype>
#include <charconv>
#include <functional>
#include <string_view>

namespace sluice::engine {
namespace {

constexpr std::array<std::string_view, 3> kWords = {"ranks ", "rank ", "root "};
constexpr char kMark = '#';

bool is_digit(std::string_view text, size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}
bool is_number(std::string_view text, size_t at) {
  return is_digit(text, at) || (at < text.size() && text[at] == kMark && is_digit(text, at + 1));
}

// Copies one number, with its mark, as `rename` says. Returns where it ends.
size_t copy_number(std::string_view text, size_t at, std::string& out,
                   const std::function<std::string(std::string_view digits, bool marked)>& rename) {
  const bool marked = text[at] == kMark;
  const size_t begin = at + (marked ? 1 : 0);
  size_t end = begin;
  while (is_digit(text, end)) ++end;
  out += rename(text.substr(begin, end - begin), marked);
  return end;
}

// Calls `rename` for the numbers behind "rank", "root" and "ranks", as in "ranks 1, 4 and 9 more": 9 is none.
std::string rename_ranks(std::string_view text,
                         const std::function<std::string(std::string_view digits, bool marked)>& rename) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool in_word = at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;
    size_t length = 0;
    for (const std::string_view word : kWords) {
      if (!in_word && text.substr(at).starts_with(word) && is_number(text, at + word.size()))
        length = word.size();
    }
    if (length == 0) {
      out += text[at++];
      continue;
    }
    out += text.substr(at, length);
    at = copy_number(text, at + length, out, rename);
    while (text.substr(at).starts_with(", ") && is_number(text, at + 2)) {
      out += ", ";
      at = copy_number(text, at + 2, out, rename);
    }
  }
  return out;
}

}  // namespace

std::string MemberNames::outward(const std::string& text) const {
  return rename_ranks(text, [this](std::string_view digits, bool marked) {
    Rank member = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), member);
    const bool is_member = !marked && read.ec == std::errc() && member < ranks_.size();
    return is_member ? std::to_string(ranks_[member]) : std::string(digits);
  });
}

std::string MemberNames::inward(const std::string& text) {
  return rename_ranks(text,
                      [](std::string_view digits, bool /*marked*/) { return kMark + std::string(digits); });
}

std::string MemberNames::reason(const std::string& text) const {
  const auto whole = wire::whole_text(text);
  return whole ? outward(std::string(*whole)) : part_ + ": " + outward(text);
}

Rank MemberNames::outward(Rank member) const noexcept {
  if (member < ranks_.size()) return ranks_[member];
  return member < kOuterRank || member >= kNoOuterRank ? wire::kNoRank : member & ~kOuterRank;
}

}  // namespace sluice::engine
