// The fixture of the conformance suite: each case runs against every implementation of Coordinator.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/clock.h"
#include "store/coordinator/coordinator.h"
#include "tests/conformance/coordinator/etcd_process.h"

namespace sluice::test {

inline constexpr Nanos kTestDeadline = 60 * kSecond;

// One implementation and its storage.
class CoordinatorTestBed {
 public:
  CoordinatorTestBed() = default;
  CoordinatorTestBed(const CoordinatorTestBed&) = delete;
  CoordinatorTestBed& operator=(const CoordinatorTestBed&) = delete;
  virtual ~CoordinatorTestBed() = default;
  [[nodiscard]] virtual store::Coordinator& coordinator() = 0;
  // Ends the storage without notice, and starts it again with its data. Destroys a coordinator that is in a
  // file.
  virtual void restart() = 0;
};

// The etcd of this test program; starts with the first call. Each test uses a root of its own.
[[nodiscard]] EtcdProcess& shared_etcd();
[[nodiscard]] std::string next_root();

class CoordinatorConformance : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  [[nodiscard]] store::Coordinator& coordinator() { return bed_->coordinator(); }
  [[nodiscard]] CoordinatorTestBed& bed() { return *bed_; }

  std::unique_ptr<CoordinatorTestBed> bed_;
};

// Calls that must succeed. They throw std::runtime_error with the error, which fails the test.
[[nodiscard]] store::ChangeResult create(store::Coordinator& to, std::string_view key, std::string_view value,
                                         store::LeaseId lease = store::kNoLease);
[[nodiscard]] store::ChangeResult swap(store::Coordinator& to, std::string_view key, store::Revision expected,
                                       std::string_view value, store::LeaseId lease = store::kNoLease);
[[nodiscard]] store::ChangeResult remove(store::Coordinator& to, std::string_view key,
                                         store::Revision expected);
[[nodiscard]] std::optional<store::Entry> get(store::Coordinator& to, std::string_view key);
// "1=a 2=b": of each key that starts with `folder` the part after it, then its value.
[[nodiscard]] std::string text_of(store::Coordinator& from, std::string_view folder);
// Runs `body(i)` in `count` threads that begin at the same time, and joins them.
void run_threads(int count, const std::function<void(int)>& body);

template <typename T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().text);
  return std::move(*result);
}

}  // namespace sluice::test
