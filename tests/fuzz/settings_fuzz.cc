// Fuzzes parse_settings(): any file is parsed or rejected with a position, and all positions lie within the
// file.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "config/settings_file.h"
#include "tests/fuzz/input.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const std::vector<sluice::config::Setting>& settings, size_t lines) {
  using Kind = sluice::config::Setting::Kind;
  for (const auto& setting : settings) {
    require(setting.value_position.line >= 1 && setting.value_position.line <= lines &&
            setting.value_position.column >= 1);
    require(setting.key_position.line >= 1 && setting.key_position.line <= lines);
    require(setting.items.empty() || setting.kind == Kind::kList || setting.kind == Kind::kTable);
    require(setting.kind != Kind::kFlag || setting.text == "true" || setting.text == "false");
    check(setting.items, lines);
  }
}

}  // namespace

namespace sluice::fuzz {

void fuzz_one(Input in) {
  const auto bytes = in.at_most(in.left());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto settings = sluice::config::parse_settings(text, "f");
  if (settings) {
    check(*settings, 1 + static_cast<size_t>(std::ranges::count(text, '\n')));
  } else {
    require(settings.error().text.starts_with("f:"));
    require(settings.error().text.find('\n') == std::string::npos);
  }
}

}  // namespace sluice::fuzz
