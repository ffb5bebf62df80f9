#include "store/coordinator/coordinator.h"

#include <algorithm>

#include "config/printable_text.h"
#include "config/sizes.h"

namespace sluice::store {

using config::in_quotes;

Result<void> check_key(std::string_view key) {
  if (key.empty()) return invalid("key of the coordinator is empty");
  if (key.size() > kMaxKeyBytes)
    return invalid("key " + in_quotes(key) + " has " + std::to_string(key.size()) + " bytes; the limit is " +
                   std::to_string(kMaxKeyBytes));
  if (std::ranges::any_of(key, [](char c) { return c < '!' || c > '~'; }))
    return invalid("key " + in_quotes(key) +
                   " contains a character other than printable ASCII without spaces");
  return {};
}

Result<void> check_value(std::string_view key, std::string_view value) {
  if (value.size() <= kMaxValueBytes) return {};
  return invalid("value of key " + in_quotes(key) + " has " + std::to_string(value.size()) +
                 " bytes; the limit is " + std::to_string(kMaxValueBytes));
}

Result<void> check_revision(std::string_view key, Revision revision) {
  if (revision > 0) return {};
  return invalid("revision " + std::to_string(revision) + " for key " + in_quotes(key) + " is not above 0");
}

Result<void> check_ttl(Nanos ttl) {
  if (ttl >= kMinTtl && ttl <= kMaxTtl) return {};
  return invalid("TTL " + config::duration_text(ttl) + " of a lease is not in " +
                 config::duration_text(kMinTtl) + " to " + config::duration_text(kMaxTtl));
}

}  // namespace sluice::store
