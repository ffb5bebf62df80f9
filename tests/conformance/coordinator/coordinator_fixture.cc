#include "tests/conformance/coordinator/coordinator_fixture.h"

#include <latch>
#include <thread>
#include <vector>

#include "store/coordinator/etcd/etcd_coordinator.h"
#include "store/coordinator/sqlite/sqlite_coordinator.h"

namespace sluice::test {

using store::ChangeResult;
using store::Coordinator;
using store::Entry;

namespace {

class SqliteTestBed final : public CoordinatorTestBed {
 public:
  SqliteTestBed() { open(); }
  Coordinator& coordinator() override { return *coordinator_; }
  void restart() override {
    coordinator_.reset();
    open();
  }

 private:
  void open() {
    coordinator_ = value_of(store::SqliteCoordinator::open(folder_.path() + "/coordinator.sqlite"));
  }
  TemporaryFolder folder_;
  std::unique_ptr<Coordinator> coordinator_;
};

class EtcdTestBed final : public CoordinatorTestBed {
 public:
  EtcdTestBed() {
    store::EtcdOptions options;
    options.endpoints = {{.host = "127.0.0.1", .port = shared_etcd().port()}};
    options.root = next_root();
    options.request_timeout = 20 * kSecond;
    coordinator_ = value_of(store::EtcdCoordinator::make(options));
  }
  Coordinator& coordinator() override { return *coordinator_; }
  void restart() override {
    shared_etcd().kill();
    shared_etcd().start();
  }

 private:
  std::unique_ptr<Coordinator> coordinator_;
};

std::unique_ptr<EtcdProcess>& etcd_instance() {
  static std::unique_ptr<EtcdProcess> etcd;
  return etcd;
}

}  // namespace

EtcdProcess& shared_etcd() {
  if (!etcd_instance()) {
    etcd_instance() = std::make_unique<EtcdProcess>();
    etcd_instance()->start();
  }
  return *etcd_instance();
}

std::string next_root() {
  static int number = 0;
  return "test-" + std::to_string(++number) + "/";
}

void CoordinatorConformance::SetUp() {
  if (GetParam() == std::string("sqlite")) {
    bed_ = std::make_unique<SqliteTestBed>();
    return;
  }
  if (const std::string reason = EtcdProcess::skip_reason(); !reason.empty()) GTEST_SKIP() << reason;
  bed_ = std::make_unique<EtcdTestBed>();
}

ChangeResult create(Coordinator& to, std::string_view key, std::string_view value, store::LeaseId lease) {
  return value_of(to.create(key, value, lease));
}

ChangeResult swap(Coordinator& to, std::string_view key, store::Revision expected, std::string_view value,
                  store::LeaseId lease) {
  return value_of(to.compare_and_swap(key, expected, value, lease));
}

ChangeResult remove(Coordinator& to, std::string_view key, store::Revision expected) {
  return value_of(to.remove(key, expected));
}

std::optional<Entry> get(Coordinator& to, std::string_view key) {
  return value_of(to.get(key));
}

std::string text_of(Coordinator& from, std::string_view folder) {
  std::string text;
  for (const Entry& entry : value_of(from.list(folder)).entries)
    text += (text.empty() ? "" : " ") + entry.key.substr(folder.size()) + "=" + entry.value;
  return text;
}

void run_threads(int count, const std::function<void(int)>& body) {
  std::latch start(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      body(i);
    });
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(All, CoordinatorConformance, testing::Values("sqlite", "etcd"),
                         [](const testing::TestParamInfo<const char*>& test) { return test.param; });

}  // namespace sluice::test
