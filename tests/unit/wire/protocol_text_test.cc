// Compares the tables of protocol.md, which is normative, with the code.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "core/status.h"
#include "tests/support/message_fields.h"
#include "wire/dtype.h"
#include "wire/messages.h"
#include "wire/store_messages.h"

namespace sluice::wire {
namespace {

std::string protocol_text() {
  std::ifstream file(SLUICE_PROTOCOL_TEXT);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string trimmed(const std::string& s) {
  const auto begin = s.find_first_not_of(' ');
  return begin == std::string::npos ? "" : s.substr(begin, s.find_last_not_of(' ') - begin + 1);
}

std::vector<std::string> split(const std::string& s, char at) {
  std::vector<std::string> parts;
  std::istringstream in(s);
  for (std::string part; std::getline(in, part, at);) parts.push_back(trimmed(part));
  return parts;
}

// The rows of all tables as lists of cells. In a row of the message table the third cell is the direction.
std::vector<std::vector<std::string>> rows() {
  std::vector<std::vector<std::string>> out;
  std::istringstream text(protocol_text());
  for (std::string line; std::getline(text, line);) {
    if (line.size() < 3 || line.front() != '|') continue;
    out.push_back(split(line.substr(1), '|'));
  }
  return out;
}

// Parses fields such as "rank u32, job text(128), missing list of u32 (at most 16)".
std::vector<std::string> layout_of(std::string fields) {
  fields = fields.substr(0, fields.find(';'));
  // Removes remarks in parentheses, but keeps limits.
  fields = std::regex_replace(fields, std::regex(R"( \((?!at most)[^)]*\))"), "");
  std::vector<std::string> layout;
  if (trimmed(fields).empty()) return layout;
  for (const std::string& field : split(fields, ',')) {
    std::smatch m;
    if (std::regex_search(field, m, std::regex(R"(list of (u\d+)(?: ids)? (\(at most \d+\))$)"))) {
      layout.push_back("list of " + m.str(1) + " " + m.str(2));
    } else if (std::regex_search(field, m, std::regex(R"((^| )(text(\(\d+\))?|u\d+|\d+ B)$)"))) {
      layout.push_back(m.str(2));
    } else {
      layout.push_back("cannot read: " + field);
    }
  }
  return layout;
}

struct Row {
  int type;
  bool may_grow;
  std::vector<std::string> layout;
};

std::map<std::string, Row> message_table() {
  std::map<std::string, Row> table;
  const std::regex name(R"(([A-Z_]+)( \+)?)");
  for (const auto& row : rows()) {
    std::smatch m;
    if (row.size() < 3 || !std::regex_match(row[0], std::regex(R"(\d+)")) ||
        !std::regex_match(row[1], m, name) || (row[2].find('>') == std::string::npos && row[2] != "both")) {
      continue;
    }
    const std::string fields = row.size() > 3 ? row[3] : "";
    if (fields.starts_with("data")) {
      table[m.str(1)] = {std::stoi(row[0]), false, {}};
    } else {
      table[m.str(1)] = {std::stoi(row[0]), m.length(2) > 0, layout_of(fields)};
    }
  }
  return table;
}

template <typename M>
void expect_row(std::map<std::string, Row>& table) {
  const std::string name = to_string(M::kType);
  SCOPED_TRACE(name);
  ASSERT_EQ(table.count(name), 1u);
  const Row& row = table[name];
  EXPECT_EQ(row.type, static_cast<int>(M::kType));
  EXPECT_EQ(row.may_grow, M::kMayGrow);
  M m;
  test::FieldLayout fields;
  M::visit(m, fields);
  if (name == "STATUS_REPLY") {
    EXPECT_EQ(row.layout, std::vector<std::string>{"text"}) << "as long as a control frame allows";
  } else {
    EXPECT_EQ(row.layout, fields.layout);
  }
  table.erase(name);
}

template <typename... M>
void expect_rows(std::map<std::string, Row>& table) {
  (expect_row<M>(table), ...);
}

TEST(ProtocolText, ListsTheFieldsOfEveryMessageInTheOrderOfTheCode) {
  auto table = message_table();
  ASSERT_EQ(table.size(), 56u);
  expect_rows<Hello, Welcome, Join, Joined, Attach, Attached, Refused, Pair, Paired, Vote, Verdict, Commit,
              Heartbeat, Leave, LeaveAck, Abort, StatusQuery, StatusReply, VerdictQuery, Gather, Gathered,
              Stream, StreamOffer, StreamAnswer, Resume, ResumeAck, Suspect, ViewQuery, ViewAnswer,
              ViewCommit, DrainNotice, ViewKnown, RateChanges, StoreRequest, StoreReady, ModelQuery,
              ModelAnswer, Push, PushStep, PushAnswer, Pull, PullAnswer, Current, CurrentAnswer, Install,
              StartModel, Step, CopyVersion, Committed, Done, Failed>(table);
  ASSERT_EQ(table.size(), 5u) << "only the data frames and GRANT remain";
  EXPECT_EQ(table["CONTRIBUTION"].type, static_cast<int>(FrameType::kContribution));
  EXPECT_EQ(table["RESULT"].type, static_cast<int>(FrameType::kResult));
  EXPECT_EQ(table["GRANT"].type, static_cast<int>(FrameType::kGrant));
  EXPECT_EQ(table["PIECE"].type, static_cast<int>(FrameType::kPiece));
  EXPECT_EQ(table["MODEL_DATA"].type, static_cast<int>(FrameType::kModelData));
}

TEST(ProtocolText, NamesEveryErrorCode) {
  unsigned named = 0;
  const std::regex range(R"((\d+)\.\.(\d+))");
  for (const auto& row : rows()) {
    std::smatch m;
    if (row.size() < 2 || !std::regex_match(row[0], m, range)) continue;
    const unsigned first = static_cast<unsigned>(std::stoul(m.str(1)));
    const auto names = split(row[1].substr(0, row[1].find(" (")), ',');
    ASSERT_EQ(names.size(), std::stoul(m.str(2)) - first + 1) << row[0];
    for (size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(to_string(static_cast<Errc>(first + i)), names[i]) << first + i;
      ++named;
    }
  }
  unsigned known = 0;
  for (unsigned number = 0; number < 0x10000; ++number)
    known += sluice::is_known(static_cast<Errc>(number)) ? 1 : 0;
  EXPECT_EQ(named, known);
}

TEST(ProtocolText, NumbersTheDTypesAndTheirAccumulators) {
  std::vector<std::string> dtypes;
  std::vector<std::string> accumulators;
  for (const auto& row : rows()) {
    if (row[0] == "dtype") dtypes.assign(row.begin() + 1, row.end());
    if (row[0] == "accumulator") accumulators.assign(row.begin() + 1, row.end());
  }
  ASSERT_EQ(dtypes.size(), kDTypeCount);
  ASSERT_EQ(accumulators.size(), kDTypeCount);
  for (size_t i = 0; i < kDTypeCount; ++i) {
    EXPECT_EQ(to_string(static_cast<DType>(i)), dtypes[i]);
    EXPECT_EQ(to_string(accumulator_of(static_cast<DType>(i))), accumulators[i]);
  }
  std::string operators;
  for (size_t i = 0; i < kOpCount; ++i)
    operators += (i == 0 ? "" : ", ") + std::to_string(i) + " " + std::string(to_string(static_cast<Op>(i)));
  EXPECT_NE(protocol_text().find("Operators: " + operators + "."), std::string::npos) << operators;
}

}  // namespace
}  // namespace sluice::wire
