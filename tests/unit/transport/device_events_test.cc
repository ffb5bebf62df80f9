// DeviceEvents with events of a fake device: which queue pairs they end and which contexts they wake.
// tests/rdma tests events of the kernel.
#include "transport/rdma/device_events.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.h"

namespace sluice::transport::rdma {
namespace {

std::deque<ibv_async_event> pending_events;
int errno_when_empty = EAGAIN;
size_t acknowledged_count = 0;
std::vector<std::string> log_lines;

int fake_get_async_event(ibv_context* /*context*/, ibv_async_event* event) {
  if (pending_events.empty()) {
    errno = errno_when_empty;
    return -1;
  }
  *event = pending_events.front();
  pending_events.pop_front();
  return 0;
}

struct FakeContext final : Context {
  unsigned poll(Nanos /*now*/, size_t /*budget*/) noexcept override { return 0; }
  void wait(Nanos /*timeout*/) noexcept override {}
  void wake() noexcept override { ++wake_count; }
  size_t endpoint_count() const noexcept override { return 0; }
  unsigned wake_count = 0;
};

class DeviceEventsFixture : public testing::Test {
 protected:
  DeviceEventsFixture() {
    pending_events.clear();
    errno_when_empty = EAGAIN;
    acknowledged_count = 0;
    log_lines.clear();
    log::set_sink([](log::Level /*level*/, std::string_view line) noexcept { log_lines.emplace_back(line); });
    verbs.get_async_event = fake_get_async_event;
    verbs.ack_async_event = [](ibv_async_event* /*event*/) { ++acknowledged_count; };
    sysfs_entry = std::filesystem::path(testing::TempDir()) / ("uverbs" + std::to_string(::getpid()));
    std::ofstream(sysfs_entry) << "fake sysfs entry";
    std::strncpy(device.dev_path, sysfs_entry.c_str(), sizeof device.dev_path - 1);
    context.device = &device;
    events.emplace(verbs, &context, "card0");
    events->add_context(fake_context);
  }
  ~DeviceEventsFixture() override {
    log::set_sink(nullptr);
    std::filesystem::remove(sysfs_entry);
  }
  void raise_event(ibv_event_type type, decltype(ibv_async_event::element) element = {}) {
    pending_events.push_back({.element = element, .event_type = type});
    events->poll();
  }

  Verbs verbs{};
  ibv_device device{};
  ibv_context context{};
  std::filesystem::path sysfs_entry;
  std::optional<DeviceEvents> events;
  FakeContext fake_context;
};

TEST_F(DeviceEventsFixture, PortErrorEndsThePairsOfThatPort) {
  PairEventSubscription one(*events, 1), another(*events, 1), other_port(*events, 2);
  raise_event(IBV_EVENT_PORT_ERR, {.port_num = 1});
  EXPECT_TRUE(one.has_failed());
  EXPECT_TRUE(another.has_failed());
  EXPECT_FALSE(other_port.has_failed());
  EXPECT_EQ(fake_context.wake_count, 1U);
  EXPECT_EQ(events->port_losses(), 1U);
  EXPECT_EQ(log_lines, std::vector<std::string>{"RDMA device card0 port 1 went down: 2 queue pairs lost"});
  PairEventSubscription created_later(*events, 1);
  raise_event(IBV_EVENT_PORT_ACTIVE, {.port_num = 1});
  EXPECT_FALSE(created_later.has_failed()) << "created after the event";
  EXPECT_FALSE(events->is_removed());
  EXPECT_EQ(acknowledged_count, 2U);
}

TEST_F(DeviceEventsFixture, PairErrorEndsThatPairOnly) {
  ibv_qp first_qp{}, second_qp{};
  ibv_cq first_cq{}, second_cq{};
  for (const auto type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
                          IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_PATH_MIG_ERR}) {
    PairEventSubscription one(*events, 1), other(*events, 1);
    one.bind(&first_qp, &first_cq);
    other.bind(&second_qp, &second_cq);
    raise_event(type, {.qp = &first_qp});
    EXPECT_TRUE(one.has_failed()) << type;
    EXPECT_FALSE(other.has_failed()) << type;
  }
  EXPECT_EQ(log_lines.front(), "RDMA device card0: queue pair failed: QP_FATAL");
  PairEventSubscription one(*events, 1), other(*events, 1);
  one.bind(&first_qp, &first_cq);
  other.bind(&second_qp, &second_cq);
  raise_event(IBV_EVENT_CQ_ERR, {.cq = &second_cq});
  EXPECT_FALSE(one.has_failed());
  EXPECT_TRUE(other.has_failed());
}

TEST_F(DeviceEventsFixture, OtherEventsEndNothingAndAreAcknowledged) {
  ibv_qp first_qp{};
  PairEventSubscription one(*events, 1);
  one.bind(&first_qp, nullptr);
  for (const auto type : {IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG})
    raise_event(type, {.qp = &first_qp});
  for (const auto type : {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE,
                          IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE})
    raise_event(type, {.port_num = 1});
  EXPECT_FALSE(one.has_failed());
  EXPECT_EQ(acknowledged_count, 9U);
  EXPECT_EQ(fake_context.wake_count, 0U);
  EXPECT_TRUE(log_lines.empty());
}

TEST_F(DeviceEventsFixture, FatalDeviceEventRemovesTheDevice) {
  PairEventSubscription one(*events, 1), other_port(*events, 2);
  raise_event(IBV_EVENT_DEVICE_FATAL);
  EXPECT_TRUE(one.has_failed());
  EXPECT_TRUE(other_port.has_failed());
  EXPECT_TRUE(events->is_removed());
  PairEventSubscription created_later(*events, 1);
  EXPECT_TRUE(created_later.has_failed());
  events->poll();
  EXPECT_EQ(log_lines, std::vector<std::string>{"RDMA device card0 was removed: 2 queue pairs lost"});
}

TEST_F(DeviceEventsFixture, FailedEventReadRemovesTheDevice) {
  PairEventSubscription one(*events, 1);
  errno_when_empty = EIO;
  events->poll();
  EXPECT_TRUE(events->is_removed());
  EXPECT_TRUE(one.has_failed());
  EXPECT_EQ(fake_context.wake_count, 1U);
}

// A software driver waits until all users have closed the device and reports no event.
TEST_F(DeviceEventsFixture, MissingSysfsEntryRemovesTheDevice) {
  PairEventSubscription one(*events, 1);
  events->poll();
  EXPECT_FALSE(one.has_failed());
  std::filesystem::remove(sysfs_entry);
  events->poll();
  EXPECT_TRUE(events->is_removed());
  EXPECT_TRUE(one.has_failed());
}

TEST_F(DeviceEventsFixture, DestroyedSubscriptionsAndRemovedContextsGetNoEvents) {
  ibv_qp first_qp{};
  std::optional<PairEventSubscription> one(std::in_place, *events, uint8_t{1});
  one->bind(&first_qp, nullptr);
  one.reset();
  events->remove_context(fake_context);
  PairEventSubscription other(*events, 1);
  raise_event(IBV_EVENT_QP_FATAL, {.qp = &first_qp});
  EXPECT_FALSE(other.has_failed());
  raise_event(IBV_EVENT_PORT_ERR, {.port_num = 1});
  EXPECT_TRUE(other.has_failed());
  EXPECT_EQ(fake_context.wake_count, 0U);
}

}  // namespace
}  // namespace sluice::transport::rdma
