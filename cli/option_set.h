// Options as every command declares them, once: the name, what it takes, its default (what the target holds),
// its range, its text. The rest follows: option --foo-bar is variable SLUICE_FOO_BAR and, where the command
// may be configured by a file (by_file), key foo_bar; command line before environment before file before
// default; --help, --print-config, the sample file. The last of several on the command line counts, so that a
// launcher can append to what the user gave.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/declared_option.h"
#include "config/sizes.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::cli {

// What a value may be, both ends included.
template <typename T>
struct Bounds {
  T least = std::numeric_limits<T>::lowest();
  T most = std::numeric_limits<T>::max();
};

class OptionSet {
 public:
  // `app` outlives the set; targets outlive the parse. One set for each app.
  explicit OptionSet(CLI::App& app);

  // Heading that the options added from here on stand under in --help; its first word is their table in a
  // file.
  OptionSet& group(const std::string& heading);
  // The next option is one that SIGHUP reads again.
  OptionSet& reloadable();
  // The command may be configured by a file: --config, --print-config, --check-config. Variables that nobody
  // knows are an error then.
  std::shared_ptr<ByFile> by_file();

  // Empty, or what is wrong with a value.
  using Check = std::function<std::string(const std::string&)>;

  // `names` as CLI11 takes them: "-b,--minbytes". The first long one names the variable.
  CLI::Option* text(const std::string& names, std::string& target, const std::string& type,
                    const std::string& help, const Check& check = {});
  // One of `words`.
  CLI::Option* choice(const std::string& names, std::string& target, const std::string& type,
                      const Values& words, const std::string& help);
  // The same for what each of them stands for.
  template <typename T>
  CLI::Option* choice(const std::string& names, T& target, const std::string& type,
                      const std::vector<std::pair<std::string, std::type_identity_t<T>>>& words,
                      const std::string& help) {
    Values known;
    for (const auto& [word, value] : words) known.push_back(word);
    const auto assign = [&target, words](const std::string& text) {
      for (const auto& [word, value] : words) {
        if (word == text) target = value;
      }
      return std::string();
    };
    const auto current = [&target, words] {
      for (const auto& [word, value] : words) {
        if (value == target) return word;
      }
      return std::string();
    };
    return add_choice(names, type, known, assign, current, help);
  }
  // "a,b,c".
  CLI::Option* list(const std::string& names, std::vector<std::string>& target, const std::string& help,
                    const Check& check = {});
  // "a=1,b=2"; in a file also a table.
  CLI::Option* pairs(const std::string& names, std::vector<std::string>& target, const std::string& help,
                     const Check& check = {});
  CLI::Option* flag(const std::string& names, bool& target, const std::string& help);

  // "64K", "1G": bytes, powers of 1024.
  template <typename T>
  CLI::Option* size(const std::string& names, T& target, Bounds<std::type_identity_t<T>> bounds,
                    const std::string& help) {
    return measured<T>(
        names, target, bounds, OptionKind::kSize, "SIZE", &config::parse_size,
        [](T value) { return config::size_text(value); }, help);
  }
  template <typename T>
  CLI::Option* size(const std::string& names, T& target, const std::string& help) {
    return size(names, target, {}, help);
  }
  // "500ms", "10s".
  CLI::Option* duration(const std::string& names, Nanos& target, Bounds<Nanos> bounds,
                        const std::string& help) {
    return measured<Nanos>(
        names, target, bounds, OptionKind::kDuration, "TIME", &config::parse_duration,
        [](Nanos value) { return config::duration_text(value); }, help);
  }
  CLI::Option* duration(const std::string& names, Nanos& target, const std::string& help) {
    return duration(names, target, {.least = 0}, help);
  }

  template <std::integral T>
  CLI::Option* number(const std::string& names, T& target, Bounds<std::type_identity_t<T>> bounds,
                      const std::string& help) {
    return measured<T>(
        names, target, bounds, OptionKind::kNumber, std::is_signed_v<T> ? "INT" : "UINT", &parse_whole,
        [](T value) { return std::to_string(value); }, help);
  }
  template <std::floating_point T>
  CLI::Option* number(const std::string& names, T& target, Bounds<std::type_identity_t<T>> bounds,
                      const std::string& help) {
    return measured<T>(names, target, bounds, OptionKind::kFraction, "FLOAT", &parse_fraction, &fraction_text,
                       help);
  }
  template <typename T>
  CLI::Option* number(const std::string& names, T& target, const std::string& help) {
    return number(names, target, {}, help);
  }

