// Driver for an MPI library, built once with each installed library. mpirun starts it and selects the
// algorithm and the transport.
#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <climits>
#include <stdexcept>

#include "bench/peers/peer_main.h"

namespace sluice::bench {
namespace {

class MpiPeer final : public Peer {
 public:
  // The default error handler of MPI ends the job, so the calls below return no errors.
  MpiPeer() {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }

  [[nodiscard]] std::string library() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    // The rest of the text describes the build.
    const std::string all(text.data(), static_cast<size_t>(length));
    std::string first = all.substr(0, all.find_first_of(",\n"));
    for (char& c : first) c = c == '\t' ? ' ' : c;
    return first;
  }
  [[nodiscard]] std::string algorithm() const override { return {}; }
  [[nodiscard]] uint32_t rank() const override { return static_cast<uint32_t>(rank_); }
  [[nodiscard]] uint32_t ranks() const override { return static_cast<uint32_t>(ranks_); }

  void allreduce(const float* in, float* out, size_t count) override {
    MPI_Allreduce(in, out, mpi_count(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

  void reduce_scatter(const float* in, float* out, size_t part) override {
    MPI_Reduce_scatter_block(in, out, mpi_count(part), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

  void all_gather(const float* in, float* out, size_t part) override {
    MPI_Allgather(in, mpi_count(part), MPI_FLOAT, out, mpi_count(part), MPI_FLOAT, MPI_COMM_WORLD);
  }

  void reduce_scatter_and_all_gather(const float* gradients, float* own_gradients,
                                     const float* own_parameters, float* parameters, size_t part) override {
    std::array<MPI_Request, 2> requests{};
    const int n = mpi_count(part);
    MPI_Ireduce_scatter_block(gradients, own_gradients, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Iallgather(own_parameters, n, MPI_FLOAT, parameters, n, MPI_FLOAT, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }

  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  [[nodiscard]] std::vector<double> gather(const std::vector<double>& values) override {
    const auto n = static_cast<int>(values.size());
    std::vector<double> all(rank_ == 0 ? values.size() * ranks() : 0);
    MPI_Gather(values.data(), n, MPI_DOUBLE, all.data(), n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return all;
  }

  void shut_down(int code) override {
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40200000
    // MPI_Finalize over UCX sometimes hangs: a rank in the barrier of the process manager does not progress
    // the disconnects of other ranks (MPICH pull request 6596). Rank 0 has all results at this point.
    if (rank_ == 0) MPI_Abort(MPI_COMM_WORLD, code);
    barrier();
#else
    static_cast<void>(code);
    MPI_Finalize();
#endif
  }

 private:
  static int mpi_count(size_t count) {
    if (count > INT_MAX)
      throw std::runtime_error(fmt::format("{} elements exceed the int count of MPI", count));
    return static_cast<int>(count);
  }

  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  CLI::App app("Measures collectives of an MPI library. Start it with the mpirun of the library.", PEER_NAME);
  return sluice::bench::peer_main(argc, argv, app, [] { return std::make_unique<sluice::bench::MpiPeer>(); });
}
