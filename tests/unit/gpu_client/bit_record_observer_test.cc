#include "gpu_client/engine/trace/bit_record_observer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/clock.h"

namespace sluice::engine::test {
namespace {

constexpr SessionId kRecordedSession{{0x3f, 0x2a, 0x0b, 0x1c}};

class BitRecordFixture : public ::testing::Test {
 protected:
  BitRecordFixture() {
    char pattern[] = "/tmp/sluice-bits-XXXXXX";
    folder_ = mkdtemp(pattern);
    ::setenv("SLUICE_BITS", (folder_ + "/%r.bits").c_str(), 1);
  }
  ~BitRecordFixture() override {
    ::unsetenv("SLUICE_BITS");
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] static std::shared_ptr<BitRecordObserver> create(Rank rank = 2) {
    return BitRecordObserver::create({.session = kRecordedSession,
                                      .rank = rank,
                                      .ranks = 4,
                                      .job = "a\nb",
                                      .reducers = "reducer 10.0.0.2:7470"});
  }
  // Ends an operation whose result is its number, repeated. All below `oldest_open` have ended.
  static void end(BitRecordObserver& observer, uint32_t number, uint32_t oldest_open,
                  Errc status = Errc::kOk) {
    const std::vector<uint32_t> result(10, number);
    observer.on_operation_ended(
        {.op_id = number, .bytes = 40, .count = 10, .status = status, .oldest_open = oldest_open},
        status == Errc::kOk ? std::as_bytes(std::span(result)) : std::span<const std::byte>());
  }
  [[nodiscard]] std::vector<std::string> lines(Rank rank = 2) const {
    std::ifstream file(folder_ + "/" + std::to_string(rank) + ".bits");
    std::vector<std::string> out;
    for (std::string line; std::getline(file, line);) out.push_back(line);
    return out;
  }
  // The lines of the operations.
  [[nodiscard]] std::vector<std::string> operations(Rank rank = 2) const {
    std::vector<std::string> out = lines(rank);
    std::erase_if(out, [](const std::string& line) { return line[0] == '#' || line[0] == 'o'; });
    return out;
  }
  std::string folder_;
};

TEST_F(BitRecordFixture, IsAbsentWithoutTheVariable) {
  ::setenv("SLUICE_BITS", "", 1);
  EXPECT_EQ(create(), nullptr);
  ::unsetenv("SLUICE_BITS");
  EXPECT_EQ(create(), nullptr);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(BitRecordFixture, DescribesTheSession) {
  ASSERT_NE(create(), nullptr);
  const std::vector<std::string> text = lines();
  ASSERT_EQ(text.size(), 12u);
  EXPECT_EQ(text[0], "# sluice bit record 1");
  EXPECT_EQ(text[1], "# session 3f2a0b1c000000000000000000000000");
  EXPECT_EQ(text[2], "# rank 2");
  EXPECT_EQ(text[3], "# ranks 4");
  EXPECT_EQ(text[4], "# job a?b") << "a line break would end the line";
  EXPECT_EQ(text[9], "# reducers reducer 10.0.0.2:7470");
  EXPECT_EQ(text[10], "operation\tkind\tdtype\top\tcount\tcrc32c\trunning_sha256");
  EXPECT_EQ(text[11], "# end session closed");
}

// The digits are those of `printf 'TEXT' | sha256sum`, where the TEXT of the second line begins with the
// digest of the first.
TEST_F(BitRecordFixture, HashesResultsAndChainsTheLines) {
  auto observer = create();
  const std::string result = "123456789";
  observer->on_operation_ended(
      {.op_id = 0, .bytes = 9, .count = 9, .dtype = wire::DType::kU8, .oldest_open = 1},
      std::as_bytes(std::span(result)));
  observer->on_operation_ended(
      {.op_id = 1, .count = 3, .kind = wire::Kind::kBroadcast, .on_device = true, .oldest_open = 2}, {});
  observer->on_operation_ended(
      {.op_id = 2, .count = 3, .kind = wire::Kind::kReduce, .op = wire::Op::kMax, .oldest_open = 3}, {});
  observer.reset();
  const std::vector<std::string> text = operations();
  ASSERT_EQ(text.size(), 3u);
  EXPECT_EQ(text[0], "0\tallreduce\tu8\tsum\t9\te3069283\t5753477023b9f926");
  EXPECT_EQ(text[1], "1\tbroadcast\tf32\t-\t3\tdevice\ta82e1087ec8c5d22");
  EXPECT_EQ(text[2], "2\treduce\tf32\tmax\t3\tnone\te355a0cc0a6ef293");
}

TEST_F(BitRecordFixture, OrdersOperationsThatEndOutOfOrder) {
  auto in_order = create(0);
  for (uint32_t i = 0; i < 4; ++i) end(*in_order, i, i + 1);
  in_order.reset();
  auto observer = create(1);
  end(*observer, 2, 0);
  end(*observer, 1, 0);
  end(*observer, 3, 0);
  end(*observer, 0, 4);
  observer.reset();
  EXPECT_EQ(operations(0).size(), 4u);
  EXPECT_EQ(operations(1), operations(0));
}

// A reader takes every line for the next operation, so one whose predecessor is unknown must not be written.
TEST_F(BitRecordFixture, LacksOperationsBehindOneThatIsOpen) {
  auto observer = create();
  end(*observer, 0, 1);
  end(*observer, 2, 1);
  observer.reset();
  EXPECT_EQ(operations().size(), 1u);
}

TEST_F(BitRecordFixture, EndsBeforeAnOperationThatFailed) {
  auto observer = create();
  end(*observer, 0, 1);
  end(*observer, 2, 1);
  end(*observer, 1, 3, Errc::kPeerLost);
  end(*observer, 3, 4);
  observer.reset();
  EXPECT_EQ(operations().size(), 1u);
  EXPECT_EQ(lines().back(), "# end operation 1 failed: " + std::string(to_string(Errc::kPeerLost)));
}

TEST_F(BitRecordFixture, CountsBeyondTheNumbersOfTheProtocol) {
  auto observer = create();
  constexpr uint32_t kLast = 0xffffffff;
  for (const uint32_t step : {0x7fffffffU, 0xfffffffeU, kLast}) end(*observer, step, step + 1);
  end(*observer, 0, 1);
  observer.reset();
  const std::vector<std::string> text = operations();
  ASSERT_EQ(text.size(), 4u);
  EXPECT_TRUE(text[2].starts_with("4294967295\t")) << text[2];
  EXPECT_TRUE(text[3].starts_with("4294967296\t")) << text[3];
}

// The loop is faster than the writer can be, but the system may stop its thread. What was written is complete
// up to the end.
TEST_F(BitRecordFixture, EndsWhereTheRingWasFull) {
  auto observer = create();
  uint32_t count = 0;
  const Nanos deadline = monotonic_now() + 20 * kSecond;
  do {
    for (size_t i = 0; i < BitRecordObserver::kRecords; ++i, ++count) end(*observer, count, count + 1);
  } while (!lines().back().starts_with("# end") && monotonic_now() < deadline);
  observer.reset();
  const std::vector<std::string> text = operations();
  for (size_t i = 0; i < text.size(); ++i)
    ASSERT_TRUE(text[i].starts_with(std::to_string(i) + "\t")) << text[i];
  ASSERT_LT(text.size(), count) << "the writer was faster: the test has no effect";
  EXPECT_EQ(lines().back(), "# end operations ended faster than the file could be written");
}

TEST_F(BitRecordFixture, RefusesAFileThatCannotBeWritten) {
  ASSERT_EQ(mkfifo((folder_ + "/2.bits").c_str(), 0600), 0);
  EXPECT_EQ(create(), nullptr);
  auto first = create(3);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(create(3), nullptr) << "another session writes to the file";
}

}  // namespace
}  // namespace sluice::engine::test
