// Sessions of several hosts with several ranks each: results, bytes on the network, changes and failures.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <span>

#include "core/float_bits.h"
#include "tests/functional/rails_test_bed.h"

namespace sluice::test {
namespace {

template <typename T>
bool all_equal(const std::vector<T>& x, const std::function<T(size_t)>& expected) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] != expected(i)) {
      std::fprintf(stderr, "element %zu of %zu: %g, expected %g\n", i, x.size(), static_cast<double>(x[i]),
                   static_cast<double>(expected(i)));
      return false;
    }
  }
  return true;
}

// Reduce-scatters of `part` elements for each rank: an average, in place, and a sum in f16, whose partial
// sums are f32 between hosts.
int equal_parts(uint32_t n, uint32_t rank, sluice_session* s, size_t part) {
  std::vector<float> x(n * part);
  std::vector<uint16_t> h(n * part), own(part);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 1000 + 2 * rank);
    h[i] = i / part % 2 == 0 ? 0x3c00 : 0x4000;  // 1 and 2
  }
  sluice_request request = 0;
  float* const mine = x.data() + rank * part;
  if (sluice_reduce_scatter_async(s, x.data(), mine, part, nullptr, SLUICE_F32, SLUICE_AVG, &request) !=
          SLUICE_OK ||
      sluice_wait(s, request, 20'000) != SLUICE_OK)
    return 51;
  if (!all_equal<float>({mine, mine + part},
                        [&](size_t i) { return static_cast<float>((rank * part + i) % 1000 + n - 1); }))
    return 52;
  if (sluice_reduce_scatter_async(s, h.data(), own.data(), part, nullptr, SLUICE_F16, SLUICE_SUM, &request) !=
          SLUICE_OK ||
      sluice_wait(s, request, 20'000) != SLUICE_OK)
    return 53;
  const uint32_t whole = rank % 2 == 0 ? n : 2 * n;
  const auto exponent = static_cast<uint32_t>(std::bit_width(whole) - 1);
  const auto sum = static_cast<uint16_t>((exponent + 15) << 10 | (whole << (10 - exponent) & 0x3ff));
  if (!all_equal<uint16_t>(own, [&](size_t) { return sum; })) return 54;
  std::vector<uint16_t> all(n * part);
  for (const bool in_place : {false, true}) {
    uint16_t* const send = in_place ? all.data() + rank * part : own.data();
    for (size_t i = 0; i < part; ++i) send[i] = static_cast<uint16_t>(rank * 1000 + i % 1000);
    if (sluice_all_gather_async(s, send, all.data(), part, nullptr, SLUICE_BF16, &request) != SLUICE_OK ||
        sluice_wait(s, request, 20'000) != SLUICE_OK)
      return 55;
    if (!all_equal<uint16_t>(
            all, [&](size_t i) { return static_cast<uint16_t>(i / part * 1000 + i % part % 1000); }))
      return 56;
    std::ranges::fill(all, uint16_t{0});
  }
  return 0;
}

int all_collectives(const std::vector<uint32_t>& host_of, uint32_t rank, sluice_session* s) {
  const auto n = static_cast<uint32_t>(host_of.size());
  const auto wait = [s](sluice_request request) { return sluice_wait(s, request, 20'000) == SLUICE_OK; };
  for (const size_t count : {size_t{1}, size_t{5000}, size_t{300'007}}) {
    std::vector<float> x(count), y(count);
    for (size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i % 100 + rank);
    const uint32_t all_ranks = n * (n - 1) / 2;
    const auto ranks_sum = static_cast<float>(all_ranks);
    if (sluice_allreduce(s, x.data(), y.data(), count, SLUICE_F32, SLUICE_SUM) != SLUICE_OK) return 11;
    if (!all_equal<float>(y, [&](size_t i) { return static_cast<float>(i % 100 * n) + ranks_sum; }))
      return 12;
    if (sluice_allreduce(s, x.data(), y.data(), count, SLUICE_F32, SLUICE_AVG) != SLUICE_OK) return 13;
    if (!all_equal<float>(y, [&](size_t i) {
          return (static_cast<float>(i % 100 * n) + ranks_sum) / static_cast<float>(n);
        }))
      return 14;
    std::vector<int8_t> b(count, static_cast<int8_t>(rank + 1));
    if (sluice_allreduce(s, b.data(), b.data(), count, SLUICE_I8, SLUICE_MAX) != SLUICE_OK) return 15;
    if (!all_equal<int8_t>(b, [&](size_t) { return static_cast<int8_t>(n); })) return 16;
    std::vector<uint16_t> h(count, 0x3c00);  // f16: 1.0
    if (sluice_allreduce(s, h.data(), h.data(), count, SLUICE_F16, SLUICE_AVG) != SLUICE_OK) return 17;
    if (!all_equal<uint16_t>(h, [&](size_t) { return uint16_t{0x3c00}; })) return 18;
    sluice_request request = 0;
    for (const uint32_t root : {0U, n - 1, n / 2}) {
      std::fill(y.begin(), y.end(), -1.f);
      if (sluice_reduce_async(s, x.data(), y.data(), count, SLUICE_F32, SLUICE_SUM, root, &request) !=
              SLUICE_OK ||
          !wait(request))
        return 21;
      if (!all_equal<float>(
              y, [&](size_t i) { return rank == root ? static_cast<float>(i % 100 * n) + ranks_sum : -1.f; }))
        return 22;
      y = x;
      if (sluice_broadcast_async(s, y.data(), count, SLUICE_F32, root, &request) != SLUICE_OK ||
          !wait(request))
        return 23;
      if (!all_equal<float>(y, [&](size_t i) { return static_cast<float>(i % 100 + root); })) return 24;
    }
    if (const int code = equal_parts(n, rank, s, count); code != 0) return code;
    // Parts of unequal sizes, one of them empty.
    std::vector<size_t> counts(n);
    for (uint32_t r = 0; r < n; ++r) counts[r] = r == 1 ? 0 : count / n + r;
    const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
    const auto before =
        static_cast<size_t>(std::accumulate(counts.begin(), counts.begin() + rank, size_t{0}));
    std::vector<int32_t> send(total), part(counts[rank], -7);
    for (size_t i = 0; i < total; ++i) send[i] = static_cast<int32_t>(i * 3 + rank);
    if (sluice_reduce_scatter_async(s, send.data(), part.data(), 0, counts.data(), SLUICE_I32, SLUICE_SUM,
                                    &request) != SLUICE_OK ||
        !wait(request))
      return 31;
    if (!all_equal<int32_t>(
            part, [&](size_t i) { return static_cast<int32_t>((before + i) * 3 * n + n * (n - 1) / 2); }))
      return 32;
    std::vector<int32_t> all(total);
    for (size_t i = 0; i < part.size(); ++i) part[i] = static_cast<int32_t>(before + i);
    if (sluice_all_gather_async(s, part.data(), all.data(), 0, counts.data(), SLUICE_I32, &request) !=
            SLUICE_OK ||
        !wait(request))
      return 33;
    if (!all_equal<int32_t>(all, [](size_t i) { return static_cast<int32_t>(i); })) return 34;
  }
  return 0;
}

TEST_F(Rails, AllCollectivesOfTwoHostsOfTwoRanks) {
  const std::vector<uint32_t> hosts = {0, 0, 1, 1};
  run_hosts(hosts, 2, [&](uint32_t rank, sluice_session* s) { return all_collectives(hosts, rank, s); });
}
TEST_F(Rails, AllCollectivesOfTwoHostsWhoseRanksAlternate) {
  const std::vector<uint32_t> hosts = {0, 1, 0, 1, 1, 0};
  run_hosts(hosts, 2, [&](uint32_t rank, sluice_session* s) { return all_collectives(hosts, rank, s); });
}
TEST_F(Rails, AllCollectivesOfUnequalHosts) {
  const std::vector<uint32_t> hosts = {0, 1, 0, 0, 2, 1};
  run_hosts(hosts, 2, [&](uint32_t rank, sluice_session* s) { return all_collectives(hosts, rank, s); });
}
// A host with one rank serves all rails.
TEST_F(Rails, AllCollectivesOfHostsWithOneRank) {
  for (const size_t reducers : {size_t{2}, size_t{0}}) {
    SetUp();
    const std::vector<uint32_t> hosts = {0, 1, 1, 1, 2, 2};
    run_hosts(hosts, reducers,
              [&](uint32_t rank, sluice_session* s) { return all_collectives(hosts, rank, s); });
  }
}
TEST_F(Rails, AllCollectivesOfHostsOfEightEightAndThreeRanks) {
  std::vector<uint32_t> hosts(19, 2);
  for (size_t rank = 0; rank < 16; ++rank) hosts[rank] = rank < 8 ? 0 : 1;
  run_hosts(hosts, 2, [&](uint32_t rank, sluice_session* s) { return all_collectives(hosts, rank, s); });
}
TEST_F(Rails, AllCollectivesOfTwoHostsWithoutReducers) {
  const std::vector<uint32_t> hosts = {0, 0, 1, 1};
  run_hosts(hosts, 0, [&](uint32_t rank, sluice_session* s) { return all_collectives(hosts, rank, s); });
}
TEST_F(Rails, AllCollectivesOfUnequalHostsWithoutReducers) {
  const std::vector<uint32_t> hosts = {0, 1, 2, 1, 2, 2};
  run_hosts(hosts, 0, [&](uint32_t rank, sluice_session* s) { return all_collectives(hosts, rank, s); });
}
TEST_F(Rails, OneHostWithAMeetingPointSendsNothing) {
  run_hosts({0, 0, 0}, 0, [&](uint32_t rank, sluice_session* s) {
    const int code = all_collectives({0, 0, 0}, rank, s);
    return code != 0 ? code : stats_of(s).payload_bytes_out == 0 ? 0 : 42;
  });
}
TEST_F(Rails, OneHostBesideAPoolSendsNothing) {
  run_hosts({0, 0, 0}, 1, [&](uint32_t rank, sluice_session* s) {
    const int code = all_collectives({0, 0, 0}, rank, s);
    return code != 0 ? code : stats_of(s).payload_bytes_out == 0 ? 0 : 41;
  });
}

// The bits of the sum of eight ranks on these hosts; those of bf16 are the upper half of f32's.
class RailsBits : public Rails {
 protected:
  static constexpr uint32_t kRanks = 8;
  static constexpr size_t kCount = 300'001;
  inline static const std::vector<uint32_t> kFlat{0, 1, 2, 3, 4, 5, 6, 7};
  inline static const std::vector<std::vector<uint32_t>> kGroupings{
      {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}};

  template <typename Element>
  std::vector<Element> sum_on(const std::vector<uint32_t>& hosts, const char* sharing = "auto") {
    SetUp();
    constexpr size_t kBytes = kRanks * kCount * sizeof(Element);
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    const std::span<Element> bits(static_cast<Element*>(memory), kRanks * kCount);
    const auto body = [&](uint32_t rank, sluice_session* s) {
      std::mt19937 random(rank);
      std::normal_distribution<float> normal;
      std::vector<Element> x(kCount);
      for (Element& v : x) {
        const float value = normal(random) * static_cast<float>(1 << (random() % 16));
        v = static_cast<Element>(bits_of(value) >> (32 - 8 * sizeof(Element)));
      }
      const auto dtype = sizeof(Element) == 4 ? SLUICE_F32 : SLUICE_BF16;
      if (sluice_allreduce(s, x.data(), x.data(), kCount, dtype, SLUICE_SUM) != SLUICE_OK) return 71;
      std::ranges::copy(x, bits.begin() + rank * kCount);
      return 0;
    };
    run_hosts(hosts, 2, body, ~0U, [&](uint32_t, sluice_options&) { ::setenv("SLUICE_HOSTS", sharing, 1); });
    std::vector<Element> out(bits.begin(), bits.begin() + kCount);
    for (uint32_t rank = 1; rank < kRanks; ++rank)
      EXPECT_TRUE(std::ranges::equal(bits.subspan(rank * kCount, kCount), out)) << rank << " " << hosts[4];
    ::munmap(memory, kBytes);
    return out;
  }
};

// The sum is a balanced tree over the ranks, and a host of two, four or eight consecutive ranks is a subtree.
TEST_F(RailsBits, OfF32DoNotDependOnTheHosts) {
  const auto flat = sum_on<uint32_t>(kFlat);
  for (const auto& hosts : kGroupings) EXPECT_EQ(sum_on<uint32_t>(hosts), flat) << hosts[4];
}

TEST_F(RailsBits, OfBf16DoNotDependOnTheHostsWhereSumsAreExact) {
  const auto flat = sum_on<uint16_t>(kFlat);
  for (const auto& hosts : kGroupings) EXPECT_EQ(sum_on<uint16_t>(hosts, "exact"), flat) << hosts[4];
  EXPECT_NE(sum_on<uint16_t>(kGroupings[0]), flat) << "the test cannot tell one rounding from two";
}

// Of its rail's data, a member sends the half that the other one's reducer sums.
TEST_F(Rails, AHostSendsItsDataOnceWithoutReducers) {
  constexpr size_t kCount = 4 << 20;
  run_hosts({0, 0, 1, 1}, 0, [&](uint32_t rank, sluice_session* s) {
    const uint64_t joined = stats_of(s).wire_bytes_out;
    std::vector<float> x(kCount, static_cast<float>(rank + 1));
    if (sluice_allreduce(s, x.data(), x.data(), kCount, SLUICE_F32, SLUICE_SUM) != SLUICE_OK) return 51;
    if (x[7] != 10 || x.back() != 10) return 52;
    const auto sent = [&] { return stats_of(s).wire_bytes_out - joined; };
    constexpr size_t kQuarter = kCount * sizeof(float) / 4;  // half of its rail's half
    return eventually([&] { return sent() >= kQuarter; }) && sent() < kQuarter + kQuarter / 100 ? 0 : 53;
  });
}

// Each host sends its sum once, whatever the number of its ranks.
TEST_F(Rails, AHostSendsItsDataOnce) {
  constexpr size_t kCount = 4 << 20;
  run_hosts({0, 0, 0, 0, 1, 1, 1, 1}, 2, [&](uint32_t rank, sluice_session* s) {
    const uint64_t joined = stats_of(s).payload_bytes_out;
    std::vector<float> x(kCount, static_cast<float>(rank));
    if (sluice_allreduce(s, x.data(), x.data(), kCount, SLUICE_F32, SLUICE_SUM) != SLUICE_OK) return 51;
    if (x[7] != 28 || x.back() != 28) return 52;
    constexpr size_t kQuarter = kCount * sizeof(float) / 4;  // of the host's bytes
    return eventually([&] { return stats_of(s).payload_bytes_out - joined == kQuarter; }) ? 0 : 53;
  });
}

// memfd_create fails with ENOSYS from now on, as a container's seccomp profile may want.
void forbid_memfd() {
  const std::array<sock_filter, 4> program{{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_memfd_create},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog filter{program.size(), const_cast<sock_filter*>(program.data())};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    ::_exit(6);
}

// All ranks then send their data, as they do on hosts of their own.
TEST_F(Rails, MemoryThatOneHostRefusesIsSharedByNone) {
  for (const size_t reducers : {size_t{2}, size_t{0}}) {
    run_hosts(
        {0, 0, 1, 1}, reducers,
        [&](uint32_t rank, sluice_session* s) {
          std::vector<float> x(100'000, static_cast<float>(rank + 1));  // zeros are not sent
          const uint64_t joined = stats_of(s).payload_bytes_out;
          if (sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM) != SLUICE_OK)
            return 81;
          if (x[7] != 10 || x.back() != 10) return 82;
          // Counters follow the operation's end.
          return eventually(
                     [&] { return stats_of(s).payload_bytes_out - joined == x.size() * sizeof(float); })
                     ? 0
                     : 83;
        },
        ~0U,
        [](uint32_t rank, sluice_options& /*o*/) {
          if (rank >= 2) forbid_memfd();
        });
    EXPECT_EQ(count_logged("no host shares memory"), 1U);
    EXPECT_EQ(count_logged("cannot create"), 1U);
  }
}

TEST_F(Rails, TheListOfRank0ReachesAllRails) {
  run_hosts({0, 0, 1, 1}, 2, [&](uint32_t rank, sluice_session* s) {
    const std::string first = list_.substr(0, list_.find(','));
    const auto usable = [&] {
      std::array<char, 256> text{};
      EXPECT_EQ(sluice_session_reducers(s, text.data(), text.size()), SLUICE_OK);
      return std::string(text.data());
    };
    std::vector<float> x(1000, 1);
    const auto sum = [&] {
      return sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_MAX) == SLUICE_OK;
    };
    if (!sum() || usable() != list_ || !sum()) return 91;  // the change comes after all have looked
    std::array<char, 200> error{};
    if (rank == 0 && sluice_session_set_reducers(s, first.c_str(), error.data(), error.size()) != SLUICE_OK)
      return 92;
    if (!eventually([&] { return usable() == first; })) return 93;
    return sum() && x[7] == 1 ? 0 : 94;
  });
}

TEST_F(Rails, TheDeathOfARankEndsTheSessionOnAllHosts) {
  run_hosts(
      {0, 0, 1, 1}, 2,
      [&](uint32_t rank, sluice_session* s) {
        std::vector<float> x(100'000, 1);
        int status = sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM);
        if (status != SLUICE_OK && (rank == 1 || status != SLUICE_LOST)) return 61;
        if (rank == 1) ::raise(SIGKILL);  // perhaps before another rank has its result
        status = sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM);
        if (status != SLUICE_LOST) return 62;
        const bool is_named = reason_of(s).find("rank 1 lost: its process ") != std::string::npos;
        if (!is_named) std::fprintf(stderr, "rank %u: %s\n", rank, reason_of(s).c_str());
        return is_named ? 0 : 63;
      },
      1);
}

}  // namespace
}  // namespace sluice::test
