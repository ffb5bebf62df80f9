// A job of processes that share one GPU and call NCCL like any application. It does not use Sluice directly. NCCL sees each process as a node
// (NCCL_HOSTID). The job prints its results; the exit code is 0 if the data was correct on all ranks.
//   nccl_job check|large|point-to-point|bench RANKS
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

int rank_of_process = 0;

[[noreturn]] void fail(const char* what, const char* error) {
  std::fprintf(stderr, "rank %d: %s: %s\n", rank_of_process, what, error);
  std::_Exit(1);
}
#define CUDA(call)                                                            \
  do {                                                                        \
    const cudaError_t e = (call);                                             \
    if (e != cudaSuccess) fail(#call, cudaGetErrorString(e));                 \
  } while (0)
#define NCCL(call)                                                            \
  do {                                                                        \
    const ncclResult_t r = (call);                                            \
    if (r != ncclSuccess && r != ncclInProgress) fail(#call, ncclGetErrorString(r)); \
  } while (0)

struct Type {
  ncclDataType_t id;
  const char* name;
  size_t bytes;
};
const Type kTypes[] = {
    {ncclInt8, "int8", 1},     {ncclUint8, "uint8", 1},     {ncclInt32, "int32", 4},   {ncclUint32, "uint32", 4},
    {ncclInt64, "int64", 8},   {ncclUint64, "uint64", 8},   {ncclFloat16, "half", 2},  {ncclFloat32, "float", 4},
    {ncclFloat64, "double", 8}, {ncclBfloat16, "bfloat16", 2},
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    {ncclFloat8e4m3, "f8e4m3", 1}, {ncclFloat8e5m2, "f8e5m2", 1},
#endif
};
struct Operator {
  ncclRedOp_t id;
  const char* name;
};
const Operator kOperators[] = {{ncclSum, "sum"}, {ncclProd, "prod"}, {ncclMax, "max"}, {ncclMin, "min"}, {ncclAvg, "avg"}};

// Small integers are exact in every type, so the sum does not depend on the order. For averages they are multiples of the number of ranks, because NCCL
// multiplies floats by its rounded reciprocal.
int value(int rank, int ranks, size_t i, ncclRedOp_t op) {
  const size_t x = i * 2654435761u + static_cast<size_t>(rank) * 40503u;
  if (op == ncclAvg) return ranks * static_cast<int>((x >> 7) % 3);
  return op == ncclProd ? 1 + static_cast<int>((x >> 7) % 2) : static_cast<int>((x >> 7) % 4);
}

double result(int ranks, size_t i, ncclRedOp_t op, bool is_integer) {
  double r = value(0, ranks, i, op);
  for (int k = 1; k < ranks; ++k) {
    const double v = value(k, ranks, i, op);
    r = op == ncclProd ? r * v : op == ncclMax ? std::max(r, v) : op == ncclMin ? std::min(r, v) : r + v;
  }
  if (op == ncclAvg) r = is_integer ? static_cast<double>(static_cast<long>(r) / ranks) : r / ranks;
  return r;
}

void encode(const Type& t, double v, std::byte* out) {
  const auto store = [out](auto x) { std::memcpy(out, &x, sizeof x); };
  switch (t.id) {
    case ncclInt8: return store(static_cast<int8_t>(v));
    case ncclUint8: return store(static_cast<uint8_t>(v));
    case ncclInt32: return store(static_cast<int32_t>(v));
    case ncclUint32: return store(static_cast<uint32_t>(v));
    case ncclInt64: return store(static_cast<int64_t>(v));
    case ncclUint64: return store(static_cast<uint64_t>(v));
    case ncclFloat16: return store(__float2half_rn(static_cast<float>(v)));
    case ncclFloat32: return store(static_cast<float>(v));
    case ncclFloat64: return store(v);
    case ncclBfloat16: return store(__float2bfloat16_rn(static_cast<float>(v)));
    default: break;
  }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
  store(__nv_cvt_float_to_fp8(static_cast<float>(v), __NV_SATFINITE, t.id == ncclFloat8e4m3 ? __NV_E4M3 : __NV_E5M2));
#endif
}

class Rank {
 public:
  Rank(int rank, int ranks, const ncclUniqueId& id) : rank_(rank), ranks_(ranks) {
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamCreate(&stream_));
    NCCL(ncclCommInitRank(&comm_, ranks, id, rank));
    CUDA(cudaMalloc(&in_, kMaxBytes));
    CUDA(cudaMalloc(&out_, kMaxBytes));
  }
  ~Rank() { NCCL(ncclCommDestroy(comm_)); }

  void check() {
    size_t cases = 0, wrong = 0;
    for (const Type& t : kTypes) {
      for (const Operator& op : kOperators) {
        for (const size_t bytes : {size_t{1} << 3, size_t{3000}, size_t{256} << 10, (size_t{4} << 20) + 24}) {
          for (const bool in_place : {false, true}) {
            ++cases;
            if (!is_allreduce_correct(t, op, std::max<size_t>(1, bytes / t.bytes), in_place)) {
              ++wrong;
              std::printf("rank %d: WRONG %s %s %zu bytes %s\n", rank_, t.name, op.name, bytes, in_place ? "in place" : "");
            }
          }
        }
      }
    }
    ++cases;
    if (!is_allreduce_correct(kTypes[1], kOperators[0], 1, false)) ++wrong;  // one byte
    finish("check", cases, wrong);
  }

  void large() {
    size_t cases = 0, wrong = 0;
    for (size_t bytes = size_t{16} << 20; bytes <= kMaxBytes; bytes *= 4) {
      for (const int t : {7, 9}) {  // float, bfloat16
        for (const bool in_place : {false, true}) {
          ++cases;
          wrong += is_allreduce_correct(kTypes[t], kOperators[0], bytes / kTypes[t].bytes, in_place) ? 0 : 1;
        }
      }
    }
    finish("large", cases, wrong);
  }

  void point_to_point() {
    size_t cases = 0, wrong = 0;
    const Type& t = kTypes[7];
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
      fill(t, count, ncclSum);
      NCCL(ncclBroadcast(in_, out_, count, t.id, 1 % ranks_, comm_, stream_));
      wrong += equals(t, count, [&](size_t i) { return value(1 % ranks_, ranks_, i, ncclSum); }) ? 0 : 1;
      NCCL(ncclAllGather(in_, out_, count, t.id, comm_, stream_));
      wrong += equals(t, count * static_cast<size_t>(ranks_),
                      [&](size_t i) { return value(static_cast<int>(i / count), ranks_, i % count, ncclSum); })
                   ? 0
                   : 1;
      NCCL(ncclGroupStart());
      NCCL(ncclSend(in_, count, t.id, (rank_ + 1) % ranks_, comm_, stream_));
      NCCL(ncclRecv(out_, count, t.id, (rank_ + ranks_ - 1) % ranks_, comm_, stream_));
      NCCL(ncclGroupEnd());
      wrong += equals(t, count, [&](size_t i) { return value((rank_ + ranks_ - 1) % ranks_, ranks_, i, ncclSum); }) ? 0 : 1;
      cases += 3;
    }
    finish("point-to-point", cases, wrong);
  }

  void bench() {
    const Type& t = kTypes[7];
    for (size_t bytes = size_t{64} << 10; bytes <= kMaxBytes; bytes *= 4) {
      const int rounds = bytes >= (size_t{64} << 20) ? 5 : 20;
      const size_t count = bytes / t.bytes;
      for (int i = 0; i < 3; ++i) NCCL(ncclAllReduce(in_, out_, count, t.id, ncclSum, comm_, stream_));
      CUDA(cudaStreamSynchronize(stream_));
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < rounds; ++i) NCCL(ncclAllReduce(in_, out_, count, t.id, ncclSum, comm_, stream_));
      CUDA(cudaStreamSynchronize(stream_));
      const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / rounds;
      if (rank_ == 0) std::printf("bench %zu bytes %.1f us algbw %.3f GB/s\n", bytes, us, static_cast<double>(bytes) / us * 1e-3);
    }
  }

 private:
  static constexpr size_t kMaxBytes = size_t{256} << 20;

  void fill(const Type& t, size_t count, ncclRedOp_t op) {
    host_.resize(count * t.bytes);
    for (size_t i = 0; i < count; ++i) encode(t, value(rank_, ranks_, i, op), host_.data() + i * t.bytes);
    CUDA(cudaMemcpy(in_, host_.data(), host_.size(), cudaMemcpyHostToDevice));
    CUDA(cudaMemset(out_, 0xA5, std::min(kMaxBytes, count * t.bytes)));
  }

  template <typename Expected>
  bool equals(const Type& t, size_t count, Expected expected, const void* data = nullptr) {
    std::vector<std::byte> received(count * t.bytes), expected_bytes(received.size());
    CUDA(cudaStreamSynchronize(stream_));
    CUDA(cudaMemcpy(received.data(), data != nullptr ? data : out_, received.size(), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; ++i) encode(t, expected(i), expected_bytes.data() + i * t.bytes);
    return received == expected_bytes;
  }

  bool is_allreduce_correct(const Type& t, const Operator& op, size_t count, bool in_place) {
    fill(t, count, op.id);
    void* const out = in_place ? in_ : out_;
    NCCL(ncclAllReduce(in_, out, count, t.id, op.id, comm_, stream_));
    const bool is_integer = t.id != ncclFloat16 && t.id != ncclFloat32 && t.id != ncclFloat64 && t.id != ncclBfloat16 && t.bytes != 1;
    const bool is_small_integer = t.id == ncclInt8 || t.id == ncclUint8;
    return equals(t, count, [&](size_t i) { return result(ranks_, i, op.id, is_integer || is_small_integer); }, out);
  }

  void finish(const char* what, size_t cases, size_t wrong) {
    std::printf("rank %d: %s: %zu cases, %zu wrong\n", rank_, what, cases, wrong);
    std::fflush(stdout);
    if (wrong != 0) std::_Exit(2);
  }

  const int rank_;
  const int ranks_;
  ncclComm_t comm_{};
  cudaStream_t stream_{};
  void* in_ = nullptr;
  void* out_ = nullptr;
  std::vector<std::byte> host_;
};

