#include "nccl_plugin/host/devices.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace sluice::nccl {
namespace {

namespace fs = std::filesystem;

// A fake /sys.
class DevicesFixture : public testing::Test {
 protected:
  DevicesFixture() {
    std::string pattern = (fs::temp_directory_path() / "sluice-sysfs-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  ~DevicesFixture() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  std::vector<Device> loopback(uint32_t speed_mbps = 0) {
    return find_devices({.interfaces = "=lo", .speed_mbps = speed_mbps, .sysfs = root_.string()});
  }
  fs::path root_;
};

TEST_F(DevicesFixture, FindsTheRequestedInterfaceWithItsNumericAddress) {
  const auto found = loopback();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "lo");
  EXPECT_EQ(found[0].address, "127.0.0.1");
  EXPECT_EQ(found[0].guid, ::if_nametoindex("lo"));
  EXPECT_EQ(found[0].pci_path, "");
  EXPECT_TRUE(find_devices({.interfaces = "=nosuchif0", .sysfs = root_.string()}).empty());
}

TEST_F(DevicesFixture, ExcludesLoopbackUnlessItIsTheOnlyInterface) {
  const auto found = find_devices({.interfaces = "", .sysfs = root_.string()});
  ASSERT_FALSE(found.empty());
  const bool has_loopback = std::ranges::any_of(found, [](const Device& d) { return d.name == "lo"; });
  EXPECT_EQ(has_loopback, found.size() == 1 && found[0].name == "lo");
}

TEST_F(DevicesFixture, ReturnsTheSameDevicesOnEveryCall) {
  const auto first = find_devices({.interfaces = "", .sysfs = root_.string()});
  const auto second = find_devices({.interfaces = "", .sysfs = root_.string()});
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].name, second[i].name);
    EXPECT_EQ(first[i].address, second[i].address);
    EXPECT_EQ(first[i].guid, second[i].guid);
  }
}

TEST_F(DevicesFixture, UsesTheSpeedOfTheUserOrTheKernelOrTenGigabit) {
  EXPECT_EQ(loopback().at(0).speed_mbps, 10'000u);
  write("class/net/lo/speed", "100000");
  EXPECT_EQ(loopback().at(0).speed_mbps, 100'000u);
  EXPECT_EQ(loopback(25'000).at(0).speed_mbps, 25'000u);
  for (const char* none : {"-1", "0", "", "4294967295", "unknown"}) {
    write("class/net/lo/speed", none);
    EXPECT_EQ(loopback().at(0).speed_mbps, 10'000u) << none;
  }
}

TEST_F(DevicesFixture, ExcludesInterfacesWithoutACarrier) {
  for (const char* state : {"up", "unknown", "dormant"}) {
    write("class/net/lo/operstate", state);
    EXPECT_EQ(loopback().size(), 1u) << state;
  }
  for (const char* state : {"down", "lowerlayerdown", "notpresent"}) {
    write("class/net/lo/operstate", state);
    EXPECT_TRUE(loopback().empty()) << state;
  }
}

TEST_F(DevicesFixture, FindsThePciFunction) {
  const fs::path function = root_ / "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1";
  fs::create_directories(function / "virtio3");
  fs::create_directories(root_ / "devices/platform/soc/ethernet");
  write("class/net/lo/operstate", "up");
  const fs::path link = root_ / "class/net/lo/device";
  const std::string canonical = fs::canonical(function).string();

  fs::create_directory_symlink(function, link);
  EXPECT_EQ(loopback().at(0).pci_path, canonical);
  fs::remove(link);
  fs::create_directory_symlink("../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1/virtio3", link);
  EXPECT_EQ(loopback().at(0).pci_path, canonical);
  fs::remove(link);
  fs::create_directory_symlink(root_ / "devices/platform/soc/ethernet", link);
  EXPECT_EQ(loopback().at(0).pci_path, "") << "not on a PCI bus: NCCL attaches it to the CPU";
}

TEST_F(DevicesFixture, FindsAnActiveRdmaPort) {
  EXPECT_EQ(active_rdma_device(root_.string()), "") << "no such class";
  fs::create_directories(root_ / "class/infiniband");
  EXPECT_EQ(active_rdma_device(root_.string()), "");
  write("class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  write("class/infiniband/mlx5_1/ports/2/state", "2: INIT");
  EXPECT_EQ(active_rdma_device(root_.string()), "");
  write("class/infiniband/mlx5_3/ports/1/state", "4: ACTIVE");
  EXPECT_EQ(active_rdma_device(root_.string()), "mlx5_3");
  write("class/infiniband/mlx5_1/ports/2/state", "4: ACTIVE");
  EXPECT_EQ(active_rdma_device(root_.string()), "mlx5_1");
}

}  // namespace
}  // namespace sluice::nccl
