// sluice_session_ended_by(): the same rank on all ranks, however they are spread over hosts.
#include <atomic>
#include <csignal>
#include <vector>

#include "tests/functional/rails_test_bed.h"

namespace sluice::test {
namespace {

struct Layout {
  const char* name;
  const char* hosts;  // SLUICE_HOSTS
  std::vector<uint32_t> host_of;
  size_t reducers;
};
const std::array kLayouts = {Layout{"each rank a host", "off", {0, 0, 1, 1}, 1},
                             Layout{"one host", "auto", {0, 0, 0, 0}, 0},
                             Layout{"two hosts", "auto", {0, 0, 1, 1}, 1},
                             Layout{"two hosts without reducers", "auto", {0, 0, 1, 1}, 0},
                             Layout{"unequal hosts", "auto", {0, 1, 1, 1}, 1}};

sluice_status sum(sluice_session* s, size_t count = 1) {
  std::vector<float> x(count, 1);
  return sluice_allreduce(s, x.data(), x.data(), x.size(), SLUICE_F32, SLUICE_SUM);
}

uint32_t ended_by(sluice_session* s) {
  uint32_t rank = 0;
  EXPECT_EQ(sluice_session_ended_by(s, &rank), SLUICE_OK);
  return rank;
}

class EndedBy : public Rails {
 protected:
  // Rank `culprit` calls `end`, all others an operation that ends with `status` and names the culprit.
  void expect_culprit(const std::function<void(sluice_session*)>& end, sluice_status status,
                      bool dies = false) {
    for (const Layout& layout : kLayouts) {
      for (const uint32_t culprit : {0U, 3U}) {
        SCOPED_TRACE(std::string(layout.name) + ", rank " + std::to_string(culprit));
        SetUp();
        ::setenv("SLUICE_HOSTS", layout.hosts, 1);
        const auto run = [&](uint32_t rank, sluice_options& o) {
          o.op_timeout_ms = status == SLUICE_TIMEOUT ? 1500 : 0;  // longer than a heartbeat
          const Created c = create_session(o);
          EXPECT_EQ(c.status, SLUICE_OK) << c.error;
          EXPECT_EQ(ended_by(c.session), SLUICE_NO_RANK);
          // The end may come before this rank has its first result.
          const sluice_status first = sum(c.session);
          EXPECT_TRUE(first == SLUICE_OK || (first == status && rank != culprit)) << reason_of(c.session);
          if (rank == culprit) {
            end(c.session);
          } else {
            EXPECT_EQ(sum(c.session), status) << reason_of(c.session);
            EXPECT_EQ(ended_by(c.session), culprit) << "rank " << rank << ": " << reason_of(c.session);
            static_cast<void>(sluice_session_close(c.session));
          }
          return 0;
        };
        run_ranks(layout.host_of, layout.reducers, run, dies ? culprit : ~0U);
      }
    }
  }
};

TEST_F(EndedBy, ARankThatLeaves) {
  expect_culprit([](sluice_session* s) { static_cast<void>(sluice_session_close(s)); }, SLUICE_CLOSED);
}

TEST_F(EndedBy, ARankThatAborts) {
  const auto end = [](sluice_session* s) {
    EXPECT_EQ(sluice_session_abort(s, "rank 1 left the session"), SLUICE_OK);
    EXPECT_NE(ended_by(s), 1U);
    EXPECT_NE(ended_by(s), SLUICE_NO_RANK);
    static_cast<void>(sluice_session_close(s));
  };
  expect_culprit(end, SLUICE_LOST);
}

TEST_F(EndedBy, ARankThatDies) {
  expect_culprit([](sluice_session*) { ::raise(SIGKILL); }, SLUICE_LOST, true);
}

TEST_F(EndedBy, ARankThatIsLate) {
  const auto end = [](sluice_session* s) {
    EXPECT_TRUE(eventually([&] { return !reason_of(s).empty(); }));
    static_cast<void>(sluice_session_close(s));
  };
  expect_culprit(end, SLUICE_TIMEOUT);
}

TEST_F(EndedBy, ARankThatDiffers) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    SetUp();
    ::setenv("SLUICE_HOSTS", layout.hosts, 1);
    run_ranks(layout.host_of, layout.reducers, [](uint32_t rank, sluice_options& o) {
      const Created c = create_session(o);
      EXPECT_EQ(sum(c.session, rank == 3 ? 2 : 1), SLUICE_MISMATCH);
      EXPECT_LT(ended_by(c.session), 4U) << reason_of(c.session);
      static_cast<void>(sluice_session_close(c.session));
      return 0;
    });
  }
}

TEST_F(EndedBy, NullPointersAreRefused) {
  uint32_t rank = 5;
  EXPECT_EQ(sluice_session_ended_by(nullptr, &rank), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(rank, 5U);
}

}  // namespace
}  // namespace sluice::test
