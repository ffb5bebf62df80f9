#include "cli/blackbox/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace sluice::cli {
namespace {

using blackbox::Event;
using blackbox::EventKind;
using blackbox::Role;

std::map<uint64_t, uint64_t> find_own_ids(const std::vector<RecordedProcess>& processes) {
  std::map<uint64_t, uint64_t> ids;
  for (const RecordedProcess& p : processes) {
    for (const RecordedEvent& r : p.events) {
      const Event& e = r.event;
      if (e.kind == EventKind::kOpened && e.role == Role::kReducer && e.peer != e.source)
        ids.emplace(e.peer, e.source);
    }
  }
  return ids;
}

}  // namespace

Timeline::Timeline(std::vector<RecordedProcess> processes)
    : processes_(std::move(processes)),
      own_ids_(find_own_ids(processes_)),
      clocks_(estimate_clocks(processes_, own_ids_)) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    for (const RecordedEvent& r : processes_[i].events) {
      note(i, r);
      entries_.push_back({.at = clocks_.wall_time(i, r.event.at), .process = i, .recorded = &r});
    }
  }
  std::ranges::stable_sort(entries_, {}, &Entry::at);
}

void Timeline::note(size_t process, const RecordedEvent& recorded) {
  const Event& e = recorded.event;
  if (e.session != 0) sessions_.insert({process, e.session});
  if (e.role == Role::kRank) {
    ranks_.insert({e.session, e.source});
    ranks_of_process_[process].insert(e.source);
    if (e.kind == EventKind::kReducerJoined && !recorded.text.empty())
      names_.emplace(own_id(e.peer), recorded.text);
  } else if (e.role == Role::kReducer) {
    reducers_.insert(e.source);
    reducers_of_process_[process].insert(e.source);
    if (e.kind != EventKind::kReducerListening) return;
    std::string address = recorded.text;
    // "*:7470" says nothing on another host.
    if (address.starts_with('*')) address.replace(0, 1, processes_[process].host);
    listening_.emplace(e.source, address);
  }
}

uint64_t Timeline::own_id(uint64_t reducer) const {
  const auto found = own_ids_.find(reducer);
  return found == own_ids_.end() ? reducer : found->second;
}

std::string Timeline::reducer_name(uint64_t id) const {
  const uint64_t own = own_id(id);
  if (const auto named = names_.find(own); named != names_.end()) return named->second;
  if (const auto listening = listening_.find(own); listening != listening_.end())
    return "reducer " + listening->second;
  return fmt::format("reducer {:08x}", id >> 32);
}

std::string Timeline::process_name(size_t process) const {
  const auto ranks = ranks_of_process_.find(process);
  const auto reducers = reducers_of_process_.find(process);
  if (ranks != ranks_of_process_.end() && ranks->second.size() == 1)
    return fmt::format("rank {}", *ranks->second.begin());
  if (ranks == ranks_of_process_.end() && reducers != reducers_of_process_.end() &&
      reducers->second.size() == 1)
    return reducer_name(*reducers->second.begin());
  return fmt::format("{}:{}", processes_[process].host, processes_[process].pid);
}

std::string Timeline::source_name(const Entry& entry) const {
  const Event& e = entry.event();
  if (e.role == Role::kRank) return fmt::format("rank {}", e.source);
  if (e.role == Role::kReducer) return reducer_name(e.source);
  return process_name(entry.process);
}

std::string Timeline::with_names(const std::string& text) const {
  constexpr std::string_view kWord = "reducer ";
  constexpr size_t kDigits = 16;
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const std::string_view digits =
        std::string_view(text).substr(std::min(i + kWord.size(), text.size()), kDigits);
    const bool is_id = text.compare(i, kWord.size(), kWord) == 0 && digits.size() == kDigits &&
                       digits.find_first_not_of("0123456789abcdef") == digits.npos;
    if (is_id) {
      out += reducer_name(std::stoull(std::string(digits), nullptr, 16));
      i += kWord.size() + kDigits;
    } else {
      out += text[i++];
    }
  }
  return out;
}

}  // namespace sluice::cli
