#include "transport/tcp/link_rate.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace sluice::transport::tcp {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kGigabit = 1'000'000'000;

sockaddr_storage address(const char* text) {
  sockaddr_storage out{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(out);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
  if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
  } else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
  } else {
    throw std::invalid_argument(text);
  }
  return out;
}

// A sysfs in a temporary folder, and a list of interfaces as getifaddrs() returns it.
class LinkRate : public testing::Test {
 protected:
  LinkRate() {
    std::string path = (fs::temp_directory_path() / "sluice-link-rate-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot create " + path);
    sys_ = path;
  }
  ~LinkRate() override { fs::remove_all(sys_); }

  // `inside`: an entry of the interface's folder, such as "device".
  void add_link(const std::string& name, const std::string& inside, const std::string& speed) const {
    const fs::path folder = sys_ / "class/net" / name;
    fs::create_directories(inside.empty() ? folder : folder / inside);
    if (!speed.empty()) std::ofstream(folder / "speed") << speed << '\n';
  }
  void add_address(const char* name, const char* text, unsigned flags = IFF_UP) {
    storage_.push_back(address(text));
    names_.emplace_back(name);
    ifaddrs entry{};
    entry.ifa_name = names_.back().data();
    entry.ifa_flags = flags;
    entry.ifa_addr = reinterpret_cast<sockaddr*>(&storage_.back());
    entries_.push_back(entry);
    for (size_t i = 0; i + 1 < entries_.size(); ++i) entries_[i].ifa_next = &entries_[i + 1];
  }
  [[nodiscard]] uint64_t rate(const char* local) const {
    return link_rate(address(local), entries_.empty() ? nullptr : &entries_.front(), sys_.string());
  }
  [[nodiscard]] uint64_t rate_of(const std::string& name) const {
    return interface_rate(name, sys_.string());
  }

  fs::path sys_;

 private:
  std::deque<sockaddr_storage> storage_;
  std::deque<std::string> names_;
  std::deque<ifaddrs> entries_;
};

TEST_F(LinkRate, IsTheSpeedOfTheInterfaceWithTheAddress) {
  add_link("eth0", "device", "25000");
  add_link("eth1", "device", "100000");
  add_address("eth0", "10.0.0.1");
  add_address("eth1", "10.1.0.1");
  add_address("eth1", "2001:db8::1");
  EXPECT_EQ(rate("10.0.0.1"), 25 * kGigabit);
  EXPECT_EQ(rate("10.1.0.1"), 100 * kGigabit);
  EXPECT_EQ(rate("2001:db8::1"), 100 * kGigabit);
  EXPECT_EQ(rate("::ffff:10.1.0.1"), 100 * kGigabit);  // of a dual-stack socket
  EXPECT_EQ(rate("10.2.0.1"), 0u);
}

TEST_F(LinkRate, IsUnknownWhereTheKernelDoesNotKnowIt) {
  for (const char* speed : {"-1", "0", "", "65535", "4294967295", "fast"}) {
    add_link("eth0", "device", "");
    fs::remove(sys_ / "class/net/eth0/speed");
    add_link("eth0", "device", speed);
    EXPECT_EQ(rate_of("eth0"), 0u) << speed;
  }
  EXPECT_EQ(rate_of("eth7"), 0u);
}

TEST_F(LinkRate, IsUnknownOnVirtualInterfaces) {
  add_link("lo", "", "");
  add_link("veth0", "", "10000");
  add_link("tun0", "", "10");
  add_link("br0", "bridge", "10000");
  add_link("br0", "lower_veth0", "10000");
  for (const char* name : {"lo", "veth0", "tun0", "br0"}) EXPECT_EQ(rate_of(name), 0u) << name;
  add_link("bond0", "lower_eth0", "50000");
  EXPECT_EQ(rate_of("bond0"), 50 * kGigabit);
}

TEST_F(LinkRate, OfAllAddressesIsThatOfTheOnlyRealLink) {
  add_link("lo", "", "");
  add_link("docker0", "bridge", "10000");
  add_link("eth0", "device", "25000");
  add_link("eth1", "device", "100000");
  add_address("lo", "127.0.0.1");
  add_address("docker0", "172.17.0.1");
  add_address("eth1", "10.1.0.1", 0);  // down
  EXPECT_EQ(rate("0.0.0.0"), 0u);
  add_address("eth0", "10.0.0.1");
  add_address("eth0", "2001:db8::1");
  EXPECT_EQ(rate("0.0.0.0"), 25 * kGigabit);
  EXPECT_EQ(rate("::"), 25 * kGigabit);
  add_address("eth1", "10.1.0.2");
  EXPECT_EQ(rate("0.0.0.0"), 0u);
}

TEST(HostLinkRate, OfLoopbackIsUnknown) {
  EXPECT_EQ(link_rate(address("127.0.0.1")), 0u);
  EXPECT_EQ(link_rate(address("::1")), 0u);
}

}  // namespace
}  // namespace sluice::transport::tcp
