#include "reducer/numa_affinity.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace sluice::reducer {
namespace {

class NumaAffinityTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "sysXXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    sys_ = name;
    write("devices/system/node/online", "0-1\n");
    write("devices/system/node/node0/cpulist", "0-3,8-11\n");
    write("devices/system/node/node1/cpulist", "4-7,12\n");
    write("class/infiniband/mlx5_0/device/numa_node", "1\n");
    write("class/infiniband/mlx5_1/device/numa_node", "0\n");
    write("class/infiniband/mlx5_2/device/numa_node", "1\n");
    write("class/infiniband/rxe0/device/numa_node", "-1\n");
    CPU_ZERO(&all_);
    for (size_t cpu = 0; cpu < 16; ++cpu) CPU_SET(cpu, &all_);
  }
  void TearDown() override { std::filesystem::remove_all(sys_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = sys_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  std::vector<size_t> near(const std::vector<std::string>& devices, const cpu_set_t& allowed) const {
    std::vector<size_t> out;
    const auto found = cpus_near(devices, allowed, sys_);
    for (size_t cpu = 0; found && cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &found->set)) out.push_back(cpu);
    return out;
  }
  using Cpus = std::vector<size_t>;
  std::string sys_;
  cpu_set_t all_{};
};

TEST_F(NumaAffinityTest, FindsTheNodeOfTheDevices) {
  EXPECT_EQ(near({"mlx5_0"}, all_), (Cpus{4, 5, 6, 7, 12}));
  EXPECT_EQ(near({"mlx5_0", "mlx5_2", "mlx5_0"}, all_), (Cpus{4, 5, 6, 7, 12}));
  EXPECT_EQ(near({"mlx5_1"}, all_), (Cpus{0, 1, 2, 3, 8, 9, 10, 11}));
}

TEST_F(NumaAffinityTest, FindsNothingWithoutASharedNode) {
  EXPECT_EQ(near({}, all_), Cpus{});
  EXPECT_EQ(near({"mlx5_0", "mlx5_1"}, all_), Cpus{});
  EXPECT_EQ(near({"rxe0"}, all_), Cpus{});
  EXPECT_EQ(near({"unknown"}, all_), Cpus{});
  write("devices/system/node/online", "0\n");
  EXPECT_EQ(near({"mlx5_0"}, all_), Cpus{}) << "a single node needs no affinity";
}

TEST_F(NumaAffinityTest, ReturnsOnlyAllowedCpus) {
  cpu_set_t some;
  CPU_ZERO(&some);
  CPU_SET(3, &some);
  EXPECT_EQ(near({"mlx5_0"}, some), Cpus{});
  CPU_SET(6, &some);
  EXPECT_EQ(near({"mlx5_0"}, some), Cpus{6});
}

TEST_F(NumaAffinityTest, PinsThreadsStartedInTheScopeOnly) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  NumaCpus one{};
  CPU_ZERO(&one.set);
  for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one.set) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one.set);
  cpu_set_t of_thread{};
  {
    const ScopedCpuAffinity affinity(one);
    std::thread([&] { (void)sched_getaffinity(0, sizeof of_thread, &of_thread); }).join();
  }
  EXPECT_TRUE(CPU_EQUAL(&of_thread, &one.set));
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&after, &before));
}

}  // namespace
}  // namespace sluice::reducer
