// Implements the C API of include/sluice/store.h.
#include "gpu_client/include/sluice/store.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "gpu_client/api/caller_buffers.h"
#include "gpu_client/api/session_handle.h"
#include "gpu_client/api/status_map.h"
#include "gpu_client/api/store_options.h"
#include "gpu_client/store/store_client.h"

using sluice::Errc;
using sluice::Nanos;
using sluice::Result;
using sluice::api::copy_text;
using sluice::store_client::StoreClient;

struct sluice_store {
  std::unique_ptr<StoreClient> client;
  std::string json;  // of the last list or description
  uint64_t fork_generation = sluice::api::fork_generation();
};

namespace {

static_assert(SLUICE_PUSH_CONTAINED == static_cast<int>(sluice::wire::PushOutcome::kContained));
static_assert(SLUICE_PUSH_LATE == static_cast<int>(sluice::wire::PushOutcome::kLate));
static_assert(SLUICE_PUSH_STALE == static_cast<int>(sluice::wire::PushOutcome::kStale));

thread_local std::array<char, 1024> last_error{};

void set_error(std::string_view text) noexcept {
  copy_text(text, last_error.data(), last_error.size());
}

sluice_status refuse(const char* text) noexcept {
  set_error(text);
  return SLUICE_INVALID_ARGUMENT;
}

// Calls `body`, which returns a Result. Stores the text of its error.
template <typename Body>
sluice_status call(Body&& body) noexcept {
  set_error("");
  const sluice_status status = sluice::api::catch_exceptions([&] {
    const auto result = std::forward<Body>(body)();
    if (result) return SLUICE_OK;
    set_error(result.error().text);
    return sluice::api::to_status(result.error().code);
  });
  if (status != SLUICE_OK && last_error[0] == '\0')
    set_error(status == SLUICE_SYSTEM ? "out of memory" : "internal error");
  return status;
}

// The same with the client of a handle.
template <typename Body>
sluice_status call_on_store(sluice_store* store, Body&& body) noexcept {
  if (store == nullptr) return refuse("store is NULL");
  if (store->fork_generation != sluice::api::fork_generation()) {
    set_error("the handle belongs to the parent process; open a new one after fork()");
    return SLUICE_CLOSED;
  }
  return call([&] { return std::forward<Body>(body)(*store->client); });
}

template <typename T, typename Out>
Result<void> store_value(const Result<T>& result, Out* out) {
  if (!result) return tl::unexpected(result.error());
  if (out != nullptr) *out = static_cast<Out>(*result);
  return {};
}

Nanos timeout_of(const StoreClient& client, uint32_t timeout_ms) noexcept {
  return timeout_ms == 0 ? client.timeout() : Nanos{timeout_ms} * sluice::kMillisecond;
}

Result<sluice::wire::DType> read_wire_dtype(int dtype) {
  switch (dtype) {
    case SLUICE_F32: return sluice::wire::DType::kF32;
    case SLUICE_F16: return sluice::wire::DType::kF16;
    case SLUICE_BF16: return sluice::wire::DType::kBf16;
    case SLUICE_MXFP8: return sluice::wire::DType::kMxfp8;
    case SLUICE_INT8_BLOCK: return sluice::wire::DType::kInt8Block;
    default: break;
  }
  return sluice::invalid("wire_dtype is " + std::to_string(dtype) +
                         "; expected SLUICE_F32, SLUICE_BF16, SLUICE_F16, SLUICE_MXFP8 or SLUICE_INT8_BLOCK");
}

}  // namespace

const char* sluice_store_error(void) {
  return last_error.data();
}

void sluice_store_options_init_sized(sluice_store_options* options, size_t struct_size) {
  if (options == nullptr || struct_size < sizeof options->struct_size) return;
  sluice_store_options defaults = sluice::api::default_store_options();
  defaults.struct_size = struct_size;
  sluice::api::copy_sized(defaults, options, struct_size);
}

sluice_status sluice_store_open(const sluice_store_options* options, sluice_store** store, char* error,
                                size_t error_bytes) {
  if (store != nullptr) *store = nullptr;
  const sluice_status status = call([&]() -> Result<void> {
    if (options == nullptr) return sluice::invalid("options is NULL");
    if (store == nullptr) return sluice::invalid("store is NULL");
    SLUICE_ASSIGN_OR_RETURN(read, sluice::api::read_store_options(*options));
    if (!sluice::api::install_fork_handler()) return sluice::fail(Errc::kSystem, "out of memory");
    auto handle = std::make_unique<sluice_store>();
    SLUICE_ASSIGN_OR_RETURN(client, StoreClient::open(std::move(read)));
    handle->client = std::move(client);
    *store = handle.release();
    return {};
  });
  copy_text(last_error.data(), error, error_bytes);
  return status;
}

