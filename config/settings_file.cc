#include "config/settings_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

// Without exceptions a parse error is a value, and this stays the one place that sees the library.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// The library (3.3) asserts, and where assertions are off has compilers rely on, what a file can break: a key
// that begins with a bracket ("[[["), a letter that is not ASCII where a space might be. Without either, its
// own errors come to the same end.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/impl/forward_declarations.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE __builtin_unreachable()
#include <toml++/toml.h>

namespace sluice::config {
namespace {

Place place_of(const toml::source_region& source) {
  return {.line = std::max<uint32_t>(source.begin.line, 1),
          .column = std::max<uint32_t>(source.begin.column, 1)};
}

std::string number_text(double value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : std::string();
}

Setting setting_of(const toml::node& node);

std::vector<Setting> settings_of(const toml::table& table) {
  std::vector<Setting> out;
  for (const auto& [key, node] : table) {
    out.push_back(setting_of(node));
    out.back().key = std::string(key.str());
    out.back().key_at = place_of(key.source());
  }
  // The library sorts by name; people read from above.
  std::ranges::stable_sort(out, {},
                           [](const Setting& s) { return std::pair(s.key_at.line, s.key_at.column); });
  return out;
}

Setting setting_of(const toml::node& node) {
  using Kind = Setting::Kind;
  Setting out;
  out.at = place_of(node.source());
  switch (node.type()) {
    case toml::node_type::table:
      out.kind = Kind::kTable;
      out.items = settings_of(*node.as_table());
      break;
    case toml::node_type::array:
      out.kind = Kind::kList;
      for (const toml::node& item : *node.as_array()) out.items.push_back(setting_of(item));
      break;
    case toml::node_type::string: out.text = **node.as_string(); break;
    case toml::node_type::integer:
      out.kind = Kind::kInteger;
      out.text = std::to_string(**node.as_integer());
      break;
    case toml::node_type::floating_point:
      out.kind = Kind::kFraction;
      out.text = number_text(**node.as_floating_point());
      break;
    case toml::node_type::boolean:
      out.kind = Kind::kFlag;
      out.text = **node.as_boolean() ? "true" : "false";
      break;
    default: out.kind = Kind::kDate;
  }
  return out;
}

// The library quotes what it found, and that may be anything.
std::string one_line(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, '?');
  return out;
}

Result<std::string> read_file(const std::string& path) {
  const auto cannot = [&path] {
    return fail(Errc::kSystem, path + ": cannot be read: " + std::strerror(errno));
  };
  // A pipe without a writer would be waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return cannot();
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } const close{fd};
  struct stat about {};
  if (::fstat(fd, &about) != 0) return cannot();
  if (!S_ISREG(about.st_mode)) return fail(Errc::kInvalidArgument, path + ": is no file");
  std::string text;
  std::array<char, 16384> piece;
  for (;;) {
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot();
    if (n == 0) return text;
    text.append(piece.data(), static_cast<size_t>(n));
    if (text.size() > kMaxSettingsFile) {
      return fail(Errc::kInvalidArgument,
                  path + ": more than " + std::to_string(kMaxSettingsFile) + " bytes are no settings");
    }
  }
}

}  // namespace

std::string_view words_for(Setting::Kind kind) noexcept {
  switch (kind) {
    case Setting::Kind::kText: return "a string";
    case Setting::Kind::kInteger: return "a whole number";
    case Setting::Kind::kFraction: return "a number with a fraction";
    case Setting::Kind::kFlag: return "true or false";
    case Setting::Kind::kDate: return "a date or time";
    case Setting::Kind::kList: return "a list";
    case Setting::Kind::kTable: return "a table";
  }
  return "";
}

std::string place_text(const std::string& path, Place place) {
  return path + ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
}

Result<std::vector<Setting>> parse_settings(std::string_view text, const std::string& path) {
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    return fail(Errc::kInvalidArgument, place_text(path, place_of(parsed.error().source())) + ": " +
                                            one_line(parsed.error().description()));
  }
  return settings_of(parsed.table());
}

Result<std::vector<Setting>> read_settings(const std::string& path) {
  auto text = read_file(path);
  if (!text) return tl::unexpected(std::move(text.error()));
  return parse_settings(*text, path);
}

}  // namespace sluice::config
