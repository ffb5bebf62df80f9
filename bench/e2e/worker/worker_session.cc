#include "bench/e2e/worker/worker_session.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "bench/e2e/process/exit_codes.h"
#include "blackbox/event_source.h"
#include "blackbox/process_dump.h"
#include "core/ids.h"
#include "core/log.h"

namespace sluice::bench {
namespace {

constexpr size_t kGatherTextBytes = 120;  // per rank in gather()

static_assert(static_cast<int>(wire::DType::kF8e5m2) == SLUICE_F8E5M2 &&
                  static_cast<int>(wire::Op::kAvg) == SLUICE_AVG,
              "the C API uses the numbers of the wire format");
sluice_dtype to_c(wire::DType t) {
  return static_cast<sluice_dtype>(t);
}
sluice_op to_c(wire::Op op) {
  return static_cast<sluice_op>(op);
}

void parse_session_id(const std::string& text, uint8_t (&id)[16]) {
  bool is_hex = text.size() == 2 * sizeof id;
  for (size_t i = 0; is_hex && i < sizeof id; ++i) {
    const char* const end = text.data() + 2 * i + 2;
    is_hex = std::from_chars(end - 2, end, id[i], 16).ptr == end;
  }
  if (!is_hex) throw Failure(kExitUsage, fmt::format("session \"{}\": expected 32 hex digits", text));
}

const char* or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

uint32_t u32(int64_t value) {
  return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, std::numeric_limits<uint32_t>::max()));
}

void write_blackbox() {
  blackbox::EventSource().record(blackbox::EventKind::kSignal, {.a = SIGUSR2});
  blackbox::dump_on_request("SIGUSR2");
}

void reload_pool_file(sluice_session* session) {
  std::array<char, 1024> error{};
  if (sluice_session_set_reducers(session, nullptr, error.data(), error.size()) != SLUICE_OK)
    log::warn(fmt::format("pool file not reloaded after SIGHUP: {}", error.data()));
}

}  // namespace

void WorkerSession::SessionDeleter::operator()(sluice_session* session) const noexcept {
  (void)sluice_session_close(session);  // a destructor cannot report errors
}

WorkerSession::WorkerSession(const WorkerOptions& o)
    : dumper_(SIGUSR2, "SIGUSR2", write_blackbox), rank_(o.rank), ranks_(o.ranks) {
  sluice_options options;
  sluice_options_init(&options);
  parse_session_id(o.session, options.session_id);
  options.reducers = o.reducers.c_str();
  options.rank = o.rank;
  options.ranks = o.ranks;
  options.lanes = o.lanes;
  if (o.window_bytes != 0) options.window_bytes = u32(static_cast<int64_t>(o.window_bytes));
  if (o.slot_bytes != 0) options.slot_bytes = u32(static_cast<int64_t>(o.slot_bytes));
  options.progress_threads = o.progress_threads;
  options.payload_crc = o.payload_crc ? 1 : 0;
  options.keep_results = o.keep_results ? 1 : 0;
  if (o.connect_timeout_ms != 0) options.connect_timeout_ms = u32(o.connect_timeout_ms);
  if (o.join_timeout_ms != 0) options.join_timeout_ms = u32(o.join_timeout_ms);
  options.interface_address = or_null(o.interface_address);

  blackbox::name_process("sluice");
  const bool has_pool_file = o.reducers.starts_with('@');
  if (has_pool_file) SignalThread::block(SIGHUP);  // before the library starts threads
  std::array<char, 1024> error{};
  sluice_session* session = nullptr;
  const sluice_status status = sluice_session_create(&options, &session, error.data(), error.size());
  if (status != SLUICE_OK) {
    const ExitCode code = status == SLUICE_INVALID_ARGUMENT ? kExitUsage : kExitUnavailable;
    throw Failure(code, fmt::format("rank {} cannot join the session: {} ({})", o.rank, error.data(),
                                    sluice_status_string(status)));
  }
  session_.reset(session);
  if (has_pool_file) reloader_.emplace(SIGHUP, "SIGHUP", [session] { reload_pool_file(session); });
}

WorkerSession::~WorkerSession() = default;

void WorkerSession::check(sluice_status status, const char* operation) const {
  if (status == SLUICE_OK) return;
  std::array<char, 1024> text{};
  if (sluice_session_error(session_.get(), text.data(), text.size()) == SLUICE_OK) text[0] = '\0';
  throw Failure(kExitFailure,
                fmt::format("rank {}: {} failed: {}{}{}", rank_, operation, sluice_status_string(status),
                            text[0] != '\0' ? ": " : "", text.data()));
}

void WorkerSession::register_memory(void* bytes, size_t size) {
  std::array<char, 512> error{};
  if (sluice_memory_register(session_.get(), bytes, size, error.data(), error.size()) != SLUICE_OK)
    fmt::print(stderr, "rank {}: memory not registered, operations copy their payload: {}\n", rank_,
               error.data());
}

void WorkerSession::allreduce(const void* send, void* recv, size_t count, wire::DType dtype, wire::Op op) {
  if (has_streams_) return wait(start(send, recv, count, dtype, op));
  check(sluice_allreduce(session_.get(), send, recv, count, to_c(dtype), to_c(op)), "allreduce");
}