 private:
  using Assign = std::function<std::string(const std::string&)>;
  using Current = std::function<std::string()>;

  // A whole number as people write it, decimal or 0x..., of any size that fits the one or the other.
  struct Whole {
    bool negative = false;
    uint64_t magnitude = 0;
  };
  [[nodiscard]] static Result<Whole> parse_whole(std::string_view text);
  [[nodiscard]] static Result<double> parse_fraction(std::string_view text);
  [[nodiscard]] static std::string fraction_text(double value);

  template <typename T>
  static bool fits(const Whole& whole, const Bounds<T>& bounds, T& out) {
    if (whole.negative) {
      if constexpr (std::is_signed_v<T>) {
        const auto value = static_cast<int64_t>(-whole.magnitude);
        if (std::cmp_less(value, bounds.least) || std::cmp_greater(value, bounds.most)) return false;
        out = static_cast<T>(value);
        return true;
      }
      return false;
    }
    if (std::cmp_less(whole.magnitude, bounds.least) || std::cmp_greater(whole.magnitude, bounds.most))
      return false;
    out = static_cast<T>(whole.magnitude);
    return true;
  }
  template <typename T, typename Value>
  static bool fits(Value value, const Bounds<T>& bounds, T& out) {
    if constexpr (std::integral<T>) {
      if (std::cmp_less(value, bounds.least) || std::cmp_greater(value, bounds.most)) return false;
    } else {
      if (!(value >= bounds.least && value <= bounds.most)) return false;
    }
    out = static_cast<T>(value);
    return true;
  }
  // Ends that the type has of itself are not worth a word.
  template <typename T, typename Show>
  static std::string range_text(const Bounds<T>& bounds, Show show) {
    const bool any_least = bounds.least <= std::max<T>(T{0}, std::numeric_limits<T>::lowest()) &&
                           (std::is_unsigned_v<T> || bounds.least == std::numeric_limits<T>::lowest());
    const bool any_most = bounds.most == std::numeric_limits<T>::max();
    if (any_most && any_least) return {};
    if (any_most) return "at least " + show(bounds.least);
    return show(bounds.least) + " to " + show(bounds.most);
  }

  template <typename T, typename Parse, typename Show>
  CLI::Option* measured(const std::string& names, T& target, const Bounds<T>& bounds, OptionKind kind,
                        const char* type, Parse parse, Show show, const std::string& help) {
    const std::string range = range_text(bounds, show);
    const std::string types_own =
        show(std::numeric_limits<T>::lowest()) + " to " + show(std::numeric_limits<T>::max());
    const auto assign = [&target, bounds, parse, range, types_own](const std::string& text) -> std::string {
      const auto parsed = parse(text);
      if (!parsed) return parsed.error().text;
      T value{};
      if (!fits(*parsed, bounds, value)) return "must be " + (range.empty() ? types_own : range);
      target = value;
      return {};
    };
    DeclaredOption& made = scalar(
        names, assign, [&target, show] { return show(target); }, help);
    made.kind = kind;
    made.range = kind == OptionKind::kDuration && range == "at least 0" ? "" : range;
    return finish(made, type, show(target));
  }

  CLI::Option* add_choice(const std::string& names, const std::string& type, const Values& words,
                          const Assign& assign, const Current& current, const std::string& help);
  CLI::Option* add_list(const std::string& names, std::vector<std::string>& target, const std::string& help,
                        const Check& check, OptionKind kind);
  // Declares an option of one value.
  DeclaredOption& scalar(const std::string& names, const Assign& assign, const Current& current,
                         const std::string& help);
  DeclaredOption& declare(const std::string& names, const std::string& help);
  CLI::Option* finish(DeclaredOption& made, const std::string& type, const std::string& default_text);

  std::shared_ptr<DeclaredOptions> declared_;
  std::string heading_;
  bool reloadable_ = false;
};

// "SLUICE_FOO_BAR" of "-f,--foo-bar".
[[nodiscard]] std::string variable_of(const std::string& names);

// The options of the commands that parsing has come to: the program's own first, the picked command's last.
[[nodiscard]] const std::vector<std::shared_ptr<DeclaredOptions>>& picked_options();

// An option and its value as the user wrote them there: "--lanes 9", "SLUICE_LANES=9",
// "reducer.toml:3:9: lanes = 9".
[[nodiscard]] std::string where_text(const DeclaredOption& option, const Values& values);

}  // namespace sluice::cli
