// Memory that the CPU must not access (docs/design/rdma.md, "GPU memory"). Pages without access rights stand
// for GPU memory: soft-RoCE reads and writes them, because they are pinned, but a CPU access crashes the
// process. Runs in the guest, with SLUICE_TRANSPORT=rdma.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "core/arena.h"
#include "core/bytes.h"
#include "tests/functional/engine_test_bed.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDeviceRanks = 2;

// Pages that the CPU cannot access between hide() and show().
class DevicePages {
 public:
  explicit DevicePages(size_t bytes)
      : bytes_(bytes),
        at_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1,
                   0)) {
    EXPECT_NE(at_, MAP_FAILED);
  }
  DevicePages(DevicePages&& other) noexcept
      : bytes_(other.bytes_), at_(std::exchange(other.at_, MAP_FAILED)) {}
  DevicePages& operator=(DevicePages&&) = delete;
  ~DevicePages() {
    if (at_ != MAP_FAILED) ::munmap(at_, bytes_);
  }
  [[nodiscard]] std::span<float> floats() const { return {static_cast<float*>(at_), bytes_ / sizeof(float)}; }
  void hide() const { ASSERT_EQ(::mprotect(at_, bytes_, PROT_NONE), 0); }
  void show() const { ASSERT_EQ(::mprotect(at_, bytes_, PROT_READ | PROT_WRITE), 0); }

 private:
  const size_t bytes_;
  void* at_;
};

struct RegisterResult {
  sluice_status status = SLUICE_INTERNAL;
  std::string error;
};

RegisterResult register_pages(sluice_session* session, std::span<float> bytes, int dmabuf = -1) {
  std::array<char, 512> error{};
  RegisterResult t;
  t.status = sluice_memory_register_device(session, bytes.data(), bytes.size_bytes(), dmabuf, 0, error.data(),
                                           error.size());
  t.error = error.data();
  return t;
}

class DeviceMemory : public EngineTestBed {
 protected:
  static constexpr size_t kMaxBytes = 4 * kMiB;

  void SetUp() override {
    ::setenv("SLUICE_GDR", "1", 1);
    auto options = reducer_options();
    options.peer_timeout = 20 * kSecond;
    start_reducers(1, options);
  }
  void TearDown() override { ::unsetenv("SLUICE_GDR"); }

  static void adjust(sluice_options& o) {
    o.keep_results = 0;
    o.payload_crc = 1;
    o.join_timeout_ms = 60'000;
  }
  static void fill(std::span<float> bytes, uint32_t rank, size_t round) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<float>(rank + (i + round) % 1000);
  }
  static void check(std::span<const float> sums, size_t round) {
    for (size_t i = 0; i < sums.size(); ++i)
      ASSERT_EQ(sums[i], static_cast<float>(1 + 2 * ((i + round) % 1000))) << "element " << i;
  }
  static void allreduce(sluice_session* session, std::span<const float> from, std::span<float> to) {
    ASSERT_EQ(sluice_allreduce(session, from.data(), to.data(), to.size(), SLUICE_F32, SLUICE_SUM), SLUICE_OK)
        << reason_of(session);
  }
  static uint64_t copied(sluice_session* session) {
    sluice_stats s{};
    s.struct_size = sizeof s;
    EXPECT_EQ(sluice_session_stats(session, &s), SLUICE_OK);
    return s.payload_bytes_copied;
  }
  // Expects that each rank of such a session cannot register pages.
  void expect_refused(const std::function<void(sluice_options&)>& adjust, sluice_status status,
                      const char* text, int dmabuf = -1) {
    run_session(kDeviceRanks, adjust, [&](uint32_t /*rank*/, sluice_session* session) {
      const DevicePages pages(64 * kKiB);
      const RegisterResult result = register_pages(session, pages.floats(), dmabuf);
      EXPECT_EQ(result.status, status) << result.error;
      EXPECT_THAT(result.error, HasSubstr(text));
    });
  }
};

TEST_F(DeviceMemory, IsNeverAccessedByTheCpu) {
  run_session(kDeviceRanks, adjust, [&](uint32_t rank, sluice_session* session) {
    const DevicePages send(kMaxBytes), recv(kMaxBytes);
    ASSERT_EQ(register_pages(session, send.floats()).error, "");
    ASSERT_EQ(register_pages(session, recv.floats()).error, "");
    const uint64_t before = copied(session);
    size_t round = 0;
    for (const size_t bytes : {size_t{8}, kKiB, 100 * kKiB, kMaxBytes, size_t{8}}) {
      SCOPED_TRACE(bytes);
      const std::span<float> from = send.floats().first(bytes / sizeof(float));
      const std::span<float> to = recv.floats().first(bytes / sizeof(float));
      fill(from, rank, round);
      send.hide();
      recv.hide();
      allreduce(session, from, to);
      send.show();
      recv.show();
      check(to, round++);
    }
    EXPECT_EQ(copied(session), before);
    EXPECT_EQ(sluice_memory_unregister(session, recv.floats().data(), kMaxBytes), SLUICE_OK);
    EXPECT_EQ(sluice_memory_unregister(session, send.floats().data(), kMaxBytes), SLUICE_OK);
    EXPECT_EQ(sluice_memory_unregister(session, send.floats().data(), kMaxBytes), SLUICE_INVALID_ARGUMENT);
  });
}

