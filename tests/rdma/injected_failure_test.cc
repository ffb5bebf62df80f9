// Failures that a test must inject: verbs that fail, and a queue pair that is set to its error state.
// Runs in a guest of guest.sh.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "tests/conformance/transport/rdma_test_bed.h"
#include "tests/conformance/transport/transport_fixture.h"
#include "tests/rdma/leaked_resources.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/rdma_context.h"

namespace sluice::transport::test {
namespace {

std::vector<ibv_qp*> queue_pairs;  // in the order of their creation

template <int kError, typename Object, typename... Arguments>
Object* fail_with(Arguments... /*arguments*/) {
  errno = kError;
  return nullptr;
}

// Replaces single verbs of a real device.
class InjectedFailureFixture : public testing::Test {
 protected:
  void SetUp() override {
    std::tie(near, far) = tcp_pair(rdma_addresses().first, rdma_addresses().second);
    near_path = path_with_replaced_verbs(near);
    far_path = path_with_replaced_verbs(far);
    queue_pairs.clear();
    static const rdma::Verbs* const all = *rdma::load_verbs();
    verbs = *all;
    verbs.create_qp = [](ibv_pd* domain, ibv_qp_init_attr* attributes) {
      queue_pairs.push_back(all->create_qp(domain, attributes));
      return queue_pairs.back();
    };
    // The original Device closes the device.
    verbs.close_device = [](ibv_context* /*context*/) { return 0; };
  }
  // Also keeps the original Device, which owns the open device.
  rdma::LocalPath path_with_replaced_verbs(const tcp::Socket& socket) {
    auto path = rdma::find_local_path(rdma::connection_gids(socket.fd())->local, {});
    if (!path) throw std::runtime_error(path.error().text);
    owners.push_back(path->device);
    const auto& d = *path->device;
    path->device = std::make_shared<const rdma::Device>(verbs, d.name(), d.context());
    return *path;
  }

  static Result<std::unique_ptr<rdma::QueuePair>> make(const rdma::LocalPath& path) {
    auto domain = rdma::ProtectionDomain::make(path.device);
    if (!domain) return tl::unexpected(domain.error());
    return rdma::QueuePair::make(path, 0, std::move(*domain), {});
  }

  rdma::Verbs verbs{};
  std::vector<std::shared_ptr<const rdma::Device>> owners;
  tcp::Socket near, far;
  rdma::LocalPath near_path, far_path;
};

TEST_F(InjectedFailureFixture, ReportsEachFailedStepAndLeaksNothing) {
  const rdma::Verbs original = verbs;
  const auto text = [this] {
    const auto pair = make(near_path);
    return pair ? std::string("created") : pair.error().text;
  };
  const size_t descriptors = open_descriptors();
  const std::string before = kernel_resources();
  const std::string device = "RDMA device " + near_path.device->name() + ": ";

  verbs.alloc_pd = fail_with<ENOMEM>;
  EXPECT_EQ(text(), "cannot allocate a protection domain on " + device + "cannot allocate memory");
  verbs = original;
  verbs.reg_mr = fail_with<EPERM>;
  EXPECT_EQ(text(), device + "cannot register 1114112 bytes: operation not permitted");
  verbs = original;
  verbs.create_comp_channel = fail_with<EMFILE>;
  EXPECT_EQ(text(), device + "cannot create a completion channel: too many open files");
  verbs = original;
  verbs.create_cq = fail_with<ENOMEM>;
  EXPECT_EQ(text(), device + "cannot create a completion queue: cannot allocate memory");
  verbs = original;
  verbs.create_qp = fail_with<ENOSPC>;
  EXPECT_EQ(text(), device + "cannot create a queue pair: no space left on device");
  verbs = original;
  verbs.modify_qp = [](ibv_qp*, ibv_qp_attr*, int) { return EINVAL; };
  EXPECT_EQ(text(), device + "cannot initialize a queue pair: invalid argument");
  verbs = original;

  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(kernel_resources(), before);
  rdma::DeviceReport report;
  near_path.device->counters().fill(report);
  EXPECT_EQ(report.pairs_failed, 5U);
  EXPECT_EQ(report.registrations_failed, 1U);
  EXPECT_EQ(report.registered_bytes, 0U);
  EXPECT_EQ(report.pairs_open, 0U);
  EXPECT_EQ(text(), "created");
}

// Two connected endpoints; the test sets one queue pair to its error state.
class InjectedErrorFixture : public InjectedFailureFixture {
 protected:
  void SetUp() override {
    InjectedFailureFixture::SetUp();
    auto a = make(near_path), b = make(far_path);
    ASSERT_TRUE(a && b);
    ASSERT_TRUE((*a)->connect((*b)->address()));
    ASSERT_TRUE((*b)->connect((*a)->address()));
    near.attach_channel(std::move(*a));
    far.attach_channel(std::move(*b));
    auto context_here = rdma::make_context(), context_there = rdma::make_context();
    ASSERT_TRUE(context_here && context_there);
    here = std::move(*context_here);
    there = std::move(*context_there);
    one.endpoint = *here->adopt(std::move(near), one, {});
    other.endpoint = *there->adopt(std::move(far), other, {});
  }
  void TearDown() override {
    here.reset();
    there.reset();
  }
  static void set_error_state(ibv_qp* pair) {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_ERR;
    ASSERT_EQ((*rdma::load_verbs())->modify_qp(pair, &to, IBV_QP_STATE), 0);
  }
  static bool drive(const std::vector<tcp::TcpContext*>& contexts, const std::function<bool()>& done) {
    const Nanos deadline = monotonic_now() + kTestTimeout;
    while (!done() && monotonic_now() < deadline) {
      for (auto* const c : contexts) c->poll(monotonic_now(), kBudget);
    }
    return done();
  }
  static std::vector<std::pair<std::string_view, uint64_t>> errors(const rdma::LocalPath& path) {
    rdma::DeviceReport report;
    path.device->counters().fill(report);
    return report.completion_errors;
  }
  using Errors = std::vector<std::pair<std::string_view, uint64_t>>;
  std::unique_ptr<tcp::TcpContext> here, there;
  RecordingHandler one, other;
};

TEST_F(InjectedErrorFixture, OnAnIdlePairEndsBothEndpoints) {
  ASSERT_TRUE(one.put_pattern(100'000, 0).ok());
  ASSERT_TRUE(drive({here.get(), there.get()}, [this] { return other.received.size() == 1; }));
  set_error_state(queue_pairs.at(1));
  ASSERT_TRUE(drive({here.get(), there.get()}, [this] { return one.closed && other.closed; }));
  EXPECT_EQ(other.closed, Errc::kReset) << "after retries: kTimeout";
  EXPECT_EQ(one.closed, Errc::kReset);
  EXPECT_EQ(errors(far_path), (Errors{{"WR_FLUSH_ERR", 1}}));
}

// The peer does not poll, so it does not report the error.
TEST_F(InjectedErrorFixture, OnASilentPeerIsATimeout) {
  set_error_state(queue_pairs.at(1));
  ASSERT_TRUE(one.put_pattern(100'000, 0).ok());
  ASSERT_TRUE(drive({here.get()}, [this] { return one.closed.has_value(); }));
  EXPECT_EQ(one.closed, Errc::kTimeout);
  EXPECT_TRUE(one.all_completed());
  EXPECT_EQ(errors(near_path), (Errors{{"RETRY_EXC_ERR", 1}}));
}

}  // namespace
}  // namespace sluice::transport::test
