#include "cli/bits/bit_record_reader.h"

#include <gtest/gtest.h>

#include "tests/unit/cli/bit_record_text.h"

namespace sluice::cli::test {
namespace {

std::string error_of(const std::string& text) {
  const auto record = parse_bit_record(text, "f");
  return record ? "no error" : record.error().text;
}

// The text with the first `from` replaced.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(BitRecordReader, ReadsWhatTheWriterWrites) {
  std::vector<engine::BitOperation> written = operations(5);
  written[1].kind = wire::Kind::kAllGather;
  written[2] = {.number = 7,
                .count = 1,
                .state = engine::ResultState::kNone,
                .kind = wire::Kind::kReduce,
                .dtype = wire::DType::kF8e5m2,
                .op = wire::Op::kAvg};
  written[3] = {.number = 8, .count = 1, .state = engine::ResultState::kOnDevice};
  written[4].number = 9;
  const auto record = parse_bit_record(record_text({.session = 0xab, .rank = 2}, written), "f");
  ASSERT_TRUE(record) << record.error().text;
  EXPECT_EQ(record->session, "ab" + std::string(30, '0'));
  EXPECT_EQ(record->rank, 2u);
  EXPECT_EQ(record->ranks, 4u);
  EXPECT_EQ(record->job, "j");
  EXPECT_EQ(record->end, "session closed");
  EXPECT_FALSE(record->is_truncated);
  ASSERT_EQ(record->operations.size(), written.size());
  for (size_t i = 0; i < written.size(); ++i) {
    const engine::BitOperation& o = record->operations[i].operation;
    EXPECT_EQ(o.number, written[i].number);
    EXPECT_EQ(o.count, written[i].count);
    EXPECT_EQ(o.crc, written[i].crc);
    EXPECT_EQ(o.state, written[i].state);
    EXPECT_EQ(o.kind, written[i].kind);
    EXPECT_EQ(o.dtype, written[i].dtype);
    EXPECT_EQ(o.op, written[i].op);
  }
}

// The process may be killed, or the file copied, at any byte.
TEST(BitRecordReader, AcceptsAFileThatEndsAnywhereBehindItsHeader) {
  const std::string text = record_text({}, operations(3));
  const size_t header = text.find("\n0\t") + 1;
  for (size_t size = 1; size < text.size(); ++size) {
    const auto record = parse_bit_record(text.substr(0, size), "f");
    ASSERT_EQ(record.has_value(), size >= header) << size;
    if (size < header) continue;
    const auto whole_lines = static_cast<size_t>(std::count(&text[header], &text[size], '\n'));
    EXPECT_EQ(record->operations.size(), std::min(whole_lines, size_t{3}));
    EXPECT_EQ(record->end, "") << size;
    EXPECT_EQ(record->is_truncated, text[size - 1] != '\n') << size;
  }
  const auto killed = parse_bit_record(text.substr(0, text.find("# end")) + std::string(256, ' '), "f");
  ASSERT_TRUE(killed);
  EXPECT_FALSE(killed->is_truncated);
}

TEST(BitRecordReader, NamesTheLineOfGarbage) {
  const std::string text = record_text({}, operations(3));
  EXPECT_EQ(error_of(""), "f: the file is empty");
  EXPECT_EQ(error_of("hello\n"), "f:1: not a bit record of SLUICE_BITS");
  EXPECT_EQ(error_of(replaced(text, "record 1", "record 2")),
            "f:1: the bit record has format 2; this program reads format 1");
  EXPECT_EQ(error_of(replaced(text, "# rank 0", "# rank x")), "f:3: rank is no number");
  EXPECT_EQ(error_of(replaced(text, "# rank 0", "# rank 4")), "f:11: no session or rank before this line");
  EXPECT_EQ(error_of(replaced(text, "# session 01", "# session 0x")),
            "f:2: the session id has not 32 hex digits");
  EXPECT_EQ(error_of(replaced(text, "# session 01", "# session 0")),
            "f:2: the session id has not 32 hex digits");
  EXPECT_EQ(error_of(replaced(text, "operation\t", "op\t")), "f:11: expected the names of the columns");
  EXPECT_EQ(error_of(replaced(text, "# end session closed", "# end ")), "f:15: the end has no reason");
  EXPECT_EQ(error_of(text + "9\n"), "f:16: a line after the end of the bit record");
  for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
           {"\n1\tallreduce", "\n-1\tallreduce"},
           {"\n1\tallreduce", "\n1\tallreduced"},
           {"\n1\tallreduce\tf32", "\n1\tallreduce\tf33"},
           {"\n1\tallreduce\tf32\tsum", "\n1\tallreduce\tf32\t-"},
           {"\n1\tallreduce\tf32\tsum", "\n1\tbroadcast\tf32\tsum"},
           {"\n1\tallreduce\tf32\tsum\t1024", "\n1\tallreduce\tf32\tsum\t1e3"},
           {"\n1\tallreduce\tf32\tsum\t1024", "\n1\tallreduce\tf32\tsum\t1024\t"},
           {"\n1\tallreduce\tf32\tsum\t1024", "\n1\tallreduce\tf32\tsum"},
           {"\t9e3779b1\t", "\t9e3779B1\t"},
           {"\t9e3779b1\t", "\t9e3779b1f\t"},
           {"\t9e3779b1\t", "\tnothing\t"}})
    EXPECT_EQ(error_of(replaced(text, from, to)), "f:13: not an operation of a bit record") << to;
  EXPECT_EQ(error_of(replaced(text, "\n1\tall", "\n0\tall")),
            "f:13: the operation's number is not above that of the line before");
}

// A result that is edited afterwards must not pass for a record.
TEST(BitRecordReader, DetectsAnyChangeOfAnOperation) {
  const std::string text = record_text({}, operations(3));
  const size_t header = text.find("\n0\t") + 1;
  const size_t end = text.find("# end");
  for (size_t at = header; at < end; ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_FALSE(parse_bit_record(changed, "f")) << changed;
  }
  EXPECT_EQ(error_of(replaced(text, "\t9e3779b1\t", "\t9e3779b0\t")),
            "f:13: the running hash does not match the lines up to here; the file was changed");
}

TEST(BitRecordReader, AcceptsDescriptionsOfALaterVersion) {
  EXPECT_EQ(error_of(replaced(record_text({}, operations(1)), "# job", "# later thing\n# job")), "no error");
}

}  // namespace
}  // namespace sluice::cli::test
