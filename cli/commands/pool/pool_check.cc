#include "cli/commands/pool/pool_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "config/printable_text.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

// The state of one session at the reducers that list it.
struct SessionPlaces {
  std::set<std::string> reducers;
  std::set<uint64_t> versions;  // of the membership history
  std::string incomplete;       // a reducer where ranks are missing; empty: none
};

std::string state_line(const PoolSample::Reducer& answer) {
  if (answer.status.is_null()) return answer.error;
  const json& status = answer.status;
  return fmt::format("reducer {}: {}, {} sessions, version {}", answer.name,
                     status.value("draining", false) ? "draining" : "ready",
                     status.value("/sessions/open"_json_pointer, uint64_t{0}),
                     config::printable(status.value("version", "?")));
}

void add_sessions(std::map<std::string, SessionPlaces>& sessions, const std::string& reducer,
                  const json& list) {
  for (const json& session : list) {
    if (!session.contains("roster_version")) continue;  // not fault-tolerant
    SessionPlaces& places = sessions[config::printable(session.value("id", "?"))];
    places.reducers.insert(reducer);
    places.versions.insert(session.value("roster_version", uint64_t{0}));
    const auto absent = session.value("absent_ranks", uint64_t{0});
    if (session.value("state", "") != "active" || absent != 0 ||
        session.value("joined", uint64_t{0}) != session.value("ranks", uint64_t{0}))
      places.incomplete = reducer;
  }
}

}  // namespace

PoolCheck check_pool(const PoolSample& sample) {
  PoolCheck check;
  std::map<std::string, SessionPlaces> sessions;
  // Reducers list their sessions by ascending id up to a limit. Beyond the last one nothing is known.
  std::map<std::string, std::string> last_listed;
  for (const PoolSample::Reducer& answer : sample.reducers) {
    check.reducers.push_back(state_line(answer));
    if (answer.status.is_null() || answer.status.value("draining", false)) {
      check.problems.push_back(check.reducers.back());
      continue;
    }
    const json list = answer.status.value("session_list", json::array());
    add_sessions(sessions, answer.name, list);
    const auto open = answer.status.value("/sessions/open"_json_pointer, uint64_t{0});
    if (list.size() >= open) continue;
    last_listed[answer.name] = list.empty() ? "" : list.back().value("id", "");
    check.notes.push_back(fmt::format("reducer {} lists only {} of {} sessions; the others are not checked",
                                      answer.name, list.size(), open));
  }
  for (const auto& [id, places] : sessions) {
    for (const PoolSample::Reducer& answer : sample.reducers) {
      if (answer.status.is_null() || answer.status.value("draining", false))
        continue;  // a problem of its own
      if (places.reducers.contains(answer.name)) continue;
      if (const auto last = last_listed.find(answer.name); last != last_listed.end() && id > last->second)
        continue;
      check.problems.push_back(fmt::format("session {} is not on reducer {}", id, answer.name));
    }
    if (!places.incomplete.empty()) {
      check.problems.push_back(fmt::format("session {} lacks ranks on reducer {}", id, places.incomplete));
    } else if (places.versions.size() > 1) {
      check.problems.push_back(fmt::format("session {} is changing its view", id));
    }
  }
  return check;
}

}  // namespace sluice::cli
