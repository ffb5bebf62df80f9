// The files of SLUICE_BITS and SLUICE_TRACE of sessions whose ranks share hosts: those of the user's session.
#include <filesystem>
#include <map>
#include <sstream>

#include "tests/functional/rails_test_bed.h"
#include "tests/support/temporary_folder.h"

namespace sluice::test {
namespace {

class RailsRecords : public Rails {
 protected:
  // Runs a session in which every rank calls all kinds, and returns the files, by their names.
  std::map<std::string, std::string> record(const std::vector<uint32_t>& hosts, const char* variable) {
    SetUp();
    const TemporaryFolder folder;
    const std::string pattern = folder.path() + "/rank%r";
    ::setenv(variable, pattern.c_str(), 1);
    run_hosts(hosts, 2, [](uint32_t rank, sluice_session* s) { return call_all(rank, s); });
    ::unsetenv(variable);
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      std::ifstream file(entry.path());
      files[entry.path().filename()].assign(std::istreambuf_iterator<char>(file), {});
    }
    return files;
  }

  static int call_all(uint32_t rank, sluice_session* s) {
    constexpr size_t kElements = 100'000;  // several pieces
    constexpr size_t kRanks = 4;
    std::vector<float> x(kElements * kRanks), part(kElements);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 1.F / static_cast<float>(i + rank + 1);
    sluice_request request = 0;
    const auto wait = [&] { return sluice_wait(s, request, 20'000) == SLUICE_OK; };
    if (sluice_allreduce(s, x.data(), x.data(), kElements, SLUICE_F32, SLUICE_SUM) != SLUICE_OK) return 11;
    // Operations without elements have a number and no line.
    if (sluice_allreduce(s, x.data(), x.data(), 0, SLUICE_F32, SLUICE_SUM) != SLUICE_OK) return 12;
    if (sluice_reduce_scatter_async(s, x.data(), part.data(), kElements, nullptr, SLUICE_F32, SLUICE_SUM,
                                    &request) != SLUICE_OK ||
        !wait())
      return 13;
    if (sluice_all_gather_async(s, part.data(), x.data(), kElements, nullptr, SLUICE_F32, &request) !=
            SLUICE_OK ||
        !wait())
      return 14;
    if (sluice_reduce_async(s, part.data(), x.data(), kElements, SLUICE_F32, SLUICE_AVG, 1, &request) !=
            SLUICE_OK ||
        !wait())
      return 15;
    if (sluice_broadcast_async(s, x.data(), kElements, SLUICE_F32, 2, &request) != SLUICE_OK || !wait())
      return 16;
    return 0;
  }
};

std::string lines_of_operations(const std::string& record) {
  std::istringstream in(record);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') out += line + "\n";
  }
  return out;
}

TEST_F(RailsRecords, BitsAreThoseOfASessionOfTheNetwork) {
  const auto flat = record({0, 1, 2, 3}, "SLUICE_BITS");
  ASSERT_EQ(flat.size(), 4U);
  const std::string first = lines_of_operations(flat.at("rank0"));
  EXPECT_EQ(std::ranges::count(first, '\n'), 6) << first;  // with the names of the columns
  EXPECT_THAT(first, ::testing::HasSubstr("\n2\treduce-scatter\tf32\tsum\t400000\t"));
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 0, 0, 0}, {0, 0, 1, 1}}) {
    const auto shared = record(hosts, "SLUICE_BITS");
    ASSERT_EQ(shared.size(), 4U);
    for (const auto& [name, text] : shared) {
      EXPECT_EQ(lines_of_operations(text), lines_of_operations(flat.at(name))) << name;
      EXPECT_THAT(text, ::testing::HasSubstr("# end session closed")) << name;
    }
  }
}

TEST_F(RailsRecords, ATraceHasTheOperationsOfTheSession) {
  for (const std::vector<uint32_t>& hosts : {std::vector<uint32_t>{0, 0, 0, 0}, {0, 0, 1, 1}}) {
    const auto files = record(hosts, "SLUICE_TRACE");
    EXPECT_EQ(files.size(), 4U);
    for (const auto& [name, text] : files) {
      for (const char* const kind : {"allreduce", "reduce-scatter", "all-gather", "reduce", "broadcast"}) {
        size_t count = 0;
        const std::string event = std::string("{\"name\":\"") + kind + "\",";
        for (size_t at = text.find(event); at != std::string::npos; at = text.find(event, at + 1)) ++count;
        EXPECT_EQ(count, 1U) << name << ": " << kind;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::test
