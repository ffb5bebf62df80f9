// Training steps that reduce the gradients of a layer while those of the next layer are computed, in C++, on
// a host stream. On a GPU, replace on_host() by on_gpu(), and use CUDA pointers and a cudaStream_t.
//
//   sluice reducer --listen 127.0.0.1:7470 &
//   for rank in 0 1; do ./overlapped_step 127.0.0.1:7470 $rank 2 & done; wait
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sluice/streams.hpp>
#include <vector>

namespace {

constexpr std::size_t kLayers = 8;
constexpr std::size_t kElements = 200'000;  // per layer
constexpr int kSteps = 5;

// Replaces the backward pass of a layer.
void compute(std::vector<float>& gradient, unsigned rank, std::size_t layer, int step) {
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = std::sin(static_cast<float>(i + layer)) * static_cast<float>(rank + 1 + step);
}

double train(const sluice::client::Options& options) {
  // Declared first: destroyed after the session and streams that use them, also after an exception.
  std::vector<std::vector<float>> gradients(kLayers, std::vector<float>(kElements));
  sluice::client::Session session(options);
  sluice_stream_options stream_options = sluice::client::on_host();
  stream_options.wire_dtype = SLUICE_BF16;  // half the bytes on the network; added in f32
  stream_options.measure_error = 1;
  sluice::client::Streams streams(session, stream_options);
  sluice::client::HostStream compute_stream, network_stream;

  double sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t layer = kLayers; layer-- > 0;) {
      compute_stream.submit([&, layer, step] { compute(gradients[layer], options.rank, layer, step); });
      compute_stream.synchronize();  // on a GPU: let network_stream wait for an event
      streams.allreduce(gradients[layer].data(), gradients[layer].data(), kElements, SLUICE_AVG,
                        network_stream.get());
    }
    network_stream.synchronize();
    sum += gradients[0][1];
  }
  const sluice_stream_stats stats = streams.stats();
  std::printf("rank %u: %llu operations in %llu pieces, relative error of bf16 %.4f\n", options.rank,
              static_cast<unsigned long long>(stats.operations),
              static_cast<unsigned long long>(stats.pieces),
              std::sqrt(stats.cast_error_squares / stats.cast_value_squares));
  session.close();  // throws if the session has failed, in which case the results are undefined
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s REDUCERS RANK RANKS\n", argv[0]);
    return 64;
  }
  sluice::client::Options options;
  options.reducers = argv[1];
  options.rank = static_cast<unsigned>(std::atoi(argv[2]));
  options.ranks = static_cast<unsigned>(std::atoi(argv[3]));
  std::memcpy(options.session_id.data(), "overlapped steps", 16);  // use random bytes, equal on all ranks
  try {
    std::printf("rank %u: sum %.6g\n", options.rank, train(options));
    return 0;
  } catch (const sluice::client::Error& error) {
    std::fprintf(stderr, "rank %u: %s: %s\n", options.rank, sluice_status_string(error.status()),
                 error.what());
    return 1;
  }
}
