// Driver for the client library of Sluice, one process per rank, so that it is measured like the other
// libraries. Its settings come from the environment, as those of a job.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/e2e/worker/worker_session.h"
#include "bench/peers/peer_main.h"

namespace sluice::bench {
namespace {

class SluicePeer final : public Peer {
 public:
  // `gather_rendezvous`: SLUICE_RENDEZVOUS of the second session, without reducers.
  SluicePeer(const WorkerOptions& options, std::string gather_rendezvous)
      : options_(options), gather_rendezvous_(std::move(gather_rendezvous)), session_(options) {}

  [[nodiscard]] std::string library() const override { return std::string("Sluice ") + sluice_version(); }
  [[nodiscard]] std::string algorithm() const override { return {}; }
  [[nodiscard]] uint32_t rank() const override { return session_.rank(); }
  [[nodiscard]] uint32_t ranks() const override { return session_.ranks(); }

  void allreduce(const float* in, float* out, size_t count) override {
    session_.allreduce(in, out, count, wire::DType::kF32, wire::Op::kSum);
  }

  void reduce_scatter(const float* in, float* out, size_t part) override {
    session_.wait(start_scatter(in, out, part));
  }

  void all_gather(const float* in, float* out, size_t part) override {
    session_.wait(start_gather(session_, in, out, part));
  }

  void reduce_scatter_and_all_gather(const float* gradients, float* own_gradients,
                                     const float* own_parameters, float* parameters, size_t part) override {
    if (!gathers_) gathers_ = second_session();
    const sluice_request scatter = start_scatter(gradients, own_gradients, part);
    const sluice_request gather = start_gather(*gathers_, own_parameters, parameters, part);
    session_.wait(scatter);
    gathers_->wait(gather);
  }

  void barrier() override { session_.barrier(); }

  [[nodiscard]] std::vector<double> gather(const std::vector<double>& values) override {
    std::vector<double> all(values.size() * ranks());
    const std::vector<size_t> counts(ranks(), values.size());
    session_.wait(session_.start_all_gather(values.data(), all.data(), counts, wire::DType::kF64));
    return rank() == 0 ? all : std::vector<double>();
  }

  void shut_down(int /*code*/) override {
    if (gathers_) gathers_->close();
    session_.close();
  }

 private:
  [[nodiscard]] sluice_request start_scatter(const float* in, float* out, size_t part) {
    counts_.assign(ranks(), part);
    return session_.start_reduce_scatter(in, out, counts_, wire::DType::kF32, wire::Op::kSum);
  }

  [[nodiscard]] sluice_request start_gather(WorkerSession& session, const float* in, float* out,
                                            size_t part) {
    counts_.assign(ranks(), part);
    return session.start_all_gather(in, out, counts_, wire::DType::kF32);
  }

  // The operations of a session run in order, so the torch backend also has one for gathers.
  [[nodiscard]] std::unique_ptr<WorkerSession> second_session() const {
    WorkerOptions options = options_;
    std::ranges::reverse(options.session);  // all ranks derive the same id
    if (!gather_rendezvous_.empty()) ::setenv("SLUICE_RENDEZVOUS", gather_rendezvous_.c_str(), 1);
    return std::make_unique<WorkerSession>(options);
  }

  const WorkerOptions options_;
  const std::string gather_rendezvous_;
  WorkerSession session_;
  std::unique_ptr<WorkerSession> gathers_;
  std::vector<size_t> counts_;
};

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  CLI::App app("Measures collectives of the client library of Sluice, one process per rank.", "sluice");
  sluice::bench::WorkerOptions options;
  app.add_option("--rank", options.rank, "rank of this process, from 0")->required();
  app.add_option("--ranks", options.ranks, "number of ranks")->required()->check(CLI::PositiveNumber);
  app.add_option("--session", options.session, "session id, 32 hex digits, the same for all ranks")
      ->required();
  app.add_option("--reducers", options.reducers, "list of reducers; none: the ranks reduce by themselves")
      ->required();
  std::string gather_rendezvous;
  app.add_option("--gather-rendezvous", gather_rendezvous,
                 "SLUICE_RENDEZVOUS of the session for gathers beside sums, without reducers");
  return sluice::bench::peer_main(argc, argv, app, [&] {
    return std::make_unique<sluice::bench::SluicePeer>(options, gather_rendezvous);
  });
}
