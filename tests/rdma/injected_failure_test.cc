// Failures that no cable or limit brings about when a test wants it: calls of verbs that fail, and a queue
// pair put into its error state behind its owner's back. In a guest of guest.sh.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "tests/conformance/transport/fixture.h"
#include "tests/conformance/transport/rdma_bed.h"
#include "tests/rdma/left_behind.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::transport::test {
namespace {

std::vector<ibv_qp*> queue_pairs;  // in the order in which they were made

// The device's own calls but for some: what is made by it is real.
class Injected : public testing::Test {
 protected:
  void SetUp() override {
    const auto [one, other] = tcp_pair(rdma_addresses().first, rdma_addresses().second);
    near = tcp::Socket(one);
    far = tcp::Socket(other);
    near_path = through_calls(near);
    far_path = through_calls(far);
    queue_pairs.clear();
    static const rdma::Verbs* const all = *rdma::verbs();
    calls = *all;
    calls.create_qp = [](ibv_pd* domain, ibv_qp_init_attr* wanted) {
      queue_pairs.push_back(all->create_qp(domain, wanted));
      return queue_pairs.back();
    };
    // The device is another's.
    calls.close_device = [](ibv_context* /*context*/) { return 0; };
  }
  // Keeps the device open.
  rdma::Path through_calls(const tcp::Socket& socket) {
    auto path = rdma::path_of(*rdma::gid_of_own_end(socket.fd()), {});
    if (!path) throw std::runtime_error(path.error().text);
    owners.push_back(path->device);
    const auto& d = *path->device;
    path->device = std::make_shared<const rdma::Device>(calls, d.name(), d.context());
    return *path;
  }

  static Result<std::unique_ptr<rdma::QueuePair>> make(const rdma::Path& path) {
    auto domain = rdma::Domain::make(path.device);
    if (!domain) return tl::unexpected(domain.error());
    return rdma::QueuePair::make(path, 0, std::move(*domain), {});
  }

  rdma::Verbs calls{};
  std::vector<std::shared_ptr<const rdma::Device>> owners;
  tcp::Socket near, far;
  rdma::Path near_path, far_path;
};

TEST_F(Injected, EachStepOfMakingAPairMayFail) {
  const rdma::Verbs good = calls;
  const auto text = [this] {
    const auto pair = make(near_path);
    return pair ? std::string("made") : pair.error().text;
  };
  const size_t descriptors = open_descriptors();
  const std::string before = held();
  const std::string device = "RDMA device " + near_path.device->name() + ": ";

  calls.alloc_pd = [](ibv_context*) -> ibv_pd* {
    errno = ENOMEM;
    return nullptr;
  };
  EXPECT_EQ(text(), "no protection domain on " + near_path.device->name() + ": cannot allocate memory");
  calls = good;
  calls.reg_mr = [](ibv_pd*, void*, size_t, int) -> ibv_mr* {
    errno = EPERM;
    return nullptr;
  };
  EXPECT_EQ(text(), device + "cannot register 1114112 bytes: operation not permitted");
  calls = good;
  calls.create_comp_channel = [](ibv_context*) -> ibv_comp_channel* {
    errno = EMFILE;
    return nullptr;
  };
  EXPECT_EQ(text(), device + "cannot make a completion channel: too many open files");
  calls = good;
  calls.create_cq = [](ibv_context*, int, void*, ibv_comp_channel*, int) -> ibv_cq* {
    errno = ENOMEM;
    return nullptr;
  };
  EXPECT_EQ(text(), device + "cannot make a completion queue: cannot allocate memory");
  calls = good;
  calls.create_qp = [](ibv_pd*, ibv_qp_init_attr*) -> ibv_qp* {
    errno = ENOSPC;
    return nullptr;
  };
  EXPECT_EQ(text(), device + "cannot make a queue pair: no space left on device");
  calls = good;
  calls.modify_qp = [](ibv_qp*, ibv_qp_attr*, int) { return EINVAL; };
  EXPECT_EQ(text(), device + "cannot initialise a queue pair: invalid argument");
  calls = good;

  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(held(), before);
  rdma::DeviceReport report;
  near_path.device->counts().fill(report);
  EXPECT_EQ(report.pairs_failed, 5U);
  EXPECT_EQ(report.registrations_failed, 1U);
  EXPECT_EQ(report.registered_bytes, 0U);
  EXPECT_EQ(report.pairs_open, 0U);
  EXPECT_EQ(text(), "made");
}

// Both ends over it, and one of them struck.
class InjectedError : public Injected {
 protected:
  void SetUp() override {
    Injected::SetUp();
    auto a = make(near_path), b = make(far_path);
    ASSERT_TRUE(a && b);
    ASSERT_TRUE((*a)->join((*b)->address()));
    ASSERT_TRUE((*b)->join((*a)->address()));
    near.accompany(std::move(*a));
    far.accompany(std::move(*b));
    auto made_here = rdma::make_context(), made_there = rdma::make_context();
    ASSERT_TRUE(made_here && made_there);
    here = std::move(*made_here);
    there = std::move(*made_there);
    one.endpoint = *here->adopt(std::move(near), one, {});
    other.endpoint = *there->adopt(std::move(far), other, {});
  }
  void TearDown() override {
    here.reset();
    there.reset();
  }
  static void strike(ibv_qp* pair) {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_ERR;
    ASSERT_EQ((*rdma::verbs())->modify_qp(pair, &to, IBV_QP_STATE), 0);
  }
  static bool drive(const std::vector<tcp::TcpContext*>& contexts, const std::function<bool()>& done) {
    const Nanos deadline = monotonic_now() + kPatience;
    while (!done() && monotonic_now() < deadline) {
      for (auto* const c : contexts) c->poll(monotonic_now(), kBudget);
    }
    return done();
  }
  static std::vector<std::pair<std::string_view, uint64_t>> errors(const rdma::Path& path) {
    rdma::DeviceReport report;
    path.device->counts().fill(report);
    return report.completion_errors;
  }
  using Errors = std::vector<std::pair<std::string_view, uint64_t>>;
  std::unique_ptr<tcp::TcpContext> here, there;
  Recorder one, other;
};

TEST_F(InjectedError, OfAnIdlePairEndsBothEnds) {
  ASSERT_TRUE(one.put_pattern(100'000, 0).ok());
  ASSERT_TRUE(drive({here.get(), there.get()}, [this] { return other.received.size() == 1; }));
  const Nanos began = monotonic_now();
  strike(queue_pairs.at(1));
  ASSERT_TRUE(drive({here.get(), there.get()}, [this] { return one.closed && other.closed; }));
  EXPECT_EQ(other.closed, Errc::kReset);
  EXPECT_EQ(one.closed, Errc::kReset);
  EXPECT_LT(monotonic_now() - began, kSecond) << "no retries";
  EXPECT_EQ(errors(far_path), (Errors{{"WR_FLUSH_ERR", 1}}));
}

// It does not poll, and so does not say that it has ended.
TEST_F(InjectedError, OfAPeerThatSaysNothingIsATimeout) {
  strike(queue_pairs.at(1));
  ASSERT_TRUE(one.put_pattern(100'000, 0).ok());
  ASSERT_TRUE(drive({here.get()}, [this] { return one.closed.has_value(); }));
  EXPECT_EQ(one.closed, Errc::kTimeout);
  EXPECT_TRUE(one.all_given_back());
  EXPECT_EQ(errors(near_path), (Errors{{"RETRY_EXC_ERR", 1}}));
}

}  // namespace
}  // namespace sluice::transport::test
