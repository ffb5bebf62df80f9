#include "cli/configuration.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "bench/e2e/exit_codes.h"
#include "cli/option_set.h"
#include "config/nearest_name.h"
#include "config/variables.h"
#include "core/assert.h"

namespace sluice::cli {
namespace {

using bench::Failure;
using config::Setting;

std::string_view wanted(OptionKind kind) {
  switch (kind) {
    case OptionKind::kNumber: return "a whole number";
    case OptionKind::kFraction: return "a number";
    case OptionKind::kSize: return "a string like \"64K\" or a number of bytes";
    case OptionKind::kDuration: return "a string like \"10s\"";
    case OptionKind::kFlag: return "true or false";
    case OptionKind::kList: return "a list of strings";
    case OptionKind::kPairs: return "a list of strings like \"name=1\", or a table";
    case OptionKind::kText: break;
  }
  return "a string";
}

bool may_be(OptionKind wanted, Setting::Kind written) {
  using Kind = Setting::Kind;
  switch (wanted) {
    case OptionKind::kNumber: return written == Kind::kInteger;
    case OptionKind::kFraction: return written == Kind::kInteger || written == Kind::kFraction;
    case OptionKind::kSize:
    case OptionKind::kDuration:  // 0, which needs no unit; others are told that they do
      return written == Kind::kText || written == Kind::kInteger;
    case OptionKind::kFlag: return written == Kind::kFlag;
    case OptionKind::kList: return written == Kind::kList;
    case OptionKind::kPairs: return written == Kind::kList || written == Kind::kTable;
    case OptionKind::kText: break;
  }
  return written == Kind::kText;
}

std::string shown(const Values& values) {
  return values.empty() ? "nothing" : fmt::format("{}", fmt::join(values, ","));
}

// What CLI11 says begins with the option's name, which the place stands in for.
std::string without_name(const std::string& text, const DeclaredOption& option) {
  const std::string prefix = option.option->get_name() + ": ";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

}  // namespace

Configuration::Configuration(std::vector<std::shared_ptr<DeclaredOptions>> sets) : sets_(std::move(sets)) {
  for_each([](DeclaredOption& option) {
    if (option.origin == Origin::kDefault && option.option->count() > 0) option.origin = Origin::kCommandLine;
  });
  for (const auto& set : sets_) {
    if (set->by_file != nullptr) by_file_ = set->by_file;
  }
  if (by_file_ != nullptr) by_file_->configuration = this;
}

Result<void> Configuration::take(DeclaredOption& option, const Values& values, Origin origin,
                                 const std::string& from) {
  const auto before = std::pair(option.origin, option.from);
  option.origin = origin;
  option.from = from;
  std::string wrong;
  if (values.empty()) {
    wrong = option.assign(values);
  } else {
    // By way of CLI11, whose checks an option may carry too.
    try {
      option.option->clear();
      for (const std::string& value : values) option.option->add_result(value);
      option.option->run_callback();
      return {};
    } catch (const CLI::ValidationError& e) {
      const std::string place = where_text(option, values);
      wrong = e.what();
      wrong = wrong.starts_with(place) ? wrong : place + ": " + without_name(wrong, option);
    } catch (const CLI::Error&) {
      wrong = where_text(option, values) + ": must be " + std::string(wanted(option.kind));
    }
  }
  if (wrong.empty()) return {};
  std::tie(option.origin, option.from) = before;
  return fail(Errc::kInvalidArgument, wrong);
}

void Configuration::refuse_unknown_variables() const {
  std::vector<std::string_view> known;
  for_each([&known](const DeclaredOption& option) { known.push_back(option.variable); });
  for (const config::Variable& variable : config::unknown_variables(environ)) {
    if (std::ranges::find(known, variable.name) != known.end()) continue;
    throw Failure(bench::kExitConfig, fmt::format("{} is no variable of Sluice; did you mean {}?",
                                                  variable.name, config::nearest_name(variable.name, known)));
  }
}

void Configuration::take_environment() {
  for_each([](DeclaredOption& option) {
    if (option.origin != Origin::kDefault || option.variable.empty()) return;
    const char* const value = std::getenv(option.variable.c_str());
    if (value == nullptr || *value == 0) return;
    (void)bench::value_or_fail(
        take(option, {value}, Origin::kEnvironment, option.variable).map([] { return 0; }),
        bench::kExitConfig);
  });
}

DeclaredOption& Configuration::named(std::string_view name) const {
  DeclaredOption* found = nullptr;
  for_each([&](DeclaredOption& option) {
    if (option.name == name) found = &option;
  });
  SLUICE_ASSERT(found != nullptr);
  return *found;
}

void Configuration::set_default(std::string_view name, const std::string& value) {
  DeclaredOption& option = named(name);
  option.at_first = {value};
  if (option.origin != Origin::kDefault) return;
  const std::string wrong = option.assign(option.at_first);
  if (!wrong.empty()) throw Failure(bench::kExitConfig, where_text(option, option.at_first) + ": " + wrong);
}

Origin Configuration::origin_of(std::string_view name) const {
  return named(name).origin;
}

void Configuration::load() {
  if (by_file_ != nullptr) refuse_unknown_variables();
  take_environment();
  if (by_file_ != nullptr && !by_file_->path.empty()) {
    for (const Found& found : bench::value_or_fail(read_file(), bench::kExitConfig)) {
      if (found.option->origin != Origin::kDefault) continue;
      const auto taken = take(*found.option, found.values, Origin::kFile, found.place);
      if (!taken) throw Failure(bench::kExitConfig, taken.error().text);
    }
  }
  for (const auto& set : sets_) {
    for (const DeclaredOption& option : set->all) {
      if (option.required && option.origin == Origin::kDefault)
        throw Failure(bench::kExitUsage, option.name + " is required");
    }
  }
}

Result<std::vector<Configuration::Found>> Configuration::read_file() const {
  const auto settings = config::read_settings(by_file_->path);
  if (!settings) return tl::unexpected(settings.error());
  std::vector<Found> out;
  for (const Setting& setting : *settings) {
    bool is_table = false;
    if (setting.kind == Setting::Kind::kTable) {
      for_each([&](const DeclaredOption& o) { is_table |= !o.key.empty() && o.table == setting.key; });
    }
    if (!is_table) {
      if (auto matched = match(setting, "", out); !matched) return tl::unexpected(matched.error());
      continue;
    }
    for (const Setting& inner : setting.items) {
      if (auto matched = match(inner, setting.key, out); !matched) return tl::unexpected(matched.error());
    }
  }
  return out;
}

Result<void> Configuration::match(const Setting& setting, const std::string& table,
                                  std::vector<Found>& out) const {
  const std::string at = config::place_text(by_file_->path, setting.key_at) + ": ";
  DeclaredOption* option = nullptr;
  for_each([&](DeclaredOption& o) {
    if (!o.key.empty() && o.key == setting.key) option = &o;
  });
  if (option == nullptr) return unknown(setting, table);
  if (!table.empty() && table != option->table)
    return fail(Errc::kInvalidArgument, fmt::format("{}{} belongs in [{}]", at, setting.key, option->table));
  for (const Found& other : out) {
    if (other.option == option)
      return fail(Errc::kInvalidArgument,
                  fmt::format("{}{} stands at {} already", at, setting.key, other.place));
  }
  auto values = values_of(*option, setting);
  if (!values) return tl::unexpected(values.error());
  out.push_back({option, std::move(*values), config::place_text(by_file_->path, setting.at)});
  return {};
}

Result<Values> Configuration::values_of(const DeclaredOption& option, const Setting& setting) const {
  const auto wrong = [&](const Setting& what) {
    return fail(Errc::kInvalidArgument,
                fmt::format("{}: {} is {} here; {} is wanted", config::place_text(by_file_->path, what.at),
                            setting.key, config::words_for(what.kind), wanted(option.kind)));
  };
  if (!may_be(option.kind, setting.kind)) return wrong(setting);
  if (setting.kind != Setting::Kind::kList && setting.kind != Setting::Kind::kTable)
    return Values{setting.text};
  Values out;
  for (const Setting& item : setting.items) {
    if (setting.kind == Setting::Kind::kTable) {
      if (item.kind != Setting::Kind::kInteger && item.kind != Setting::Kind::kText) return wrong(item);
      out.push_back(item.key + "=" + item.text);
    } else {
      if (item.kind != Setting::Kind::kText) return wrong(item);
      out.push_back(item.text);
    }
  }
  return out;
}

tl::unexpected<Error> Configuration::unknown(const Setting& setting, const std::string& table) const {
  std::vector<std::string_view> names;
  for_each([&](const DeclaredOption& o) {
    if (o.key.empty()) return;
    names.push_back(o.key);
    if (table.empty() && setting.kind == Setting::Kind::kTable) names.push_back(o.table);
  });
  return fail(Errc::kInvalidArgument,
              fmt::format("{}: {} is no {} here; did you mean {}?",
                          config::place_text(by_file_->path, setting.key_at), setting.key,
                          setting.kind == Setting::Kind::kTable ? "table" : "key",
                          config::nearest_name(setting.key, names)));
}

Result<Configuration::Changes> Configuration::reread(const std::function<Result<void>()>& accept) {
  struct Before {
    DeclaredOption* option;
    Values values;
    Origin origin;
    std::string from;
  };
  std::vector<Before> before;
  for_each([&](DeclaredOption& o) { before.push_back({&o, o.current(), o.origin, o.from}); });
  const auto put_back = [](const Before& b) {
    (void)b.option->assign(b.values);
    b.option->origin = b.origin;
    b.option->from = b.from;
  };

  const auto renew = [&]() -> Result<Changes> {
    std::vector<Found> found;
    if (by_file_ != nullptr && !by_file_->path.empty()) {
      auto read = read_file();
      if (!read) return tl::unexpected(read.error());
      found = std::move(*read);
    }
    for (const Before& b : before) {
      if (b.option->origin != Origin::kFile) continue;
      (void)b.option->assign(b.option->at_first);
      b.option->origin = Origin::kDefault;
      b.option->from.clear();
    }
    for (const Found& f : found) {
      if (f.option->origin != Origin::kDefault) continue;
      if (auto taken = take(*f.option, f.values, Origin::kFile, f.place); !taken)
        return tl::unexpected(taken.error());
    }
    Changes changes;
    for (const Before& b : before) {
      const Values now = b.option->current();
      if (now == b.values) continue;
      if (b.option->reloadable) {
        changes.taken.push_back(fmt::format("{} {} -> {}", b.option->key, shown(b.values), shown(now)));
      } else {
        changes.later.push_back(b.option->key);
        put_back(b);
      }
    }
    if (auto accepted = accept(); !accepted) return tl::unexpected(accepted.error());
    return changes;
  };
  try {
    auto changes = renew();
    if (!changes) std::ranges::for_each(before, put_back);
    return changes;
  } catch (...) {  // out of memory
    std::ranges::for_each(before, put_back);
    throw;
  }
}

}  // namespace sluice::cli
