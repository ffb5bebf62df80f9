#include "store/coordinator/etcd/etcd_coordinator.h"

#include "config/printable_text.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/text_encoding.h"
#include "store/coordinator/etcd/json_answer.h"
#include "store/coordinator/key_range.h"

namespace sluice::store {

using nlohmann::json;
using Repeat = etcd::EtcdClient::Repeat;
using Verdict = etcd::EtcdClient::Verdict;

namespace {

// Pages of this length fit into one answer, even if all values are of the largest size.
constexpr size_t kPageEntries = 16;

tl::unexpected<Error> malformed(const etcd::EtcdClient::Answer& answer, std::string_view request) {
  return fail(Errc::kBadField, answer.server + ": malformed answer to " + std::string(request));
}

}  // namespace

Result<std::unique_ptr<Coordinator>> EtcdCoordinator::make(EtcdOptions options) {
  if (options.endpoints.empty()) return invalid("coordinator etcd: no endpoint");
  if (auto checked = check_key(options.root); !checked)
    return add_context("coordinator etcd: root", std::move(checked.error()));
  return std::unique_ptr<Coordinator>(new EtcdCoordinator(std::move(options)));
}

Result<std::optional<Entry>> EtcdCoordinator::get(std::string_view key) {
  SLUICE_RETURN_IF_ERROR(check_key(key));
  const json request = {{"key", base64_of(root_ + std::string(key))}};
  SLUICE_ASSIGN_OR_RETURN(answer, client_.call("/v3/kv/range", request, Repeat::kSafe));
  const json* const pairs = etcd::list_member(answer.body, "kvs");
  if (answer.verdict != Verdict::kDone || pairs == nullptr || pairs->size() > 1 ||
      !etcd::header_revision(answer.body))
    return malformed(answer, "get");
  if (pairs->empty()) return std::nullopt;
  auto entry = etcd::entry_of(pairs->front(), root_);
  if (!entry || entry->key != key) return malformed(answer, "get");
  return entry;
}

Result<Listing> EtcdCoordinator::list(std::string_view prefix) {
  SLUICE_RETURN_IF_ERROR(check_key(prefix));
  std::string from = root_ + std::string(prefix);
  json request = {{"range_end", base64_of(prefix_end(from))}, {"limit", kPageEntries}};
  Listing listing;
  for (;;) {
    request["key"] = base64_of(from);
    SLUICE_ASSIGN_OR_RETURN(answer, client_.call("/v3/kv/range", request, Repeat::kSafe));
    if (answer.verdict == Verdict::kCompacted)
      return fail(Errc::kReset, answer.server + ": revision " + std::to_string(listing.revision) +
                                    " was compacted while keys were listed; list again");
    const json* const pairs = etcd::list_member(answer.body, "kvs");
    const auto revision = etcd::header_revision(answer.body);
    if (answer.verdict != Verdict::kDone || pairs == nullptr || !revision || pairs->size() > kPageEntries)
      return malformed(answer, "list");
    for (const json& pair : *pairs) {
      auto entry = etcd::entry_of(pair, root_);
      if (!entry || !entry->key.starts_with(prefix) ||
          (!listing.entries.empty() && entry->key <= listing.entries.back().key))
        return malformed(answer, "list");
      listing.entries.push_back(std::move(*entry));
    }
    if (listing.revision == 0) listing.revision = *revision;
    if (!etcd::is_true(answer.body, "more")) return listing;
    if (pairs->empty()) return malformed(answer, "list");
    if (listing.entries.size() >= kMaxListEntries)
      return fail(Errc::kTooMany, "more than " + std::to_string(kMaxListEntries) + " keys start with " +
                                      config::in_quotes(prefix));
    request["revision"] = std::to_string(listing.revision);
    from = root_ + listing.entries.back().key + '\0';
  }
}

Result<ChangeResult> EtcdCoordinator::create(std::string_view key, std::string_view value, LeaseId lease) {
  SLUICE_RETURN_IF_ERROR(check_key(key));
  SLUICE_RETURN_IF_ERROR(check_value(key, value));
  return change_if(key, 0, value, lease);
}

Result<ChangeResult> EtcdCoordinator::compare_and_swap(std::string_view key, Revision expected,
                                                       std::string_view value, LeaseId lease) {
  SLUICE_RETURN_IF_ERROR(check_key(key));
  SLUICE_RETURN_IF_ERROR(check_revision(key, expected));
  SLUICE_RETURN_IF_ERROR(check_value(key, value));
  return change_if(key, expected, value, lease);
}

Result<ChangeResult> EtcdCoordinator::remove(std::string_view key, Revision expected) {
  SLUICE_RETURN_IF_ERROR(check_key(key));
  SLUICE_RETURN_IF_ERROR(check_revision(key, expected));
  return change_if(key, expected, std::nullopt, kNoLease);
}

Result<ChangeResult> EtcdCoordinator::change_if(std::string_view key, Revision expected,
                                                std::optional<std::string_view> value, LeaseId lease) {
  const std::string name = base64_of(root_ + std::string(key));
  const json key_only = {{"key", name}};
  // A key that does not exist has revision 0.
  const json condition = {
      {"key", name}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", std::to_string(expected)}};
  json change;
  if (value) {
    change["request_put"] = {{"key", name}, {"value", base64_of(*value)}, {"lease", std::to_string(lease)}};
  } else {
    change["request_delete_range"] = key_only;
  }
  json otherwise;
  otherwise["request_range"] = key_only;
  json request;
  request["compare"] = json::array({condition});
  request["success"] = json::array({std::move(change)});
  request["failure"] = json::array({std::move(otherwise)});
  SLUICE_ASSIGN_OR_RETURN(answer, client_.call("/v3/kv/txn", request, Repeat::kOnce));
  if (answer.verdict == Verdict::kNotFound && lease != kNoLease)
    return ChangeResult{.outcome = Outcome::kLeaseEnded, .entry = std::nullopt, .revision = 0};
  SLUICE_ASSIGN_OR_RETURN(result, read_change(answer));
  if (result.is_done() && value)
    result.entry = Entry{
        .key = std::string(key), .value = std::string(*value), .revision = result.revision, .lease = lease};
  const bool is_plausible = result.is_done() ? result.revision > expected
                            : result.entry   ? result.entry->key == key && result.entry->revision != expected
                                             : expected != 0;
  if (!is_plausible) return malformed(answer, "change");
  if (result.is_done()) limit_history(result.revision);
  return std::move(result);
}

void EtcdCoordinator::limit_history(Revision revision) {
  const auto last = history_.on_change(revision, monotonic_now());
  if (!last) return;
  // kCompacted: another reducer was here before.
  const auto answer = client_.call("/v3/kv/compaction", {{"revision", std::to_string(*last)}}, Repeat::kSafe);
  if (!answer) log::warn("coordinator etcd: its history was not compacted: " + answer.error().text);
}

Result<ChangeResult> EtcdCoordinator::read_change(const etcd::EtcdClient::Answer& answer) const {
  const auto revision = etcd::header_revision(answer.body);
  if (answer.verdict != Verdict::kDone || !revision) return malformed(answer, "change");
  ChangeResult result{.outcome = Outcome::kDone, .entry = std::nullopt, .revision = *revision};
  if (etcd::is_true(answer.body, "succeeded")) return result;
  const json* const responses = etcd::list_member(answer.body, "responses");
  if (responses == nullptr || responses->size() != 1) return malformed(answer, "change");
  const json* const range = etcd::member(responses->front(), "response_range");
  const json* const pairs = range == nullptr ? nullptr : etcd::list_member(*range, "kvs");
  if (pairs == nullptr || pairs->size() > 1) return malformed(answer, "change");
  result.outcome = pairs->empty() ? Outcome::kNotFound : Outcome::kConflict;
  if (pairs->empty()) return result;
  result.entry = etcd::entry_of(pairs->front(), root_);
  if (!result.entry) return malformed(answer, "change");
  return result;
}

Result<Lease> EtcdCoordinator::grant(Nanos ttl) {
  SLUICE_RETURN_IF_ERROR(check_ttl(ttl));
  const uint64_t seconds = div_ceil(static_cast<uint64_t>(ttl), kSecond);
  // A lease that was granted without an answer ends by itself.
  SLUICE_ASSIGN_OR_RETURN(answer,
                          client_.call("/v3/lease/grant", {{"TTL", std::to_string(seconds)}}, Repeat::kSafe));
  const auto id = etcd::integer(answer.body, "ID");
  const auto granted = etcd::integer(answer.body, "TTL");
  // etcd extends a TTL that is shorter than its elections.
  if (answer.verdict != Verdict::kDone || !id || *id == kNoLease || !granted ||
      *granted < static_cast<int64_t>(seconds) || *granted > kMaxTtl / kSecond)
    return malformed(answer, "grant of a lease");
  return Lease{.id = *id, .ttl = *granted * kSecond};
}

Result<bool> EtcdCoordinator::keep_alive(LeaseId lease) {
  SLUICE_ASSIGN_OR_RETURN(
      answer, client_.call("/v3/lease/keepalive", {{"ID", std::to_string(lease)}}, Repeat::kSafe));
  if (answer.verdict == Verdict::kNotFound) return false;
  const auto left = etcd::integer(answer.body, "TTL");
  if (answer.verdict != Verdict::kDone || !left || etcd::integer(answer.body, "ID") != lease)
    return malformed(answer, "renewal of a lease");
  return *left > 0;
}

Result<void> EtcdCoordinator::revoke(LeaseId lease) {
  SLUICE_ASSIGN_OR_RETURN(answer,
                          client_.call("/v3/lease/revoke", {{"ID", std::to_string(lease)}}, Repeat::kSafe));
  if (answer.verdict == Verdict::kNotFound) return {};
  if (answer.verdict != Verdict::kDone || !etcd::header_revision(answer.body))
    return malformed(answer, "end of a lease");
  return {};
}

}  // namespace sluice::store
