// Class OptionSet declares the options of a command: name, type, default (the value of the target), range and
// description. Option --foo-bar is also variable SLUICE_FOO_BAR and, when the command accepts a configuration
// file, key foo_bar. The command line has precedence over the environment, the file and the default. --help,
// --print-config and the sample file are generated from the declarations. The last of repeated options on the
// command line wins, so a launcher can append options to the user's.
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

#include "cli/options/declared_option.h"
#include "config/sizes.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::cli {

// The range of a value, both ends included.
template <typename T>
struct Bounds {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
};

class OptionSet {
 public:
  // `app` must outlive the set, and the targets must outlive the parse. Create one set per app.
  explicit OptionSet(CLI::App& app);

  // Sets the --help heading of the following options. Its first word is their table in a configuration file.
  OptionSet& group(const std::string& heading);
  // Makes SIGHUP reload the next option.
  OptionSet& reloadable();
  // Sets the variable of the next option, where it differs from the option's name.
  OptionSet& variable(const std::string& name);
  // Adds --config, --print-config and --check-config. Unknown SLUICE_ variables become an error.
  std::shared_ptr<ConfigFileOptions> add_config_file_options();

  // Returns an empty string, or the error of a value.
  using Check = std::function<std::string(const std::string&)>;

  // `names` is in CLI11's syntax: "-b,--minbytes". The first long name determines the variable.
  CLI::Option* text(const std::string& names, std::string& target, const std::string& type,
                    const std::string& help, const Check& check = {});
  // A file that the command writes at its end: refused before the command runs if it cannot be written.
  CLI::Option* output_file(const std::string& names, std::string& target, const std::string& help);
  // Accepts one of `choices`.
  CLI::Option* choice(const std::string& names, std::string& target, const std::string& type,
                      const Values& choices, const std::string& help);
  // Accepts one of the names in `choices` and assigns its value.
  template <typename T>
  CLI::Option* choice(const std::string& names, T& target, const std::string& type,
                      const std::vector<std::pair<std::string, std::type_identity_t<T>>>& choices,
                      const std::string& help) {
    Values choice_names;
    for (const auto& [name, value] : choices) choice_names.push_back(name);
    const auto assign = [&target, choices](const std::string& text) {
      for (const auto& [name, value] : choices) {
        if (name == text) target = value;
      }
      return std::string();
    };
    const auto current = [&target, choices] {
      for (const auto& [name, value] : choices) {
        if (value == target) return name;
      }
      return std::string();
    };
    return add_choice(names, type, choice_names, assign, current, help);
  }
  // Accepts "a,b,c".
  CLI::Option* list(const std::string& names, std::vector<std::string>& target, const std::string& help,
                    const Check& check = {});
  // Accepts "a=1,b=2", and in a configuration file also a table.
  CLI::Option* pairs(const std::string& names, std::vector<std::string>& target, const std::string& help,
                     const Check& check = {});
  CLI::Option* flag(const std::string& names, bool& target, const std::string& help);

  // Accepts "64K", "1G": bytes in powers of 1024.
  template <typename T>
  CLI::Option* size(const std::string& names, T& target, Bounds<std::type_identity_t<T>> bounds,
                    const std::string& help) {
    return add_number<T>(
        names, target, bounds, OptionKind::kSize, "SIZE", &config::parse_size,
        [](T value) { return config::size_text(value); }, help);
  }
  template <typename T>
  CLI::Option* size(const std::string& names, T& target, const std::string& help) {
    return size(names, target, {}, help);
  }
  // Accepts "500ms", "10s".
  CLI::Option* duration(const std::string& names, Nanos& target, Bounds<Nanos> bounds,
                        const std::string& help) {
    return add_number<Nanos>(
        names, target, bounds, OptionKind::kDuration, "TIME", &config::parse_duration,
        [](Nanos value) { return config::duration_text(value); }, help);
  }
  CLI::Option* duration(const std::string& names, Nanos& target, const std::string& help) {
    return duration(names, target, {.min = 0}, help);
  }

  template <std::integral T>
  CLI::Option* number(const std::string& names, T& target, Bounds<std::type_identity_t<T>> bounds,
                      const std::string& help) {
    return add_number<T>(
        names, target, bounds, OptionKind::kNumber, std::is_signed_v<T> ? "INT" : "UINT", &parse_integer,
        [](T value) { return std::to_string(value); }, help);
  }
  template <std::floating_point T>
  CLI::Option* number(const std::string& names, T& target, Bounds<std::type_identity_t<T>> bounds,
                      const std::string& help) {
    return add_number<T>(
        names, target, bounds, OptionKind::kFraction, "FLOAT", &parse_fraction,
        [](T value) { return config::number_text(value); }, help);
  }
  template <typename T>
  CLI::Option* number(const std::string& names, T& target, const std::string& help) {
    return number(names, target, {}, help);
  }

