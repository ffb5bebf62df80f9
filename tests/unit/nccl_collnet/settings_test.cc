#include "nccl_plugin/host/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::nccl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SettingsResult read(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  return read_settings(environment.data());
}

TEST(PluginSettings, HaveDefaults) {
  const auto r = read({"PATH=/bin", "NCCL_DEBUG=INFO"});
  EXPECT_THAT(r.warnings, IsEmpty());
  EXPECT_THAT(r.settings.reducers, IsEmpty());
  EXPECT_EQ(r.settings.net_name, "SLUICE");
  EXPECT_EQ(r.settings.job, "default");
  EXPECT_EQ(r.settings.window_bytes, 2 * kMiB);
  EXPECT_TRUE(r.settings.fault_tolerant);
  EXPECT_EQ(r.settings.resume_timeout, 2 * kSecond);
}

TEST(PluginSettings, ReadVariables) {
  const auto r =
      read({"SLUICE_REDUCERS=node1,node2:8000*2", "SLUICE_NET=always", "SLUICE_OFFLOAD=never",
            "SLUICE_IFNAME=^docker", "NCCL_SOCKET_IFNAME=eth", "SLUICE_STREAMS=7", "SLUICE_MIN_BYTES=1M",
            "SLUICE_CONNECT_TIMEOUT=5s", "SLUICE_JOIN_TIMEOUT=90s", "SLUICE_NO_CRC=1", "SLUICE_THREADS=0",
            "SLUICE_MIN_NODES=2", "SLUICE_WINDOW=4M", "SLUICE_SLOT=128K", "SLUICE_SURVIVE=0",
            "SLUICE_RESUME_TIMEOUT=500ms", "SLUICE_JOB=train-7"});
  EXPECT_THAT(r.warnings, IsEmpty());
  ASSERT_EQ(r.settings.reducers.size(), 2U);
  EXPECT_EQ(r.settings.reducers[1].weight, 2);
  EXPECT_EQ(r.settings.net, NetPolicy::kAlways);
  EXPECT_EQ(r.settings.offload, OffloadPolicy::kNever);
  EXPECT_EQ(r.settings.interfaces, "^docker");
  EXPECT_EQ(r.settings.streams, 7U);
  EXPECT_EQ(r.settings.min_bytes, kMiB);
  EXPECT_EQ(r.settings.connect_timeout, 5 * kSecond);
  EXPECT_EQ(r.settings.join_timeout, 90 * kSecond);
  EXPECT_FALSE(r.settings.payload_crc);
  EXPECT_FALSE(r.settings.own_thread);
  EXPECT_FALSE(r.settings.fault_tolerant);
  EXPECT_EQ(r.settings.resume_timeout, 500 * kMillisecond);
  EXPECT_EQ(r.settings.job, "train-7");
}

