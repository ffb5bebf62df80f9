// Class Coordinator stores the few facts on which all reducers must agree: who owns a shard, which version of
// a model is current, which reducers live. It is a map from keys to values that counts its changes.
//
// Threads: any thread may call any method at any time. Calls block, each for at most the request timeout of
// the implementation; list() for at most that time for each page. Errors: what a caller must expect (a key
// exists, is missing, or was changed by another) is part of the result. An Error means that the coordinator
// did not answer, or not usably:
//   kInvalidArgument      a key, value, revision or TTL is out of its limits; nothing was sent
//   kReset, kTimeout      is_unavailable(): no connection, or no answer in time; a later call may succeed
//   kBadField             the answer is malformed or too large
//   kUnauthenticated      the coordinator refuses this user
//   kSystem               the coordinator refuses the request, or its file cannot be written
// After an error a change may have been made: read the key before the change is tried again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace sluice::store {

// Counts the changes of the whole store, from 1. A change of several keys at once, such as the end of a
// lease, has one revision.
using Revision = int64_t;
using LeaseId = int64_t;
inline constexpr LeaseId kNoLease = 0;

inline constexpr size_t kMaxKeyBytes = 256;     // of the characters '!' to '~'
inline constexpr size_t kMaxValueBytes = kMiB;  // etcd's own limit is 1.5 MiB for a request
inline constexpr size_t kMaxListEntries = 100'000;
inline constexpr Nanos kMinTtl = kSecond, kMaxTtl = 86'400 * kSecond;

struct Entry {
  std::string key;
  std::string value;
  Revision revision = 0;  // of the last change of this key
  LeaseId lease = kNoLease;
  friend bool operator==(const Entry&, const Entry&) = default;
};

struct Listing {
  std::vector<Entry> entries;  // in the order of their keys
  Revision revision = 0;       // at which the store had these entries
};

enum class Outcome : uint8_t {
  kDone,
  kConflict,    // create: the key exists; otherwise: the key has another revision
  kNotFound,    // the key does not exist
  kLeaseEnded,  // the lease of the change does not exist
};

struct ChangeResult {
  Outcome outcome = Outcome::kDone;
  std::optional<Entry> entry;  // kDone: as written, none if removed. kConflict: as it is.
  Revision revision = 0;       // of the store, after the change if there was one
  [[nodiscard]] bool is_done() const noexcept { return outcome == Outcome::kDone; }
};

struct Lease {
  LeaseId id = kNoLease;
  Nanos ttl = 0;  // at least as long as requested
};

class Coordinator {
 public:
  Coordinator() = default;
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  virtual ~Coordinator() = default;

  // The entry, or nothing if the key does not exist. Includes every change that was acknowledged before.
  [[nodiscard]] virtual Result<std::optional<Entry>> get(std::string_view key) = 0;
  // All entries whose keys start with `prefix`, which is not empty, as they were at one revision. kTooMany:
  // more than kMaxListEntries.
  [[nodiscard]] virtual Result<Listing> list(std::string_view prefix) = 0;
  // Creates the key, under `lease` if given. kConflict, with the existing entry, if the key exists.
  [[nodiscard]] virtual Result<ChangeResult> create(std::string_view key, std::string_view value,
                                                    LeaseId lease = kNoLease) = 0;
  // Replaces the value if the key's revision is `expected`, which is above 0. Afterwards the key is under
  // `lease`, or under none.
  [[nodiscard]] virtual Result<ChangeResult> compare_and_swap(std::string_view key, Revision expected,
                                                              std::string_view value,
                                                              LeaseId lease = kNoLease) = 0;
  // Removes the key if its revision is `expected`, which is above 0.
  [[nodiscard]] virtual Result<ChangeResult> remove(std::string_view key, Revision expected) = 0;

  // Makes a lease that ends `ttl` after its last renewal, kMinTtl to kMaxTtl, rounded up to seconds. Its keys
  // are removed when it ends. A restart of the coordinator renews all leases.
  [[nodiscard]] virtual Result<Lease> grant(Nanos ttl) = 0;
  // Renews the lease once. False: it has ended. Call it several times in a TTL.
  [[nodiscard]] virtual Result<bool> keep_alive(LeaseId lease) = 0;
  // Ends the lease now. No error if it has ended already.
  [[nodiscard]] virtual Result<void> revoke(LeaseId lease) = 0;
};

// True if no coordinator answered. A later call may succeed.
[[nodiscard]] constexpr bool is_unavailable(const Error& error) noexcept {
  return error.code == Errc::kReset || error.code == Errc::kTimeout;
}

// The checks that all implementations make before they do anything. kInvalidArgument with the object and the
// limit.
[[nodiscard]] Result<void> check_key(std::string_view key);
[[nodiscard]] Result<void> check_value(std::string_view key, std::string_view value);
[[nodiscard]] Result<void> check_revision(std::string_view key, Revision revision);
[[nodiscard]] Result<void> check_ttl(Nanos ttl);

}  // namespace sluice::store