int run_rank(const std::string& mode, int rank, int ranks, int read_end) {
  rank_of_process = rank;
  ncclUniqueId id;
  if (read(read_end, &id, sizeof id) != static_cast<ssize_t>(sizeof id)) fail("read of the unique ID", "the launcher has ended");
  Rank r(rank, ranks, id);
  if (mode == "check") r.check();
  if (mode == "large") r.large();
  if (mode == "point-to-point") r.point_to_point();
  if (mode == "bench") r.bench();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 3 ? std::atoi(argv[2]) : 0;
  if (ranks < 1) {
    std::fprintf(stderr, "usage: nccl_job check|large|point-to-point|bench RANKS\n");
    return 64;
  }
  // The processes are forked before the first use of CUDA or NCCL. A child creates the unique ID, because that starts a thread.
  int id_pipe[2];
  std::vector<int> id_writers;
  if (pipe(id_pipe) != 0) return 1;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    const pid_t child = fork();
    if (child == 0) {
      setenv("NCCL_HOSTID", ("node" + std::to_string(rank)).c_str(), 1);
      if (rank == 0) {
        ncclUniqueId id;
        NCCL(ncclGetUniqueId(&id));
        if (write(id_pipe[1], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) return 1;
      }
      return run_rank(argv[1], rank, ranks, ends[0]);
    }
    id_writers.push_back(ends[1]);
  }
  ncclUniqueId id;
  if (read(id_pipe[0], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) return 1;
  for (const int end : id_writers) {
    if (write(end, &id, sizeof id) != static_cast<ssize_t>(sizeof id)) return 1;
  }
  int code = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    code = std::max(code, exit_code);
  }
  return code;
}
