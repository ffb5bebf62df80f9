// Class DeathReport collects the times from the death of a rank until the others have the error.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace sluice::test {

class DeathReport {
 public:
  static constexpr double kMostOnHostMs = 10, kMostElsewhereMs = 1000;  // else a death is late

  explicit DeathReport(uint64_t seed) : seed_(seed) {}

  // Milliseconds of each rank with an error. Ranks that had closed without one have none.
  void add(const std::string& setting, const std::string& moment, const std::vector<double>& same_host,
           const std::vector<double>& other_host) {
    ++deaths_;
    for (const std::string& name : {std::string("all"), moment, setting}) {
      Times* const times = &times_of(name);
      ++times->deaths;
      times->same_host.insert(times->same_host.end(), same_host.begin(), same_host.end());
      times->other_host.insert(times->other_host.end(), other_host.begin(), other_host.end());
      times->late += std::ranges::any_of(same_host, [](double ms) { return ms > kMostOnHostMs; }) ||
                             std::ranges::any_of(other_host, [](double ms) { return ms > kMostElsewhereMs; })
                         ? 1
                         : 0;
    }
  }
  // Milliseconds of a close without an error, which waits for a victim that might need a result.
  void add_close(double ms) { closes_.push_back(ms); }
  // A death that the others learned of by a timeout of the join.
  void count_unseen() {
    ++deaths_;
    ++unseen_;
  }

  // Sorts the rows, in which the first is that of all deaths.
  void print() {
    std::sort(rows_.begin() + (rows_.empty() ? 0 : 1), rows_.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::printf("%u deaths; %u before any other rank knew the process, which a timeout of the join ended\n",
                deaths_, unseen_);
    std::printf("%-28s %6s %6s %38s %38s\n", "", "deaths", "late", "same host: median / p99 / longest ms",
                "other host: median / p99 / longest ms");
    for (auto& [name, t] : rows_) {
      std::printf("%-28s %6u %6u %16.2f %10.2f %10.2f %16.2f %10.2f %10.2f\n", name.c_str(), t.deaths, t.late,
                  quantile(t.same_host, 0.5), quantile(t.same_host, 0.99), quantile(t.same_host, 1),
                  quantile(t.other_host, 0.5), quantile(t.other_host, 0.99), quantile(t.other_host, 1));
    }
    std::printf("%zu ranks closed without an error, within: median %.2f, p99 %.2f, longest %.2f ms\n",
                closes_.size(), quantile(closes_, 0.5), quantile(closes_, 0.99), quantile(closes_, 1));
  }

  void write(const char* path) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (auto& [name, t] : rows_) {
      rows.push_back({{"case", name},
                      {"deaths", t.deaths},
                      {"late", t.late},
                      {"same_host_ms", summary(t.same_host)},
                      {"other_host_ms", summary(t.other_host)}});
    }
    const nlohmann::ordered_json document = {
        {"schema", "sluice.rank_deaths/1"}, {"seed", seed_}, {"deaths", deaths_}, {"unseen", unseen_},
        {"closes_ms", summary(closes_)},    {"rows", rows}};
    std::ofstream(path) << document.dump(1) << "\n";
  }

 private:
  struct Times {
    uint32_t deaths = 0;
    uint32_t late = 0;
    std::vector<double> same_host, other_host;
  };

  Times& times_of(const std::string& name) {
    const auto found = std::ranges::find(rows_, name, &std::pair<std::string, Times>::first);
    return found != rows_.end() ? found->second : rows_.emplace_back(name, Times{}).second;
  }
  static double quantile(std::vector<double>& values, double share) {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    const double position = std::ceil(share * static_cast<double>(values.size()));
    return values[static_cast<size_t>(std::max(1.0, position)) - 1];
  }
  static nlohmann::ordered_json summary(std::vector<double>& values) {
    return {{"ranks", values.size()},
            {"median", quantile(values, 0.5)},
            {"p99", quantile(values, 0.99)},
            {"longest", quantile(values, 1)}};
  }

  const uint64_t seed_;
  uint32_t deaths_ = 0, unseen_ = 0;
  std::vector<double> closes_;
  std::vector<std::pair<std::string, Times>> rows_;
};

}  // namespace sluice::test
