#include "config/sizes.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

namespace sluice::config {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr std::array<Unit, 5> kSizes{{{"", 1}, {"K", kKiB}, {"M", kMiB}, {"G", kGiB}, {"T", 1024 * kGiB}}};
constexpr std::array<Unit, 5> kTimes{
    {{"us", kMicrosecond}, {"ms", kMillisecond}, {"s", kSecond}, {"m", 60 * kSecond}, {"h", 3600 * kSecond}}};

constexpr std::array<Unit, 5> kRates{
    {{"", 1}, {"kbit", 1000}, {"mbit", 1'000'000}, {"gbit", 1'000'000'000}, {"tbit", 1'000'000'000'000}}};
// A rate outside is a typing error, such as a missing unit. wire::is_link_rate() accepts all between.
constexpr uint64_t kMinRate = 10'000;
constexpr uint64_t kMaxRate = 10'000'000'000'000;

tl::unexpected<Error> bad(std::string_view text, const std::string& reason) {
  return invalid("\"" + std::string(text.substr(0, 40)) + "\" " + reason);
}

// Splits leading digits from the unit. Returns false without digits or on overflow.
bool split_number(std::string_view text, uint64_t& value, std::string_view& unit) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  unit = text.substr(static_cast<size_t>(end - text.data()));
  return true;
}

bool multiply(uint64_t& value, uint64_t factor, uint64_t largest) {
  if (value > largest / factor) return false;
  value *= factor;
  return true;
}

// The value in the largest unit that is exact.
std::string exact_text(uint64_t value, std::span<const Unit> units) {
  for (auto u = units.rbegin(); u != units.rend(); ++u) {
    if (value >= u->factor && value % u->factor == 0)
      return std::to_string(value / u->factor) + std::string(u->name);
  }
  return "0";
}

template <typename T>
std::string shortest_text(T value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : std::string();
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  uint64_t value = 0;
  std::string_view rest;
  if (!split_number(text, value, rest)) return bad(text, "is not a size; expected 65536, 64K, 4M or 1G");
  std::string unit(rest);
  for (char& c : unit) c = (c >= 'a' && c <= 'z') ? static_cast<char>(c - 'a' + 'A') : c;
  if (unit.ends_with("IB") && unit.size() == 3) {
    unit.resize(1);
  } else if (unit.ends_with('B') && unit.size() <= 2) {
    unit.pop_back();
  }
  for (const Unit& u : kSizes) {
    if (unit != u.name) continue;
    if (!multiply(value, u.factor, std::numeric_limits<uint64_t>::max())) return bad(text, "is too large");
    return value;
  }
  return bad(text, "has an unknown unit; expected K, M, G or T (powers of 1024)");
}

Result<Nanos> parse_duration(std::string_view text) {
  uint64_t value = 0;
  std::string_view unit;
  if (!split_number(text, value, unit)) return bad(text, "is not a duration; expected 500ms, 10s or 1m");
  if (unit.empty() && value == 0) return Nanos{0};
  for (const Unit& u : kTimes) {
    if (unit != u.name) continue;
    if (!multiply(value, u.factor, std::numeric_limits<Nanos>::max())) return bad(text, "is too long");
    return static_cast<Nanos>(value);
  }
  return bad(text, unit.empty() ? "has no unit; expected us, ms, s, m or h"
                                : "has an unknown unit; expected us, ms, s, m or h");
}

Result<uint64_t> parse_rate(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [unit_at, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value) || value < 0 || text.front() == '-')
    return bad(text, "is not a rate; expected 200mbit, 25gbit or a number of bits/s");
  std::string unit(unit_at, end);
  for (char& c : unit) c = (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  for (const Unit& u : kRates) {
    if (unit != u.name) continue;
    const double rate = value * static_cast<double>(u.factor);
    if (rate < static_cast<double>(kMinRate)) return bad(text, "is too small; expected at least 10kbit");
    if (rate > static_cast<double>(kMaxRate)) return bad(text, "is too large; expected at most 10tbit");
    return static_cast<uint64_t>(std::llround(rate));
  }
  return bad(text, "has an unknown unit; expected kbit, mbit, gbit or tbit (powers of 1000)");
}

std::string size_text(uint64_t bytes) {
  return exact_text(bytes, kSizes);
}

std::string rate_text(uint64_t bits_per_second) {
  return exact_text(bits_per_second, kRates);
}

std::string duration_text(Nanos duration) {
  if (duration <= 0) return "0";
  const auto value = static_cast<uint64_t>(duration);
  for (auto u = kTimes.rbegin(); u != kTimes.rend(); ++u) {
    if (value >= u->factor && value % u->factor == 0)
      return std::to_string(value / u->factor) + std::string(u->name);
  }
  return std::to_string(value / kMicrosecond) + "us";  // no deadline is set more finely
}

std::string rounded_size_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", unit == 0 || bytes >= 100 ? 0 : 1, bytes, kUnits[unit]);
  return text.data();
}

std::string number_text(double value) {
  return shortest_text(value);
}

std::string number_text(float value) {
  return shortest_text(value);
}

}  // namespace sluice::config