TEST_F(DeviceMemory, MayBeSendAndReceiveBufferAtOnce) {
  run_session(kDeviceRanks, adjust, [&](uint32_t rank, sluice_session* session) {
    const DevicePages both(kMaxBytes);
    ASSERT_EQ(register_pages(session, both.floats()).error, "");
    for (size_t round = 0; round < 3; ++round) {
      fill(both.floats(), rank, round);
      both.hide();
      allreduce(session, both.floats(), both.floats());
      both.show();
      check(both.floats(), round);
    }
  });
}

// Concurrent operations on host memory, on device memory, and on both.
TEST_F(DeviceMemory, MixesWithHostMemory) {
  constexpr size_t kPart = 300 * kKiB;
  run_session(kDeviceRanks, adjust, [&](uint32_t rank, sluice_session* session) {
    const DevicePages send(kPart), recv(kPart), recv_too(kPart);
    std::vector<float> from(kPart / sizeof(float)), to(from.size()), to_too(from.size());
    for (const DevicePages* pages : {&send, &recv, &recv_too})
      ASSERT_EQ(register_pages(session, pages->floats()).error, "");
    for (size_t round = 0; round < 4; ++round) {
      fill(send.floats(), rank, round);
      fill(from, rank, round);
      for (const DevicePages* pages : {&send, &recv, &recv_too}) pages->hide();
      const std::array<std::pair<const float*, float*>, 4> operations{
          {{from.data(), recv.floats().data()},
           {from.data(), to.data()},
           {send.floats().data(), to_too.data()},
           {send.floats().data(), recv_too.floats().data()}}};
      std::array<sluice_request, 4> requests{};
      for (size_t i = 0; i < operations.size(); ++i) {
        ASSERT_EQ(sluice_allreduce_async(session, operations[i].first, operations[i].second, from.size(),
                                         SLUICE_F32, SLUICE_SUM, &requests[i]),
                  SLUICE_OK);
      }
      for (const sluice_request request : requests)
        ASSERT_EQ(sluice_wait(session, request, -1), SLUICE_OK) << reason_of(session);
      for (const DevicePages* pages : {&send, &recv, &recv_too}) pages->show();
      check(recv.floats(), round);
      check(recv_too.floats(), round);
      check(to, round);
      check(to_too, round);
    }
  });
}

TEST_F(DeviceMemory, RefusesABufferThatIsRegisteredInPart) {
  run_session(1, adjust, [&](uint32_t /*rank*/, sluice_session* session) {
    const DevicePages pages(64 * kKiB), host(64 * kKiB);
    const std::span<float> all = pages.floats(), known = all.subspan(all.size() / 2);
    ASSERT_EQ(register_pages(session, known).error, "");
    sluice_request request = 0;
    EXPECT_EQ(
        sluice_allreduce_async(session, all.data(), all.data(), all.size(), SLUICE_F32, SLUICE_SUM, &request),
        SLUICE_INVALID_ARGUMENT);
    EXPECT_EQ(sluice_allreduce_async(session, host.floats().data(), all.data(), all.size(), SLUICE_F32,
                                     SLUICE_SUM, &request),
              SLUICE_INVALID_ARGUMENT);
    allreduce(session, known, known);
    const std::span<float> before = all.first(all.size() / 2);
    allreduce(session, before, before);
  });
}

TEST_F(DeviceMemory, IsRefusedWithoutSluiceGdr) {
  ::unsetenv("SLUICE_GDR");
  expect_refused(adjust, SLUICE_UNSUPPORTED, "set SLUICE_GDR=1 to enable it");
}

TEST_F(DeviceMemory, IsRefusedWithKeepResults) {
  const auto keeping = [](sluice_options& o) {
    adjust(o);
    o.keep_results = 1;
  };
  expect_refused(keeping, SLUICE_UNSUPPORTED,
                 "results in device memory cannot be kept; set keep_results to 0");
}

TEST_F(DeviceMemory, IsRefusedWithMoreSlotsThanCanBeAdvertised) {
  const auto many_slots = [](sluice_options& o) {
    adjust(o);
    o.slot_bytes = 4 * kKiB;
    o.window_bytes = kMiB;
  };
  expect_refused(many_slots, SLUICE_UNSUPPORTED, "128 slots, but device memory allows at most 64");
}

TEST_F(DeviceMemory, IsRefusedOverTcp) {
  ::setenv("SLUICE_TRANSPORT", "tcp", 1);
  expect_refused(adjust, SLUICE_UNSUPPORTED, "2 of 2 lane connections do not use it");
  ::setenv("SLUICE_TRANSPORT", "rdma", 1);
}

// Either the kernel refuses the descriptor, or the library is too old for any dmabuf.
TEST_F(DeviceMemory, IsRefusedWithADescriptorThatIsNoDmabuf) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  run_session(1, adjust, [&](uint32_t /*rank*/, sluice_session* session) {
    const DevicePages pages(64 * kKiB);
    const RegisterResult result = register_pages(session, pages.floats(), ends[0]);
    EXPECT_TRUE(result.status == SLUICE_SYSTEM || result.status == SLUICE_UNSUPPORTED) << result.error;
    EXPECT_THAT(result.error, HasSubstr("dmabuf"));
    allreduce(session, pages.floats(), pages.floats());  // not registered, so it is copied
  });
  for (const int end : ends) ::close(end);
}

TEST_F(DeviceMemory, RefusesAnInvalidSluiceGdr) {
  ::setenv("SLUICE_GDR", "yes", 1);
  const Created c = create(options_for(0, 1));
  EXPECT_EQ(c.status, SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(c.error, HasSubstr("SLUICE_GDR: \"yes\": expected 0 or 1"));
}

}  // namespace
}  // namespace sluice::test
