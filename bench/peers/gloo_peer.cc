// Driver for Gloo over TCP: one process per rank. The processes find each other through files in a shared
// folder.
#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <map>
#include <thread>

#include "bench/peers/peer_main.h"

namespace sluice::bench {
namespace {

// Timeout for the connection of a rank and for one operation.
constexpr std::chrono::minutes kTimeout{5};

struct GlooOptions {
  int rank = 0;
  int ranks = 1;
  std::string store;
  std::string address;
  std::string algorithm = "ring";
};

class GlooPeer final : public Peer {
 public:
  explicit GlooPeer(const GlooOptions& options) : options_(options), context_(connect("first")) {}

  [[nodiscard]] std::string library() const override {
    return fmt::format("Gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
  }
  [[nodiscard]] std::string algorithm() const override { return options_.algorithm; }
  [[nodiscard]] uint32_t rank() const override { return static_cast<uint32_t>(options_.rank); }
  [[nodiscard]] uint32_t ranks() const override { return static_cast<uint32_t>(options_.ranks); }

  // The older algorithms are objects that are bound to a buffer.
  [[nodiscard]] bool is_in_place(Collective collective) const override {
    if (collective != Collective::kAllreduce) return collective != Collective::kAllGather;
    return options_.algorithm == "halving_doubling" || options_.algorithm == "ring_chunked";
  }

  void allreduce(const float* in, float* out, size_t count) override {
    if (is_in_place(Collective::kAllreduce)) {
      prepared(out, count).run();
      return;
    }
    gloo::AllreduceOptions call(context_);
    call.setInput(const_cast<float*>(in), count);  // Gloo only reads the input
    call.setOutput(out, count);
    call.setAlgorithm(options_.algorithm == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                    : gloo::AllreduceOptions::Algorithm::RING);
    call.setReduceFunction(
        [](void* to, const void* a, const void* b, size_t n) { gloo::sum<float>(to, a, b, n); });
    call.setTag(tag_++);
    gloo::allreduce(call);
  }

  // Gloo has one reduce-scatter, one of its older algorithms.
  void reduce_scatter(const float* /*in*/, float* out, size_t part) override {
    std::unique_ptr<gloo::Algorithm>& algorithm = prepared_scatters_[part];
    if (!algorithm) {
      algorithm = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
          context_, std::vector<float*>{out}, static_cast<int>(part * ranks()),
          std::vector<int>(ranks(), static_cast<int>(part)));
    }
    algorithm->run();
  }

  void all_gather(const float* in, float* out, size_t part) override { gather_all(context_, in, out, part); }

  // An operation of Gloo blocks, so each has a thread, as in torch. The context of one does not serve the
  // other.
  void reduce_scatter_and_all_gather(const float* gradients, float* own_gradients,
                                     const float* own_parameters, float* parameters, size_t part) override {
    if (!second_context_) second_context_ = connect("second");
    std::jthread gather([&] { gather_all(second_context_, own_parameters, parameters, part); });
    reduce_scatter(gradients, own_gradients, part);
  }

  void barrier() override {
    gloo::BarrierOptions call(context_);
    call.setTag(tag_++);
    gloo::barrier(call);
  }

  [[nodiscard]] std::vector<double> gather(const std::vector<double>& values) override {
    std::vector<double> own = values;
    std::vector<double> all(options_.rank == 0 ? values.size() * ranks() : 0);
    gloo::GatherOptions call(context_);
    call.setInput(own.data(), own.size());
    if (options_.rank == 0) call.setOutput(all.data(), all.size());
    call.setRoot(0);
    call.setTag(tag_++);
    gloo::gather(call);
    return all;
  }

  // Waits for all ranks, because Gloo fails on ranks that still communicate with a rank that has exited.
  void shut_down(int /*code*/) override { barrier(); }

 private:
  using Context = std::shared_ptr<gloo::rendezvous::Context>;

  [[nodiscard]] Context connect(const std::string& name) const {
    auto context = std::make_shared<gloo::rendezvous::Context>(options_.rank, options_.ranks);
    gloo::rendezvous::FileStore files(options_.store);
    gloo::rendezvous::PrefixStore store(name, files);
    context->setTimeout(kTimeout);
    const gloo::transport::tcp::attr attributes(options_.address.c_str());
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    context->connectFullMesh(store, device);
    return context;
  }

  void gather_all(const Context& context, const float* in, float* out, size_t part) {
    gloo::AllgatherOptions call(context);
    call.setInput(const_cast<float*>(in), part);  // Gloo only reads the input
    call.setOutput(out, part * ranks());
    call.setTag(gather_tag_++);
    gloo::allgather(call);
  }

  gloo::Algorithm& prepared(float* buffer, size_t count) {
    std::unique_ptr<gloo::Algorithm>& algorithm = prepared_[count];
    if (!algorithm) {
      const std::vector<float*> buffers = {buffer};
      if (options_.algorithm == "ring_chunked") {
        algorithm = std::make_unique<gloo::AllreduceRingChunked<float>>(context_, buffers, count);
      } else {
        algorithm = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, buffers, count);
      }
    }
    return *algorithm;
  }

  const GlooOptions options_;
  Context context_;
  Context second_context_;                                       // of gathers beside sums
  std::map<size_t, std::unique_ptr<gloo::Algorithm>> prepared_;  // by count; all are bound to the same buffer
  std::map<size_t, std::unique_ptr<gloo::Algorithm>> prepared_scatters_;
  uint32_t tag_ = 1;
  uint32_t gather_tag_ = 1U << 30;  // a range of its own: its thread does not share the other's
};

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  CLI::App app("Measures collectives of Gloo over TCP, one process per rank.", "gloo");
  sluice::bench::GlooOptions options;
  app.add_option("--rank", options.rank, "rank of this process, from 0")
      ->required()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--ranks", options.ranks, "number of ranks")->required()->check(CLI::PositiveNumber);
  app.add_option("--store", options.store, "empty folder that all ranks can access")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--address", options.address, "address of this host that the other ranks connect to")
      ->required();
  app.add_option("--algorithm", options.algorithm, "allreduce algorithm")
      ->capture_default_str()
      ->check(CLI::IsMember({"ring", "ring_chunked", "halving_doubling", "bcube"}));
  return sluice::bench::peer_main(argc, argv, app,
                                  [&options] { return std::make_unique<sluice::bench::GlooPeer>(options); });
}
