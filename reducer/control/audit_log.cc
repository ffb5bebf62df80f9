#include "reducer/control/audit_log.h"

#include <algorithm>
#include <map>
#include <utility>

#include "config/printable_text.h"

namespace sluice::reducer {
namespace {

constexpr size_t kMaxReason = 1024;  // characters; it repeats names that clients choose

// "10.0.0.3 (8), 10.0.0.4 (8) and 2 more hosts".
std::string hosts_text(const std::vector<std::string>& peers) {
  std::map<std::string, size_t> hosts;
  for (const std::string& peer : peers) ++hosts[host_of(peer)];
  std::string text;
  size_t named = 0;
  for (const auto& [host, ranks] : hosts) {
    if (++named > AuditLog::kMaxHosts) break;
    text += (text.empty() ? "" : ", ") + host + (ranks > 1 ? " (" + std::to_string(ranks) + ")" : "");
  }
  if (hosts.size() > AuditLog::kMaxHosts)
    text += " and " + std::to_string(hosts.size() - AuditLog::kMaxHosts) + " more hosts";
  return text;
}

}  // namespace

void AuditLog::write_session(const Session& session, std::string_view result) {
  if (!jobs_.admits(session.job, session.peers.empty() ? "" : host_of(session.peers.front()), now_)) return;
  std::string line = "audit: session of job " + name_in_quotes(session.job) + ", tenant " +
                     name_in_quotes(session.tenant) + ", " + std::to_string(session.peers.size()) + " of " +
                     std::to_string(session.ranks) + " ranks from " + hosts_text(session.peers);
  if (session.with_old_key > 0)
    line += ", " + std::to_string(session.with_old_key) + " of them with the old key";
  log_.info(line + ": " + std::string(result));
}

void AuditLog::write_models(const std::string& job, const std::string& tenant, const std::string& peer,
                            bool has_old_key) {
  if (!jobs_.admits(job, host_of(peer), now_)) return;
  log_.info("audit: connection to models of job " + name_in_quotes(job) + ", tenant " +
            name_in_quotes(tenant) + ", from " + peer + (has_old_key ? ", with the old key" : ""));
}

void AuditLog::write_unauthenticated(const std::string& peer, const std::string& job,
                                     const std::string& why) {
  if (refused_.admits(host_of(peer), now_))
    log_.warn("unauthenticated: " + peer + " as job " + name_in_quotes(job) + ": " +
              config::printable(why, kMaxReason));
}

void AuditLog::end_windows(Nanos now) {
  jobs_.end_windows(now, [this](uint64_t lines, const std::string& of) {
    log_.info("audit: " + std::to_string(lines) + " more sessions and connections to models of " + of +
              " in the same minute");
  });
  refused_.end_windows(now, [this](const std::string& host, uint64_t suppressed) {
    log_.warn("unauthenticated: " + std::to_string(suppressed) + " more connections from " +
              (host.empty() ? "other hosts" : host) + " in the same minute");
  });
}

}  // namespace sluice::reducer
