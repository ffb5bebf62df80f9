// A lane must not allocate or lock per frame. Counted over real TCP by interposing libc's functions.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>

#include <cstdlib>
#include <mutex>

#include "core/clock.h"
#include "core/instrumented.h"
#include "tests/support/lane_test_bed.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

#if SLUICE_INSTRUMENTED
#define SLUICE_COUNTS_LIBC 0  // the sanitizers interpose them already; only operator new is counted
#else
#define SLUICE_COUNTS_LIBC 1
#endif

namespace {
thread_local bool counting = false;
thread_local uint64_t allocations = 0;
thread_local uint64_t locks = 0;
void count(uint64_t& n) noexcept {
  if (counting) ++n;
}
}  // namespace

#if SLUICE_COUNTS_LIBC
extern "C" {
// NOLINTBEGIN(clang-diagnostic-reserved-identifier,readability-identifier-naming): glibc's names
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
// NOLINTEND(clang-diagnostic-reserved-identifier,readability-identifier-naming)
void* malloc(size_t n) {
  count(allocations);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t m) {
  count(allocations);
  return __libc_calloc(n, m);
}
void* realloc(void* p, size_t n) {
  count(allocations);
  return __libc_realloc(p, n);
}
int pthread_mutex_lock(pthread_mutex_t* m) {
  static const auto real =
      reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  count(locks);
  return real(m);
}
}
#else
// Not inlined: g++ would warn about a mismatch of malloc and delete.
[[gnu::noinline]] void* operator new(size_t n) {
  count(allocations);
  if (void* p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
#endif

namespace sluice::test {
namespace {

using transport::tcp::Socket;

struct TcpPair {
  Socket near_end, far_end;
};

TcpPair connected() {
  const transport::tcp::SocketOptions options{
      .buffer_bytes = 0, .congestion_control = {}, .local_address = {}};
  auto listener = transport::tcp::listen_on("127.0.0.1", 0, options);
  auto far_end = transport::tcp::connect_to("127.0.0.1", *transport::tcp::bound_port(listener->fd()), options,
                                            monotonic_now() + 5 * kSecond);
  const int fd = ::accept(listener->fd(), nullptr, nullptr);
  return {Socket(fd), std::move(*far_end)};
}

struct Traffic {
  size_t payload;
  uint64_t view_every;  // chunks per view; 0: a single view
  bool health = false;
};
class LaneHotPathTest : public ::testing::TestWithParam<Traffic> {};

TEST_P(LaneHotPathTest, NeitherAllocatesNorLocksPerFrame) {
  const uint32_t n = 3;
  const reducer::SessionPlan plan{.handle = 9,
                                  .ranks = n,
                                  .slots = 4,
                                  .slot_bytes = 64 * kKiB,
                                  .view_version = 0,
                                  .view_hash = 7,
                                  .payload_crc = true,
                                  .fault_tolerant = GetParam().view_every != 0,
                                  .health = GetParam().health};
  reducer::LaneSession session(plan, *reducer::SlotArena::map(plan));
  auto near_context = *transport::tcp::make_context();
  auto far_context = *transport::tcp::make_context();
  transport::tcp::TcpContext& tcp = *near_context;
  std::vector<std::unique_ptr<ScriptedRank>> ranks;
  {
    reducer::Lane lane(std::move(near_context), nullptr, {});
    for (uint32_t r = 0; r < n; ++r) {
      TcpPair pair = connected();
      ranks.push_back(std::make_unique<ScriptedRank>());
      lane.attach(session, r,
                  **tcp.adopt(std::move(pair.near_end), session.connection(r), lane.endpoint_options(plan)));
      ranks.back()->endpoint =
          *far_context->adopt(std::move(pair.far_end), *ranks.back(), lane.endpoint_options(plan));
      const auto body = wire::encode_body(wire::Commit{.incarnation = 1});
      ASSERT_TRUE(
          ranks.back()->send(wire::control_header(wire::FrameType::kCommit, body, plan.handle), body).ok());
    }
    const std::vector<std::byte> payload(GetParam().payload);
    const uint64_t view_every = plan.fault_tolerant ? GetParam().view_every : ~uint64_t{0};
    const uint64_t warm_up = 50;
    const uint64_t frames = 1000;
    uint64_t frames_before = 0;
    const Nanos deadline = monotonic_now() + 50 * kSecond;
    for (uint64_t s = 0; s < warm_up + frames; ++s) {
      if (s == warm_up) allocations = locks = 0, frames_before = lane.counters().chunks.get();
      wire::FrameHeader h;
      h.type = wire::FrameType::kContribution;
      h.session = plan.handle;
      h.view_version = static_cast<uint16_t>(s / view_every);
      h.view_hash = plan.view_hash;
      h.sequence = s % view_every;
      h.chunk = s;
      h.slot = static_cast<uint16_t>(h.sequence % plan.slots);
      h.kind = wire::Kind::kAllreduce;
      h.wire_dtype = h.acc_dtype = h.result_dtype = wire::DType::kF32;
      if (h.view_version != 0 && s % 2 == 0) h.flags |= wire::kFlagKept;
      if (h.view_version != 0 && h.sequence == 0) {
        const auto body = wire::encode_body(
            wire::ViewCommit{.version = h.view_version, .view_hash = plan.view_hash, .base_chunk = s});
        const auto header = wire::control_header(wire::FrameType::kViewCommit, body, plan.handle);
        for (auto& r : ranks) ASSERT_TRUE(r->send(header, body).ok());
      }
      for (auto& r : ranks) ASSERT_TRUE(r->send(h, payload).ok());
      while (ranks[0]->arrived.size() <= s || ranks[n - 1]->arrived.size() <= s) {
        ASSERT_LT(monotonic_now(), deadline);
        (void)far_context->poll(monotonic_now(), kMiB);
        counting = true;
        (void)lane.do_work(monotonic_now());
        counting = false;
      }
    }
    EXPECT_EQ(lane.counters().chunks.get() - frames_before, frames);
    EXPECT_EQ(lane.counters().view_moves.get(),
              plan.fault_tolerant ? (warm_up + frames - 1) / view_every : 0);
    EXPECT_EQ(allocations, 0u);
    EXPECT_EQ(locks, 0u);
    // The interposed functions count.
    std::mutex mutex;
    counting = true;
    std::vector<int> probe(100);
    mutex.lock();
    counting = false;
    mutex.unlock();
    EXPECT_GT(allocations, 0u) << probe.size();
    EXPECT_EQ(locks, SLUICE_COUNTS_LIBC);
  }
}

INSTANTIATE_TEST_SUITE_P(Traffic, LaneHotPathTest,
                         ::testing::Values(Traffic{256, 0}, Traffic{64 * kKiB, 0}, Traffic{256, 10},
                                           Traffic{64 * kKiB, 0, true}));

}  // namespace
}  // namespace sluice::test