void sluice_store_close(sluice_store* store) {
  // A child of fork() has no threads to end; the memory is leaked.
  if (store == nullptr || store->fork_generation != sluice::api::fork_generation()) return;
  delete store;
}

sluice_status sluice_store_create(sluice_store* store, const char* specification, const void* const* tensors,
                                  int* created) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    if (specification == nullptr) return sluice::invalid("specification is NULL");
    return store_value(client.create(specification, tensors), created);
  });
}

sluice_status sluice_store_restore(sluice_store* store, const char* specification, const char* path, int any,
                                   int* created) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    if (specification == nullptr) return sluice::invalid("specification is NULL");
    if (path == nullptr) return sluice::invalid("path is NULL");
    using sluice::store::SnapshotSource;
    const auto source = any != 0 ? SnapshotSource::kAnyModel : SnapshotSource::kThisModel;
    return store_value(client.restore(specification, path, source), created);
  });
}

sluice_status sluice_store_model(sluice_store* store, const char* name) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    if (name == nullptr) return sluice::invalid("name is NULL");
    return client.open_model(name);
  });
}

sluice_status sluice_store_delete(sluice_store* store, const char* name) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    if (name == nullptr) return sluice::invalid("name is NULL");
    return client.delete_model(name);
  });
}

sluice_status sluice_store_list(sluice_store* store, const char** json) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    if (json == nullptr) return sluice::invalid("json is NULL");
    SLUICE_ASSIGN_OR_RETURN(text, client.list());
    store->json = std::move(text);
    *json = store->json.c_str();
    return {};
  });
}

sluice_status sluice_store_describe(sluice_store* store, const char** json) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    if (json == nullptr) return sluice::invalid("json is NULL");
    SLUICE_ASSIGN_OR_RETURN(text, client.describe());
    store->json = std::move(text);
    *json = store->json.c_str();
    return {};
  });
}

sluice_status sluice_store_push(sluice_store* store, const void* const* deltas, uint64_t base, float weight,
                                int wire_dtype, uint32_t timeout_ms, sluice_push_outcome* outcome,
                                uint64_t* version) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    SLUICE_ASSIGN_OR_RETURN(dtype, read_wire_dtype(wire_dtype));
    if (outcome == nullptr) return sluice::invalid("outcome is NULL");
    SLUICE_ASSIGN_OR_RETURN(answer,
                            client.push({.deltas = deltas, .base = base, .weight = weight, .dtype = dtype},
                                        timeout_of(client, timeout_ms)));
    *outcome = static_cast<sluice_push_outcome>(answer.outcome);
    if (version != nullptr) *version = answer.version;
    return {};
  });
}

sluice_status sluice_store_pull(sluice_store* store, void* const* tensors, uint64_t min_version,
                                int wire_dtype, uint32_t timeout_ms, uint64_t* version) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    SLUICE_ASSIGN_OR_RETURN(dtype, read_wire_dtype(wire_dtype));
    return store_value(client.pull(tensors, min_version, dtype, timeout_of(client, timeout_ms)), version);
  });
}

sluice_status sluice_store_push_pull(sluice_store* store, const void* const* deltas, uint64_t base,
                                     float weight, int push_wire_dtype, void* const* tensors,
                                     int pull_wire_dtype, uint32_t timeout_ms, sluice_push_outcome* outcome,
                                     uint64_t* version) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    SLUICE_ASSIGN_OR_RETURN(push_dtype, read_wire_dtype(push_wire_dtype));
    SLUICE_ASSIGN_OR_RETURN(pull_dtype, read_wire_dtype(pull_wire_dtype));
    if (outcome == nullptr) return sluice::invalid("outcome is NULL");
    SLUICE_ASSIGN_OR_RETURN(
        answer, client.push_pull({.deltas = deltas, .base = base, .weight = weight, .dtype = push_dtype},
                                 tensors, pull_dtype, timeout_of(client, timeout_ms)));
    *outcome = static_cast<sluice_push_outcome>(answer.outcome);
    if (version != nullptr) *version = answer.version;
    return {};
  });
}

sluice_status sluice_store_wait(sluice_store* store, uint64_t min_version, uint32_t timeout_ms,
                                uint64_t* version) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    return store_value(client.wait(min_version, timeout_of(client, timeout_ms)), version);
  });
}

sluice_status sluice_store_snapshot(sluice_store* store, const char* path, int resumable, uint64_t* version) {
  return call_on_store(store, [&](StoreClient& client) -> Result<void> {
    if (path == nullptr) return sluice::invalid("path is NULL");
    using sluice::store::SnapshotContent;
    const auto content = resumable != 0 ? SnapshotContent::kResumable : SnapshotContent::kWeights;
    return store_value(client.snapshot(path, content), version);
  });
}