 private:
  using Assign = std::function<std::string(const std::string&)>;
  using Current = std::function<std::string()>;

  // Any value of int64_t or uint64_t, written in decimal or as 0x...
  struct Integer {
    bool negative = false;
    uint64_t magnitude = 0;
  };
  [[nodiscard]] static Result<Integer> parse_integer(std::string_view text);
  [[nodiscard]] static Result<double> parse_fraction(std::string_view text);

  template <typename T>
  static bool convert(const Integer& integer, const Bounds<T>& bounds, T& out) {
    if (!integer.negative) return convert(integer.magnitude, bounds, out);
    return std::is_signed_v<T> && convert(static_cast<int64_t>(-integer.magnitude), bounds, out);
  }
  template <typename T, typename Value>
  static bool convert(Value value, const Bounds<T>& bounds, T& out) {
    if constexpr (std::integral<T>) {
      if (std::cmp_less(value, bounds.min) || std::cmp_greater(value, bounds.max)) return false;
    } else {
      if (!(value >= bounds.min && value <= bounds.max)) return false;
    }
    out = static_cast<T>(value);
    return true;
  }
  // Omits limits that follow from the type.
  template <typename T, typename Format>
  static std::string range_text(const Bounds<T>& bounds, Format format) {
    const bool no_min = bounds.min <= std::max<T>(T{0}, std::numeric_limits<T>::lowest()) &&
                        (std::is_unsigned_v<T> || bounds.min == std::numeric_limits<T>::lowest());
    const bool no_max = bounds.max == std::numeric_limits<T>::max();
    if (no_max && no_min) return {};
    if (no_max) return "at least " + format(bounds.min);
    return format(bounds.min) + " to " + format(bounds.max);
  }

  template <typename T, typename Parse, typename Format>
  CLI::Option* add_number(const std::string& names, T& target, const Bounds<T>& bounds, OptionKind kind,
                          const char* type, Parse parse, Format format, const std::string& help) {
    const std::string range = range_text(bounds, format);
    const std::string type_range =
        format(std::numeric_limits<T>::lowest()) + " to " + format(std::numeric_limits<T>::max());
    const auto assign = [&target, bounds, parse, range, type_range](const std::string& text) -> std::string {
      const auto parsed = parse(text);
      if (!parsed) return parsed.error().text;
      T value{};
      if (!convert(*parsed, bounds, value)) return "must be " + (range.empty() ? type_range : range);
      target = value;
      return {};
    };
    DeclaredOption& declared = scalar(
        names, assign, [&target, format] { return format(target); }, help);
    declared.kind = kind;
    declared.range = kind == OptionKind::kDuration && range == "at least 0" ? "" : range;
    return finish(declared, type, format(target));
  }

  CLI::Option* add_choice(const std::string& names, const std::string& type, const Values& choices,
                          const Assign& assign, const Current& current, const std::string& help);
  CLI::Option* add_list(const std::string& names, std::vector<std::string>& target, const std::string& help,
                        const Check& check, OptionKind kind);
  // Declares an option with a single value.
  DeclaredOption& scalar(const std::string& names, const Assign& assign, const Current& current,
                         const std::string& help);
  DeclaredOption& declare(const std::string& names, const std::string& help);
  CLI::Option* finish(DeclaredOption& declared, const std::string& type, const std::string& default_text);

  std::shared_ptr<DeclaredOptions> options_;
  std::string heading_;
  std::string variable_;  // of the next option; empty: from its name
  bool reloadable_ = false;
};

// Returns "SLUICE_FOO_BAR" for "-f,--foo-bar".
[[nodiscard]] std::string variable_of(const std::string& names);

// Returns the options of the commands that the command line selected so far: the program first, the innermost
// subcommand last.
[[nodiscard]] const std::vector<std::shared_ptr<DeclaredOptions>>& selected_options();

// Returns the option and its value in the syntax of the value's origin: "--lanes 9", "SLUICE_LANES=9",
// "reducer.toml:3:9: lanes = 9".
[[nodiscard]] std::string assignment_text(const DeclaredOption& option, const Values& values);

}  // namespace sluice::cli
