#include "bench/e2e/report/machine_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

namespace sluice::bench {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

TEST(FindNicToPeer, ReturnsTheLoopbackForThisHost) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const auto nic = find_nic_to_peer(host, "");
    ASSERT_TRUE(nic.has_value()) << nic.error().text;
    EXPECT_EQ(nic->name, "lo") << host;
    EXPECT_EQ(nic->driver, "");
    EXPECT_EQ(nic->speed_mbit, 0u);
    std::ifstream file("/sys/class/net/lo/mtu");
    int mtu = 0;
    if (file >> mtu) {
      EXPECT_EQ(nic->mtu, mtu);
    }
  }
}

TEST(FindNicToPeer, UnknownAddressIsAnError) {
  EXPECT_FALSE(find_nic_to_peer("no such name", "").has_value());
  EXPECT_FALSE(find_nic_to_peer("127.0.0.1", "192.0.2.77").has_value());  // from the block for documentation
}

TEST(MachineFacts, DescribeThisHost) {
  const MachineFacts facts = machine_facts("127.0.0.1:7470,127.0.0.1:7471");
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  EXPECT_EQ(facts.host, host.data());
  EXPECT_THAT(facts.kernel, ContainsRegex("^Linux [0-9]+\\."));
  EXPECT_FALSE(facts.cpu.empty());
  EXPECT_GE(facts.cores, 1u);
  EXPECT_GT(facts.memory_bytes, 1u << 20);
  EXPECT_EQ(facts.nic->name, "lo");
  std::ifstream file("/proc/sys/net/ipv4/tcp_congestion_control");
  std::string algorithm;
  if (file >> algorithm) {
    EXPECT_EQ(facts.congestion_control, algorithm);
  }
  EXPECT_THAT(facts.revision, ContainsRegex("^(unknown|[-.0-9A-Za-z]+)$"));
}

TEST(MachineFacts, UnavailableFactsAreNull) {
  const auto json = to_json(machine_facts("127.0.0.1"));
  EXPECT_EQ(json.at("nic").at("name"), "lo");
  EXPECT_TRUE(json.at("nic").at("driver").is_null());
  EXPECT_TRUE(json.at("nic").at("speed_mbit").is_null());
  EXPECT_TRUE(to_json(machine_facts("")).at("nic").is_null());
  EXPECT_TRUE(to_json(machine_facts("no such name")).at("nic").is_null());
}

TEST(MachineFacts, TextHasTwoCommentLines) {
  MachineFacts facts;
  facts.host = "node1";
  facts.kernel = "Linux 6.1.0 x86_64";
  facts.cpu = "Some CPU";
  facts.cores = 8;
  facts.memory_bytes = uint64_t{3} << 29;
  facts.congestion_control = "cubic";
  facts.version = "0.1.0";
  facts.revision = "abc-dirty";
  EXPECT_EQ(text_of(facts),
            "# machine: node1, Linux 6.1.0 x86_64, Some CPU, 8 cores, 1.5 GiB\n"
            "# network: no network; sluice 0.1.0, revision abc-dirty\n");
  facts.nic = NicFacts{.name = "eth0", .driver = "mlx5_core", .speed_mbit = 100000, .mtu = 9000};
  EXPECT_THAT(text_of(facts), HasSubstr("# network: eth0 (mlx5_core) 100000 Mb/s, MTU 9000, cubic; sluice"));
  EXPECT_EQ(to_json(facts).at("nic").at("speed_mbit"), 100000);
}

}  // namespace
}  // namespace sluice::bench
