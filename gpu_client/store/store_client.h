// Class StoreClient pushes to and pulls from models that reducers keep (protocol.md section 16). It connects
// to the owners of a model's shards and repeats what a lost connection has interrupted, at new owners if
// there are any.
//
// Any thread; pushes run one after another, pulls too. Calls block until their deadline; a transfer that
// makes progress is finished. Errors: kTimeout with the last cause, or the error that a retry cannot end.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu_client/store/open_model.h"
#include "gpu_client/store/owner_calls.h"
#include "gpu_client/store/pool_transfers.h"
#include "store/snapshot/snapshot_file.h"

namespace sluice::store_client {

struct StoreOptions {
  std::vector<config::Endpoint> reducers;  // any of the pool; at least one
  engine::Identity identity;
  Nanos timeout = 60 * kSecond;
  uint64_t worker = 0;  // identifies the pushes
};

struct PushRequest {
  const void* const* deltas = nullptr;  // for each tensor
  uint64_t base = 0;
  float weight = 1;
  wire::DType dtype = wire::DType::kF32;  // of the bodies
};

class StoreClient {
 public:
  // Connects to a reducer that answers.
  [[nodiscard]] static Result<std::unique_ptr<StoreClient>> open(StoreOptions options);

  [[nodiscard]] Nanos timeout() const noexcept { return options_.timeout; }

  // See sluice_store_create() and the functions after it. Returns whether this call has created the model.
  [[nodiscard]] Result<bool> create(const std::string& specification, const void* const* tensors);
  [[nodiscard]] Result<bool> restore(const std::string& specification, const std::string& path,
                                     store::SnapshotSource source);
  [[nodiscard]] Result<void> open_model(const std::string& name);
  [[nodiscard]] Result<void> delete_model(const std::string& name);
  [[nodiscard]] Result<std::string> list();
  [[nodiscard]] Result<std::string> describe();

  // kLate and kStale are no errors; every other outcome is kContained.
  [[nodiscard]] Result<wire::PushAnswer> push(const PushRequest& request, Nanos timeout);
  // Return the version.
  [[nodiscard]] Result<uint64_t> pull(void* const* tensors, uint64_t at_least, wire::DType dtype,
                                      Nanos timeout);
  [[nodiscard]] Result<uint64_t> wait(uint64_t at_least, Nanos timeout);
  // A push, and a pull of the version that it leads to. With sync steps both move at the same time: the step
  // begins with what has arrived, and its values are pulled while they are computed.
  [[nodiscard]] Result<wire::PushAnswer> push_pull(const PushRequest& request, void* const* tensors,
                                                   wire::DType dtype, Nanos timeout);
  [[nodiscard]] Result<uint64_t> snapshot(const std::string& path, store::SnapshotContent content);

 private:
  using Model = std::shared_ptr<const OpenModel>;
  // The version that create() uploads.
  struct FirstVersion {
    store::SnapshotFacts facts;
    // The body of one array of one shard.
    std::function<Result<MessageChannel::Fill>(const ModelShape&, uint32_t shard, size_t array)> body;
  };
  // kFirst: a reducer that refuses is final. kAgain: only an answer to the query is.
  enum class Attempt : uint8_t { kFirst, kAgain };

  explicit StoreClient(StoreOptions options);

  // Sends MODEL_QUERY to the reducers in turn until one answers.
  [[nodiscard]] Result<std::string> query(wire::ModelQueryKind kind, const std::string& name,
                                          const std::string& body, Attempt attempt, Nanos deadline);
  [[nodiscard]] Result<Model> find_model(const std::string& name, Nanos deadline);
  // The owners of the model may have changed.
  [[nodiscard]] Result<Model> reopen(const OpenModel& model, Nanos deadline);
  [[nodiscard]] Result<Model> current_model() const;
  void set_current(Model model);

  // Calls `attempt` with the model until it succeeds, an error is final, or the deadline has passed. Opens
  // the model again before each further attempt.
  template <typename T>
  [[nodiscard]] Result<T> with_retries(Model& model, Nanos deadline,
                                       const std::function<Result<T>(const OpenModel&)>& attempt);

  [[nodiscard]] Result<bool> create(const store::ModelSpec& spec, const FirstVersion& first);
  [[nodiscard]] Result<void> upload(const OpenModel& model, const FirstVersion& first, Nanos deadline);
  [[nodiscard]] static Result<void> check_push(const OpenModel& model, const PushRequest& request);
  // Of the deltas, by which a repeated push is known.
  [[nodiscard]] static uint32_t checksum(const OpenModel& model, const PushRequest& request) noexcept;
  // Called with the mutex of pushes_. `is_early`: PUSH_STEP goes first; a repeated push is not early.
  [[nodiscard]] Result<wire::PushAnswer> push(Model model, const PushRequest& request, bool is_early,
                                              Nanos deadline);
  [[nodiscard]] Result<wire::PushAnswer> push_once(const OpenModel& model, const PushRequest& request,
                                                   uint64_t number, bool is_early, Nanos deadline);
  [[nodiscard]] Result<ConnectionCache::Borrowed> send_push_step(const OpenModel& model,
                                                                 const PushRequest& request, uint64_t number,
                                                                 bool is_early, Nanos deadline);
  // Called with the mutex of pulls_.
  [[nodiscard]] Result<uint64_t> pull(Model model, void* const* tensors, uint64_t at_least, wire::DType dtype,
                                      Nanos deadline);
  // An early pull of exactly this version. From `over_at` on it gives up, unless the values are on their way.
  [[nodiscard]] Result<uint64_t> pull_early(const OpenModel& model, void* const* tensors, uint64_t version,
                                            wire::DType dtype, const std::atomic<Nanos>& over_at,
                                            Nanos deadline);
  // Receives one array of one shard of a version; returns the steps.
  [[nodiscard]] static Result<uint64_t> pull_array(StoreConnection& owner, const OpenModel& model,
                                                   wire::Pull request, const MessageChannel::Use& use);

  const StoreOptions options_;
  std::atomic<size_t> preferred_{0};  // the reducer that answered the last query
  mutable std::mutex mutex_;
  Model model_;  // null: none is open
  const std::shared_ptr<PoolTransfers> pool_;
  OwnerCalls pushes_;
  OwnerCalls pulls_;
  // Protected by pushes_.mutex. A push without an answer is pushed again under the same number, by which
  // reducers know it.
  uint64_t last_number_ = 0;
  std::optional<uint32_t> unanswered_;  // checksum of its deltas; null: the last push has an answer
  uint64_t last_base_ = 0;
  uint64_t last_model_ = 0;
};

// Checks that each tensor of the model has a pointer.
[[nodiscard]] Result<void> check_pointers(const store::ModelSpec& spec, const void* const* tensors,
                                          const char* argument);

}  // namespace sluice::store_client