sluice_request WorkerSession::start(const void* send, void* recv, size_t count, wire::DType dtype,
                                    wire::Op op) {
  if (has_streams_) return start_on_stream(send, recv, count, dtype, op, nullptr);
  sluice_request request = 0;
  check(sluice_allreduce_async(session_.get(), send, recv, count, to_c(dtype), to_c(op), &request),
        "allreduce");
  return request;
}

sluice_request WorkerSession::start_reduce_scatter(const void* send, void* recv,
                                                   std::span<const size_t> counts, wire::DType dtype,
                                                   wire::Op op) {
  sluice_request request = 0;
  check(sluice_reduce_scatter_async(session_.get(), send, recv, 0, counts.data(), to_c(dtype), to_c(op),
                                    &request),
        "reduce-scatter");
  return request;
}

sluice_request WorkerSession::start_all_gather(const void* send, void* recv, std::span<const size_t> counts,
                                               wire::DType dtype) {
  sluice_request request = 0;
  check(sluice_all_gather_async(session_.get(), send, recv, 0, counts.data(), to_c(dtype), &request),
        "all-gather");
  return request;
}

sluice_request WorkerSession::start_reduce(const void* send, void* recv, size_t count, wire::DType dtype,
                                           wire::Op op, uint32_t root) {
  sluice_request request = 0;
  check(sluice_reduce_async(session_.get(), send, recv, count, to_c(dtype), to_c(op), root, &request),
        "reduce");
  return request;
}

sluice_request WorkerSession::start_broadcast(void* buffer, size_t count, wire::DType dtype, uint32_t root) {
  sluice_request request = 0;
  check(sluice_broadcast_async(session_.get(), buffer, count, to_c(dtype), root, &request), "broadcast");
  return request;
}

void WorkerSession::wait(sluice_request request) {
  check(sluice_wait(session_.get(), request, -1), "wait");
}

bool WorkerSession::wait_for(sluice_request request, int timeout_ms) {
  const sluice_status status = sluice_wait(session_.get(), request, timeout_ms);
  if (status == SLUICE_TIMEOUT) return false;
  check(status, "wait");
  return true;
}

void WorkerSession::open_streams(const sluice_stream_options& options) {
  std::array<char, 1024> error{};
  const sluice_status status =
      sluice_session_open_streams(session_.get(), &options, error.data(), error.size());
  has_streams_ = status == SLUICE_OK;
  if (has_streams_) return;
  const ExitCode code = status == SLUICE_INVALID_ARGUMENT ? kExitUsage
                        : status == SLUICE_UNSUPPORTED    ? kExitUnavailable
                                                          : kExitFailure;
  throw Failure(code, fmt::format("rank {}: cannot open streams: {} ({})", rank_, error.data(),
                                  sluice_status_string(status)));
}

sluice_request WorkerSession::start_on_stream(const void* send, void* recv, size_t count, wire::DType dtype,
                                              wire::Op op, sluice_stream stream) {
  sluice_request request = 0;
  const sluice_status status =
      sluice_allreduce_on_stream(session_.get(), send, recv, count, to_c(dtype), to_c(op), stream, &request);
  if (status == SLUICE_OK) return request;
  throw Failure(kExitFailure, fmt::format("rank {}: allreduce on a stream failed: {}: {}", rank_,
                                          sluice_status_string(status), sluice_refusal()));
}

sluice_stream_stats WorkerSession::stream_stats() const {
  sluice_stream_stats stats{};
  stats.struct_size = sizeof stats;
  check(sluice_session_stream_stats(session_.get(), &stats), "stream stats");
  return stats;
}

void WorkerSession::barrier() {
  (void)reduce(uint64_t{1}, wire::Op::kSum);
}

double WorkerSession::reduce(double value, wire::Op op) {
  allreduce(&value, &value, 1, wire::DType::kF64, op);
  return value;
}

uint64_t WorkerSession::reduce(uint64_t value, wire::Op op) {
  allreduce(&value, &value, 1, wire::DType::kU64, op);
  return value;
}

std::vector<std::string> WorkerSession::gather(const std::string& text) {
  std::vector<char> all(ranks_ * kGatherTextBytes, '\0');
  std::copy_n(text.data(), std::min(text.size(), kGatherTextBytes), all.data() + rank_ * kGatherTextBytes);
  allreduce(all.data(), all.data(), all.size(), wire::DType::kU8, wire::Op::kSum);
  std::vector<std::string> texts;
  for (uint32_t r = 0; r < ranks_; ++r) {
    const char* begin = all.data() + r * kGatherTextBytes;
    texts.emplace_back(begin, std::find(begin, begin + kGatherTextBytes, '\0'));
  }
  return texts;
}

sluice_stats WorkerSession::stats() const {
  sluice_stats stats{};
  stats.struct_size = sizeof stats;
  check(sluice_session_stats(session_.get(), &stats), "stats");
  return stats;
}

void WorkerSession::close() {
  reloader_.reset();
  const sluice_status status = sluice_session_close(session_.release());
  if (status != SLUICE_OK) {
    throw Failure(kExitFailure,
                  fmt::format("rank {}: close failed: {}", rank_, sluice_status_string(status)));
  }
}

std::string random_session_id() {
  SessionId id;
  if (getrandom(id.bytes.data(), id.bytes.size(), 0) != static_cast<ssize_t>(id.bytes.size()))
    throw Failure(kExitFailure, "cannot read random bytes from the kernel");
  return to_string(id);
}

}  // namespace sluice::bench
