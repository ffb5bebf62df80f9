// Events of a device that is none: what of them ends which queue pairs, and who is woken. Those of a kernel
// are in tests/rdma.
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

std::deque<ibv_async_event> to_come;
int when_none = EAGAIN;
size_t acknowledged = 0;
std::vector<std::string> lines;

int next_event(ibv_context* /*context*/, ibv_async_event* event) {
  if (to_come.empty()) {
    errno = when_none;
    return -1;
  }
  *event = to_come.front();
  to_come.pop_front();
  return 0;
}

struct Sleeper final : Context {
  unsigned poll(Nanos /*now*/, size_t /*budget*/) noexcept override { return 0; }
  void wait(Nanos /*timeout*/) noexcept override {}
  void wake() noexcept override { ++woken; }
  size_t endpoint_count() const noexcept override { return 0; }
  unsigned woken = 0;
};

class DeviceEventsTest : public testing::Test {
 protected:
  DeviceEventsTest() {
    to_come.clear();
    when_none = EAGAIN;
    acknowledged = 0;
    lines.clear();
    log::set_sink([](log::Level /*level*/, std::string_view line) noexcept { lines.emplace_back(line); });
    calls.get_async_event = next_event;
    calls.ack_async_event = [](ibv_async_event* /*event*/) { ++acknowledged; };
    entry = std::filesystem::path(testing::TempDir()) / ("uverbs" + std::to_string(::getpid()));
    std::ofstream(entry) << "as in sysfs";
    std::strncpy(device.dev_path, entry.c_str(), sizeof device.dev_path - 1);
    context.device = &device;
    events.emplace(calls, &context, "card0");
    events->wakes(sleeper);
  }
  ~DeviceEventsTest() override {
    log::set_sink(nullptr);
    std::filesystem::remove(entry);
  }
  void happens(ibv_event_type type, int port = 0) {
    ibv_async_event e{};
    e.event_type = type;
    e.element.port_num = port;
    to_come.push_back(e);
    events->look();
  }
  void happens(ibv_event_type type, ibv_qp* pair) {
    ibv_async_event e{};
    e.event_type = type;
    e.element.qp = pair;
    to_come.push_back(e);
    events->look();
  }

  Verbs calls{};
  ibv_device device{};
  ibv_context context{};
  std::filesystem::path entry;
  std::optional<DeviceEvents> events;
  Sleeper sleeper;
};

TEST_F(DeviceEventsTest, APortThatGoesDownEndsThePairsOfThatPort) {
  PairEvents one(*events, 1), another(*events, 1), other_port(*events, 2);
  happens(IBV_EVENT_PORT_ERR, 1);
  EXPECT_TRUE(one.fatal());
  EXPECT_TRUE(another.fatal());
  EXPECT_FALSE(other_port.fatal());
  EXPECT_EQ(sleeper.woken, 1U);
  EXPECT_EQ(events->port_losses(), 1U);
  EXPECT_EQ(lines, std::vector<std::string>{"RDMA device card0 port 1 went down: 2 queue pairs are lost"});
  PairEvents later(*events, 1);
  happens(IBV_EVENT_PORT_ACTIVE, 1);
  EXPECT_FALSE(later.fatal()) << "it was made after that";
  EXPECT_FALSE(events->gone());
  EXPECT_EQ(acknowledged, 2U);
}

TEST_F(DeviceEventsTest, AFailureOfOnePairEndsThatOne) {
  ibv_qp here{}, there{};
  ibv_cq of_here{}, of_there{};
  for (const auto type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
                          IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_PATH_MIG_ERR}) {
    PairEvents one(*events, 1), other(*events, 1);
    one.name(&here, &of_here);
    other.name(&there, &of_there);
    happens(type, &here);
    EXPECT_TRUE(one.fatal()) << type;
    EXPECT_FALSE(other.fatal()) << type;
  }
  EXPECT_EQ(lines.front(), "RDMA device card0: a queue pair failed: QP_FATAL");
  PairEvents one(*events, 1), other(*events, 1);
  one.name(&here, &of_here);
  other.name(&there, &of_there);
  ibv_async_event overrun{};
  overrun.event_type = IBV_EVENT_CQ_ERR;
  overrun.element.cq = &of_there;
  to_come.push_back(overrun);
  events->look();
  EXPECT_FALSE(one.fatal());
  EXPECT_TRUE(other.fatal());
}

TEST_F(DeviceEventsTest, OthersEndNothingAndAreAcknowledged) {
  ibv_qp here{};
  PairEvents one(*events, 1);
  one.name(&here, nullptr);
  for (const auto type : {IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG}) happens(type, &here);
  for (const auto type : {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE,
                          IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE})
    happens(type, 1);
  EXPECT_FALSE(one.fatal());
  EXPECT_EQ(acknowledged, 9U);
  EXPECT_EQ(sleeper.woken, 0U);
  EXPECT_TRUE(lines.empty());
}

TEST_F(DeviceEventsTest, ADeviceThatSaysItIsGone) {
  PairEvents one(*events, 1), other_port(*events, 2);
  happens(IBV_EVENT_DEVICE_FATAL);
  EXPECT_TRUE(one.fatal());
  EXPECT_TRUE(other_port.fatal());
  EXPECT_TRUE(events->gone());
  PairEvents later(*events, 1);
  EXPECT_TRUE(later.fatal());
  events->look();
  EXPECT_EQ(lines, std::vector<std::string>{"RDMA device card0 is gone: 2 queue pairs are lost"});
}

TEST_F(DeviceEventsTest, ADeviceThatLeavesNothingBehindItsDescriptor) {
  PairEvents one(*events, 1);
  when_none = EIO;
  events->look();
  EXPECT_TRUE(events->gone());
  EXPECT_TRUE(one.fatal());
  EXPECT_EQ(sleeper.woken, 1U);
}

// As a driver of software does it, which waits for all who have it open to let go.
TEST_F(DeviceEventsTest, ADeviceThatTheKernelShowsNoMore) {
  PairEvents one(*events, 1);
  events->look();
  EXPECT_FALSE(one.fatal());
  std::filesystem::remove(entry);
  events->look();
  EXPECT_TRUE(events->gone());
  EXPECT_TRUE(one.fatal());
}

TEST_F(DeviceEventsTest, WhoHasGoneIsToldNothing) {
  ibv_qp here{};
  std::optional<PairEvents> one(std::in_place, *events, uint8_t{1});
  one->name(&here, nullptr);
  one.reset();
  events->forget(sleeper);
  PairEvents other(*events, 1);
  happens(IBV_EVENT_QP_FATAL, &here);
  EXPECT_FALSE(other.fatal());
  happens(IBV_EVENT_PORT_ERR, 1);
  EXPECT_TRUE(other.fatal());
  EXPECT_EQ(sleeper.woken, 0U);
}

}  // namespace
}  // namespace sluice::transport::rdma
