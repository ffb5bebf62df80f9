// Hosts whose ranks call different operations. On a rail, some of them look alike.
#include "tests/functional/rails_test_bed.h"
#include "wire/message_limits.h"

namespace sluice::test {
namespace {

struct Pair {
  const char* field;
  std::function<sluice_status(sluice_session*, float* x, uint32_t rank, sluice_request*)>
      calls[2];          // by host
  const char* texts[2];  // the same
};

constexpr size_t kCount = 6000;

auto allreduce(size_t count, sluice_dtype dtype, sluice_op op) {
  return [=](sluice_session* s, float* x, uint32_t, sluice_request* r) {
    return sluice_allreduce_async(s, x, x, count, dtype, op, r);
  };
}
auto reduce(size_t count, uint32_t root) {
  return [=](sluice_session* s, float* x, uint32_t, sluice_request* r) {
    return sluice_reduce_async(s, x, x, count, SLUICE_F32, SLUICE_SUM, root, r);
  };
}
auto broadcast(uint32_t root) {
  return [=](sluice_session* s, float* x, uint32_t, sluice_request* r) {
    return sluice_broadcast_async(s, x, kCount, SLUICE_F32, root, r);
  };
}
auto reduce_scatter(std::array<size_t, 4> counts) {
  return [=](sluice_session* s, float* x, uint32_t, sluice_request* r) {
    return sluice_reduce_scatter_async(s, x, x + kCount, 0, counts.data(), SLUICE_F32, SLUICE_SUM, r);
  };
}
auto all_gather(std::array<size_t, 4> counts) {
  return [=](sluice_session* s, float* x, uint32_t, sluice_request* r) {
    return sluice_all_gather_async(s, x, x + kCount, 0, counts.data(), SLUICE_F32, r);
  };
}

constexpr const char* kSum = "operation 0 is allreduce of count 6000 dtype f32 op sum";

std::vector<Pair> pairs() {
  return {
      {"op",
       {allreduce(kCount, SLUICE_F32, SLUICE_SUM), allreduce(kCount, SLUICE_F32, SLUICE_AVG)},
       {kSum, "operation 0 is allreduce of count 6000 dtype f32 op avg"}},
      {"dtype",
       {allreduce(kCount, SLUICE_F32, SLUICE_SUM), allreduce(kCount, SLUICE_F16, SLUICE_SUM)},
       {kSum, "operation 0 is allreduce of count 6000 dtype f16 op sum"}},
      {"count",
       {allreduce(kCount, SLUICE_F32, SLUICE_SUM), allreduce(kCount - 1, SLUICE_F32, SLUICE_SUM)},
       {kSum, "operation 0 is allreduce of count 5999 dtype f32 op sum"}},
      {"root",
       {reduce(kCount, 2), reduce(kCount, 3)},
       {"operation 0 is reduce of count 6000 dtype f32 op sum root 2",
        "operation 0 is reduce of count 6000 dtype f32 op sum root 3"}},
      {"root",
       {broadcast(0), broadcast(1)},
       {"operation 0 is broadcast of count 6000 dtype f32 op sum root 0",
        "operation 0 is broadcast of count 6000 dtype f32 op sum root 1"}},
      {"kind",
       {allreduce(kCount, SLUICE_F32, SLUICE_SUM), reduce(kCount, 2)},
       {kSum, "operation 0 is reduce of count 6000 dtype f32 op sum root 2"}},
      {"kind",
       {reduce(kCount, 0), reduce_scatter({kCount, 0, 0, 0})},
       {"operation 0 is reduce of count 6000 dtype f32 op sum root 0",
        "operation 0 is reduce-scatter of count 6000 dtype f32 op sum"}},
      {"kind",
       {broadcast(0), all_gather({kCount, 0, 0, 0})},
       {"operation 0 is broadcast of count 6000 dtype f32 op sum root 0",
        "operation 0 is all-gather of count 6000 dtype f32 op sum"}},
      {"counts",
       {reduce_scatter({1000, 3000, 1000, 1000}), reduce_scatter({1000, 1000, 3000, 1000})},
       {"operation 0 is reduce-scatter of count 6000 dtype f32 op sum",
        "operation 0 is reduce-scatter of count 6000 dtype f32 op sum"}},
      {"op id",
       {[](sluice_session* s, float* x, uint32_t rank, sluice_request* r) {
          const sluice_status status = allreduce(0, SLUICE_F32, SLUICE_SUM)(s, x, rank, r);
          return status == SLUICE_OK ? allreduce(kCount, SLUICE_F32, SLUICE_SUM)(s, x, rank, r) : status;
        },
        allreduce(kCount, SLUICE_F32, SLUICE_SUM)},
       {"operation 1 is allreduce of count 6000 dtype f32 op sum", kSum}},
  };
}

// One sentence says which rank of each host calls what, whoever comes first.
std::string sentence(const Pair& pair) {
  const std::string first = std::string("rank [01] ") + pair.texts[0];
  const std::string second = std::string("rank [23] ") + pair.texts[1];
  const std::string parts =
      "(; the parts on rank ([01] are [13]000, 3000|[23] are 1000, 1000|. are 6000, 0)[0-9, ]*)*";
  return std::string("ranks disagree on ") + pair.field + ": (" + first + ", " + second + "|" + second +
         ", " + first + ")" + parts;
}

class RailsMismatch : public Rails {
 protected:
  void no_rank_gets_a_result(size_t reducers) {
    closed_ = SLUICE_MISMATCH;
    for (const Pair& pair : pairs()) {
      SCOPED_TRACE(sentence(pair));
      SetUp();
      run_hosts({0, 0, 1, 1}, reducers, [&](uint32_t rank, sluice_session* s) {
        std::vector<float> x(2 * kCount, 1);
        sluice_request request = 0;
        if (pair.calls[rank / 2](s, x.data(), rank, &request) != SLUICE_OK) return 101;
        if (sluice_wait(s, request, 20'000) != SLUICE_MISMATCH) return 102;
        EXPECT_THAT(reason_of(s), ::testing::MatchesRegex(sentence(pair))) << "rank " << rank;
        if (std::string(pair.field) == "counts") {
          EXPECT_THAT(reason_of(s), ::testing::HasSubstr("; the parts on rank")) << "rank " << rank;
        }
        return 0;
      });
    }
  }
};

TEST_F(RailsMismatch, NoRankGetsAResult) {
  no_rank_gets_a_result(2);
}
TEST_F(RailsMismatch, NoRankGetsAResultWithoutReducers) {
  no_rank_gets_a_result(0);
}

// Whose text may be about pieces: each rank's error describes what its own host called.
TEST_F(RailsMismatch, NoRankGetsAResultOfAnEarlierReducer) {
  withheld_features_ = wire::kFeatureCaller;
  closed_ = SLUICE_MISMATCH;
  for (const Pair& pair : pairs()) {
    SCOPED_TRACE(sentence(pair));
    SetUp();
    run_hosts({0, 0, 1, 1}, 1, [&](uint32_t rank, sluice_session* s) {
      std::vector<float> x(2 * kCount, 1);
      sluice_request request = 0;
      if (pair.calls[rank / 2](s, x.data(), rank, &request) != SLUICE_OK) return 101;
      if (sluice_wait(s, request, 20'000) != SLUICE_MISMATCH) return 102;
      const std::string own =
          std::string("the first on rank ") + (rank < 2 ? "[01] " : "[23] ") + pair.texts[rank / 2];
      EXPECT_THAT(reason_of(s), ::testing::ContainsRegex(own)) << "rank " << rank;
      return 0;
    });
  }
}

}  // namespace
}  // namespace sluice::test