TEST(PluginSettings, ReadHowWorkersReduceThemselves) {
  using engine::ColocationMode;
  EXPECT_EQ(read({}).settings.colocated, ColocationMode::kAuto);
  EXPECT_FALSE(read({}).settings.can_offload());
  const auto none = read({"SLUICE_REDUCERS=none", "SLUICE_LINK_RATE=25gbit", "CLUSTER_SPEC={}"});
  EXPECT_THAT(none.warnings, IsEmpty());
  EXPECT_TRUE(none.settings.no_pool);
  EXPECT_EQ(none.settings.link_rate, 25'000'000'000U);
  EXPECT_EQ(none.settings.pool_size(), 0U);
  EXPECT_TRUE(none.settings.can_offload());
  EXPECT_TRUE(none.settings.may_colocate(2));
  const auto off = read({"SLUICE_REDUCERS=none", "SLUICE_COLOCATED=off"}).settings;
  EXPECT_FALSE(off.can_offload());
  const auto pool = read({"SLUICE_REDUCERS=a"}).settings;
  EXPECT_TRUE(pool.may_colocate(3));
  EXPECT_FALSE(pool.may_colocate(2));
  EXPECT_FALSE(read({"SLUICE_REDUCERS=127.0.0.1:1"}).settings.may_colocate(3));
  EXPECT_TRUE(read({"SLUICE_REDUCERS=127.0.0.1:1", "SLUICE_COLOCATED=always"}).settings.may_colocate(2));
  const auto wrong = read({"SLUICE_REDUCERS=a", "SLUICE_COLOCATED=on", "SLUICE_LINK_RATE=fast"});
  EXPECT_EQ(wrong.warnings.size(), 2U);
  EXPECT_EQ(wrong.settings.colocated, ColocationMode::kAuto);
}

TEST(PluginSettings, UseThePlatformsReducersWithoutSluiceReducers) {
  const char* spec = "CLUSTER_SPEC={\"cluster\": {\"workerpool2\": [\"r0:2222\", \"r1:2222\"]}}";
  const auto found = read({spec});
  EXPECT_THAT(found.warnings, IsEmpty());
  EXPECT_EQ(found.settings.pool_size(), 2U);
  EXPECT_EQ(found.settings.source, "cluster-spec");
  const auto named = read({spec, "SLUICE_REDUCERS=a"});
  EXPECT_EQ(named.settings.pool_size(), 1U);
  EXPECT_EQ(named.settings.source, "");
  EXPECT_EQ(read({spec, "SLUICE_DISCOVERY=none"}).settings.pool_size(), 0U);
  // An invalid list is not replaced by the platform's: the other ranks may have a valid list.
  EXPECT_EQ(read({spec, "SLUICE_REDUCERS=a:99999"}).settings.pool_size(), 0U);
}

TEST(PluginSettings, DoNotQueryTheDns) {
  const auto r = read({"SLUICE_REDUCER_SERVICE=reducer", "SLUICE_REDUCER_COUNT=4"});
  EXPECT_THAT(r.warnings, IsEmpty());
  EXPECT_THAT(r.settings.reducers, IsEmpty());
  EXPECT_EQ(r.settings.pool_size(), 4U);
  EXPECT_EQ(read({"SLUICE_REDUCER_SERVICE=r", "SLUICE_REDUCER_COUNT=4", "SLUICE_DISCOVERY=slurm"})
                .settings.pool_size(),
            0U);
}

TEST(PluginSettings, WarnOnceAboutAnInvalidPlatformVariable) {
  for (const auto& [invalid, text] : std::vector<std::pair<const char*, const char*>>{
           {"CLUSTER_SPEC={", "no offload: CLUSTER_SPEC:1:2: "},
           {"SLUICE_REDUCER_SERVICE=reducer", "set without SLUICE_REDUCER_COUNT"},
           {"SLUICE_SLURM_NODELIST=a[", "no offload: SLUICE_SLURM_NODELIST: column 3: "},
           {"SLUICE_DISCOVERY=tea", "no offload: SLUICE_DISCOVERY=tea"}}) {
    const auto r = read({invalid});
    EXPECT_THAT(r.warnings, ElementsAre(HasSubstr(text))) << invalid;
    EXPECT_EQ(r.settings.pool_size(), 0U);
  }
}

TEST(PluginSettings, UseNcclsInterfaceVariable) {
  EXPECT_EQ(read({"NCCL_SOCKET_IFNAME==eth0"}).settings.interfaces, "=eth0");
}

TEST(PluginSettings, WarnAboutAnInvalidValueAndUseTheDefault) {
  for (const char* invalid :
       {"SLUICE_STREAMS=0", "SLUICE_STREAMS=17", "SLUICE_STREAMS=many", "SLUICE_STREAMS=4x",
        "SLUICE_NET=sometimes", "SLUICE_THREADS=2", "SLUICE_WINDOW=64", "SLUICE_CONNECT_TIMEOUT=5",
        "SLUICE_CONNECT_TIMEOUT=1ms", "SLUICE_JOIN_TIMEOUT=60", "SLUICE_SURVIVE=no",
        "SLUICE_RESUME_TIMEOUT=2", "SLUICE_RESUME_TIMEOUT=10us", "SLUICE_REDUCERS=a:99999",
        "SLUICE_MIN_BYTES=-1"}) {
    const auto r = read({invalid});
    EXPECT_THAT(r.warnings, ElementsAre(HasSubstr(invalid))) << invalid;
    EXPECT_EQ(r.settings.streams, Settings().streams);
    EXPECT_EQ(r.settings.connect_timeout, Settings().connect_timeout);
    EXPECT_EQ(r.settings.resume_timeout, Settings().resume_timeout);
    EXPECT_THAT(r.settings.reducers, IsEmpty());
  }
}

TEST(PluginSettings, SuggestTheNearestVariableForAnUnknownOne) {
  EXPECT_THAT(read({"SLUICE_REDUCER=node1"}).warnings,
              ElementsAre(HasSubstr("did you mean SLUICE_REDUCERS?")));
  EXPECT_THAT(read({"SLUICE_KEYFILE=x"}).warnings, ElementsAre(HasSubstr("did you mean SLUICE_KEY_FILE?")));
}

TEST(PluginSettings, IgnoreVariablesOfProgramsAndPlatforms) {
  EXPECT_THAT(read({"SLUICE_LISTEN=*:7470", "SLUICE_ABSENCE_TIMEOUT=9s", "SLUICE_OP_TIMEOUT=1m",
                    "SLUICE_SERVICE_HOST=10.0.0.1", "SLUICE_SERVICE_PORT_DATA=7470",
                    "SLUICE_PORT=tcp://10.0.0.1:7470", "SLUICE_REDUCER_PORT=tcp://10.0.0.1:7470",
                    "SLUICE_PORT_7470_TCP_ADDR=10.0.0.1", "SLUICE_STREAMS="})
                  .warnings,
              IsEmpty());
}

}  // namespace
}  // namespace sluice::nccl
