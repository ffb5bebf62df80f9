#include "config/host/host_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace sluice::config {
namespace {

constexpr uint64_t kMachine = uint64_t{64} << 30;
constexpr uint32_t kCpus = 16;

class HostLimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "rootXXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  // A process in `group` of v2, whose hierarchy shows what lies below `shown`.
  void use_v2(const std::string& group, const std::string& shown = "/") const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo",
          "22 29 0:21 / /proc rw - proc proc rw\n"
          "30 23 0:26 " +
              shown + " /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  [[nodiscard]] HostLimits limits() const { return host_limits_below(root_, kMachine, kCpus); }
  void expect_machine() const {
    EXPECT_EQ(limits().memory_bytes, kMachine);
    EXPECT_EQ(limits().threads(), kCpus);
    EXPECT_EQ(limits().text(), "");
  }

  std::string root_;
};

TEST_F(HostLimitsTest, AreThoseOfTheMachineWithoutControlGroups) {
  expect_machine();
  write("/proc/self/cgroup", "0::/\n");
  expect_machine();
  use_v2("/");
  expect_machine();
  use_v2("/system.slice/sluice.service");
  write("/sys/fs/cgroup/system.slice/sluice.service/memory.max", "max\n");
  write("/sys/fs/cgroup/system.slice/sluice.service/memory.high", "max\n");
  write("/sys/fs/cgroup/system.slice/sluice.service/cpu.max", "max 100000\n");
  expect_machine();
}

TEST_F(HostLimitsTest, AreTheSmallestOfNestedGroups) {
  use_v2("/kubepods/pod7/reducer");
  write("/sys/fs/cgroup/kubepods/memory.max", "34359738368\n");
  write("/sys/fs/cgroup/kubepods/pod7/memory.max", "300000000\n");
  write("/sys/fs/cgroup/kubepods/pod7/reducer/memory.max", "1000000000\n");
  write("/sys/fs/cgroup/kubepods/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/kubepods/pod7/reducer/cpu.max", "800000 100000\n");
  EXPECT_EQ(limits().memory_bytes, 300'000'000u);
  EXPECT_EQ(limits().threads(), 2u) << "a quota of 1.5 CPUs keeps two threads busy";
  EXPECT_EQ(limits().text(),
            "300 MB of memory (/sys/fs/cgroup/kubepods/pod7/memory.max) and 1.5 CPUs "
            "(/sys/fs/cgroup/kubepods/cpu.max)");
  write("/sys/fs/cgroup/kubepods/memory.high", "200000000\n");
  EXPECT_EQ(limits().memory_file, "/sys/fs/cgroup/kubepods/memory.high");
}

TEST_F(HostLimitsTest, OfVersionOneAreReadPerController) {
  write("/proc/self/cgroup",
        "12:pids:/docker/7\n4:memory:/docker/7\n3:cpu,cpuacct:/docker/7/job\n1:name=systemd:/docker/7\n"
        "0::/docker/7\n");
  write("/proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup ro,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory ro - cgroup cgroup ro,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes", "314572800\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/7/cpu.cfs_quota_us", "50000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/7/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/7/job/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/7/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().memory_bytes, 314'572'800u);
  EXPECT_EQ(limits().threads(), 1u);
  EXPECT_DOUBLE_EQ(limits().cpus, 0.5);
  EXPECT_EQ(limits().cpu_file, "/sys/fs/cgroup/cpu,cpuacct/docker/7/cpu.cfs_quota_us");
}

TEST_F(HostLimitsTest, OfAContainerThatSeesOnlyItsOwnGroup) {
  // The mount shows the container's group, under its name outside.
  use_v2("/docker/7/job", "/docker/7");
  write("/sys/fs/cgroup/memory.max", "400000000\n");
  write("/sys/fs/cgroup/job/memory.max", "500000000\n");
  EXPECT_EQ(limits().memory_file, "/sys/fs/cgroup/memory.max");
  write("/sys/fs/cgroup/job/memory.max", "300000000\n");
  EXPECT_EQ(limits().memory_file, "/sys/fs/cgroup/job/memory.max");
  // A process that was moved out of the shown group, and one whose namespace hides the name.
  for (const char* group : {"/../other", "/"}) {
    use_v2(group, "/docker/7");
    EXPECT_EQ(limits().memory_file, "/sys/fs/cgroup/memory.max") << group;
  }
}

TEST_F(HostLimitsTest, OfVersionOneIncludeAncestorsThatAreNotShown) {
  write("/proc/self/cgroup", "4:memory:/kubepods/pod7/reducer\n");
  write("/proc/self/mountinfo",
        "35 31 0:32 /kubepods/pod7/reducer /sys/fs/cgroup/memory ro - cgroup cgroup ro,memory\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  expect_machine();
  for (const auto& [text, bytes] : {std::pair("hierarchical_memory_limit 9223372036854771712", kMachine),
                                    std::pair("hierarchical_memory_limit 300000000", uint64_t{300'000'000}),
                                    std::pair("hierarchical_memory_limit", kMachine)}) {
    write("/sys/fs/cgroup/memory/memory.stat", std::string("cache 4096\nrss 8192\n") + text + "\n");
    EXPECT_EQ(limits().memory_bytes, bytes) << text;
    EXPECT_EQ(limits().memory_file.empty(), bytes == kMachine);
  }
  write("/sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 300000000\ntotal_cache 1\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "300000000\n");
  EXPECT_EQ(limits().memory_file, "/sys/fs/cgroup/memory/memory.limit_in_bytes") << "its own limit";
}

TEST_F(HostLimitsTest, IgnoreWhatIsNotANumber) {
  use_v2("/a");
  for (const char* text : {"", "\n", "-5\n", "0\n", "many\n", "99999999999999999999999\n"}) {
    write("/sys/fs/cgroup/a/memory.max", text);
    write("/sys/fs/cgroup/a/cpu.max", std::string(text) + " 100000\n");
    expect_machine();
  }
  write("/sys/fs/cgroup/a/cpu.max", "100000 0\n");
  expect_machine();
  write("/sys/fs/cgroup/a/cpu.max", "100000\n");
  expect_machine();
  write("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2\n - - -\n\n");
  expect_machine();
}

TEST_F(HostLimitsTest, OfThisProcessAreWithinTheMachine) {
  EXPECT_GT(host_limits().memory_bytes, 0u);
  EXPECT_GE(host_limits().threads(), 1u);
}

}  // namespace
}  // namespace sluice::config
