#include "cli/option_set.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace sluice::cli {
namespace {

std::vector<std::shared_ptr<DeclaredOptions>>& picked() {
  static std::vector<std::shared_ptr<DeclaredOptions>> sets;
  return sets;
}

std::string first_long(const std::string& names) {
  const size_t begin = names.find("--");
  return begin == std::string::npos ? std::string() : names.substr(begin, names.find(',', begin) - begin);
}

// "Capacity" of "Capacity (bytes)".
std::string first_word(const std::string& heading) {
  std::string out;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) break;
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string joined(const Values& values, const char* between) {
  std::string out;
  for (const std::string& value : values) out += (out.empty() ? "" : between) + value;
  return out;
}

// What CLI11 is to call.
CLI::callback_t taker(const DeclaredOption& option) {
  return [&option](const Values& values) {
    if (const std::string wrong = option.assign(values); !wrong.empty())
      throw CLI::ValidationError(where_text(option, values) + ": " + wrong);
    return true;
  };
}

}  // namespace

std::string variable_of(const std::string& names) {
  const std::string name = first_long(names);
  if (name.empty()) return {};
  std::string variable = "SLUICE_";
  for (const char c : name.substr(2)) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

const std::vector<std::shared_ptr<DeclaredOptions>>& picked_options() {
  return picked();
}

std::string where_text(const DeclaredOption& option, const Values& values) {
  const std::string value = joined(values, ",");
  switch (option.origin) {
    case Origin::kFile: return option.from + ": " + option.key + " = " + value;
    case Origin::kEnvironment: return option.from + "=" + value;
    default: return option.name + " " + value;
  }
}

// CLI11 reads variables for every subcommand, picked or not, and can't say that a wrong value came from one;
// one that is meant for another must do no harm. So it never hears of them: Configuration takes them when
// parsing is over, for the commands that it came to. What must be given may then still come from there.
OptionSet::OptionSet(CLI::App& app) : declared_(std::make_shared<DeclaredOptions>()) {
  declared_->app = &app;
  app.preparse_callback([declared = declared_](size_t) {
    picked().push_back(declared);
    for (DeclaredOption& option : declared->all) {
      option.required = option.required || option.option->get_required();
      option.option->required(false);
    }
  });
}

OptionSet& OptionSet::group(const std::string& heading) {
  heading_ = heading;
  return *this;
}

OptionSet& OptionSet::reloadable() {
  reloadable_ = true;
  return *this;
}

std::shared_ptr<ByFile> OptionSet::by_file() {
  auto out = std::make_shared<ByFile>();
  const std::string before = std::exchange(heading_, "Configuration");
  text("--config", out->path, "FILE",
       "read what neither the command line nor a variable says from this TOML file");
  declared_->all.back().key.clear();
  CLI::App& app = *declared_->app;
  app.add_flag("--print-config", out->print,
               "print every option, its value and where it comes from, as such a file, and do nothing; "
               "--print-config=sample: a commented file of the defaults")
      ->check(CLI::IsMember({"true", "sample"}))
      ->option_text("[=sample]")
      ->group(heading_);
  app.add_flag("--check-config", out->check,
               "check options, file, keys and certificates, start nothing: exit 0 or 78")
      ->group(heading_);
  heading_ = before;
  declared_->by_file = out.get();
  // Both live as long as the app's closure does.
  declared_->all.back().current = [out] { return Values{out->path}; };
  return out;
}

DeclaredOption& OptionSet::declare(const std::string& names, const std::string& help) {
  DeclaredOption& made = declared_->all.emplace_back();
  made.name = first_long(names);
  made.variable = variable_of(names);
  made.key = made.name.substr(std::min<size_t>(2, made.name.size()));
  std::ranges::replace(made.key, '-', '_');
  made.table = first_word(heading_);
  made.help = help;
  made.reloadable = std::exchange(reloadable_, false);
  return made;
}

DeclaredOption& OptionSet::scalar(const std::string& names, const Assign& assign, const Current& current,
                                  const std::string& help) {
  DeclaredOption& made = declare(names, help);
  made.assign = [assign](const Values& values) {
    return values.empty() ? "is missing" : assign(values.back());
  };
  made.current = [current] { return Values{current()}; };
  made.option = declared_->app->add_option(names, taker(made), help)->take_last();
  return made;
}

CLI::Option* OptionSet::finish(DeclaredOption& made, const std::string& type,
                               const std::string& default_text) {
  made.at_first = made.current();
  if (!heading_.empty()) made.option->group(heading_);
  if (!type.empty()) made.option->type_name(type);
  if (!default_text.empty()) made.option->default_str(default_text);
  std::string description = made.help;
  if (!made.range.empty() && made.kind != OptionKind::kText) description += " [" + made.range + "]";
  if (made.reloadable) description += " [SIGHUP]";
  return made.option->description(description);
}

CLI::Option* OptionSet::text(const std::string& names, std::string& target, const std::string& type,
                             const std::string& help, const Check& check) {
  const auto assign = [&target, check](const std::string& value) {
    std::string wrong = check ? check(value) : std::string();
    if (wrong.empty()) target = value;
    return wrong;
  };
  return finish(scalar(
                    names, assign, [&target] { return target; }, help),
                type, target);
}

CLI::Option* OptionSet::choice(const std::string& names, std::string& target, const std::string& type,
                               const Values& words, const std::string& help) {
  const auto assign = [&target](const std::string& value) {
    target = value;
    return std::string();
  };
  return add_choice(
      names, type, words, assign, [&target] { return target; }, help);
}

CLI::Option* OptionSet::add_choice(const std::string& names, const std::string& type, const Values& words,
                                   const Assign& assign, const Current& current, const std::string& help) {
  const std::string range = "one of " + joined(words, ", ");
  DeclaredOption& made = scalar(
      names,
      [assign, words, range](const std::string& value) {
        return std::ranges::find(words, value) == words.end() ? "must be " + range : assign(value);
      },
      current, help);
  made.range = range;
  return finish(made, type + ":{" + joined(words, ",") + "}", current());
}

CLI::Option* OptionSet::list(const std::string& names, std::vector<std::string>& target,
                             const std::string& help, const Check& check) {
  return add_list(names, target, help, check, OptionKind::kList);
}

CLI::Option* OptionSet::pairs(const std::string& names, std::vector<std::string>& target,
                              const std::string& help, const Check& check) {
  return add_list(names, target, help, check, OptionKind::kPairs);
}

CLI::Option* OptionSet::add_list(const std::string& names, std::vector<std::string>& target,
                                 const std::string& help, const Check& check, OptionKind kind) {
  DeclaredOption& made = declare(names, help);
  made.kind = kind;
  made.assign = [&target, check](const Values& values) {
    for (const std::string& value : values) {
      if (std::string wrong = check ? check(value) : std::string(); !wrong.empty()) return wrong;
    }
    target = values;
    return std::string();
  };
  made.current = [&target] { return target; };
  made.option = declared_->app->add_option(names, taker(made), help)
                    ->expected(CLI::detail::expected_max_vector_size)
                    ->take_all()
                    ->delimiter(',');
  return finish(made, "LIST", "");
}

CLI::Option* OptionSet::flag(const std::string& names, bool& target, const std::string& help) {
  DeclaredOption& made = declare(names, help);
  made.kind = OptionKind::kFlag;
  made.assign = [&target](const Values& values) {
    target = !values.empty() && values.back() == "true";
    return std::string();
  };
  made.current = [&target] { return Values{target ? "true" : "false"}; };
  made.option = declared_->app->add_flag(names, target, help)->take_last();
  return finish(made, "", "");
}

Result<OptionSet::Whole> OptionSet::parse_whole(std::string_view text) {
  Whole out;
  std::string_view digits = text;
  if (digits.starts_with('-')) {
    out.negative = true;
    digits.remove_prefix(1);
  }
  const bool hex = digits.starts_with("0x");
  if (hex) digits.remove_prefix(2);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), out.magnitude, hex ? 16 : 10);
  constexpr uint64_t kMostNegative = uint64_t{1} << 63;
  if (digits.empty() || end != digits.data() + digits.size() || error != std::errc() ||
      (out.negative && out.magnitude > kMostNegative)) {
    return fail(Errc::kInvalidArgument, "is not a whole number");
  }
  return out;
}

Result<double> OptionSet::parse_fraction(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end != text.data() + text.size() || error != std::errc())
    return fail(Errc::kInvalidArgument, "is not a number");
  return value;
}

std::string OptionSet::fraction_text(double value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : std::string();
}

}  // namespace sluice::cli
