#include "gpu_client/store/store_client.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/clock.h"
#include "gpu_client/store/retry.h"

namespace sluice::store_client {

using wire::ModelQueryKind;

Result<void> check_pointers(const store::ModelSpec& spec, const void* const* tensors, const char* argument) {
  if (tensors == nullptr) return invalid(std::string(argument) + " is NULL");
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    if (tensors[i] == nullptr)
      return invalid(std::string(argument) + "[" + std::to_string(i) + "] is NULL; expected tensor \"" +
                     spec.tensors[i].name + "\"");
  }
  return {};
}

StoreClient::StoreClient(StoreOptions options)
    : options_(std::move(options)),
      pool_(transfers_of(options_.reducers, options_.identity)),
      pushes_(pool_->pushes, pool_->connections),
      pulls_(pool_->pulls, pool_->connections) {}

Result<std::unique_ptr<StoreClient>> StoreClient::open(StoreOptions options) {
  std::unique_ptr<StoreClient> client(new StoreClient(std::move(options)));
  const Nanos deadline = monotonic_now() + client->options_.timeout;
  auto names = client->query(ModelQueryKind::kList, "", "", Attempt::kFirst, deadline);
  if (!names) return tl::unexpected(names.error());
  return client;
}

Result<std::string> StoreClient::query(ModelQueryKind kind, const std::string& name, const std::string& body,
                                       Attempt attempt, Nanos deadline) {
  std::vector<config::Endpoint> reducers = options_.reducers;
  // The list of a worker may be older than the pool.
  if (const auto model = current_model()) {
    for (const store::ShardOwner& owner : (*model)->owners) {
      if (std::ranges::find(reducers, owner.address) == reducers.end()) reducers.push_back(owner.address);
    }
  }
  std::optional<Error> cause;
  for (RetryPause pause(deadline);;) {
    std::optional<Error> refusal;  // of this round
    std::optional<Error> lost;
    const size_t first = preferred_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < reducers.size(); ++i) {
      const size_t index = (first + i) % reducers.size();
      auto connection = StoreConnection::open(reducers[index], options_.identity, deadline);
      if (!connection) {
        (is_retryable(connection.error().code) ? lost : refusal) = connection.error();
        continue;
      }
      auto answer = connection->query(kind, name, body, answer_deadline());
      if (answer) {
        preferred_.store(index, std::memory_order_relaxed);
        return answer;
      }
      // Unlike an owner of a shard, a reducer that does not know the name is right.
      const Errc code = answer.error().code;
      if (code == Errc::kUnknownSession || !is_retryable(code)) return answer;
      lost = answer.error();
    }
    if (!lost && attempt == Attempt::kFirst) return tl::unexpected(*refusal);
    const Error& last = refusal ? *refusal : *lost;
    // The last round may have ended only because this call's time was over.
    if (!cause || last.code != Errc::kTimeout) cause = last;
    if (!pause.wait()) return RetryPause::timed_out(*cause);
  }
}

Result<StoreClient::Model> StoreClient::current_model() const {
  const std::lock_guard lock(mutex_);
  if (model_ == nullptr) return invalid("no model is open; call sluice_store_model or sluice_store_create");
  return model_;
}

void StoreClient::set_current(Model model) {
  const std::lock_guard lock(mutex_);
  model_ = std::move(model);
}

Result<StoreClient::Model> StoreClient::find_model(const std::string& name, Nanos deadline) {
  SLUICE_ASSIGN_OR_RETURN(text, query(ModelQueryKind::kOpen, name, "", Attempt::kAgain, deadline));
  SLUICE_ASSIGN_OR_RETURN(state, store::parse_model_state(text));
  if (state.spec.name != name) return fail(Errc::kBadField, "a reducer described another model");
  return make_model(std::move(state));
}

Result<StoreClient::Model> StoreClient::reopen(const OpenModel& model, Nanos deadline) {
  const std::string& name = model.shape->spec.name;
  SLUICE_ASSIGN_OR_RETURN(text, query(ModelQueryKind::kOpen, name, "", Attempt::kAgain, deadline));
  SLUICE_ASSIGN_OR_RETURN(state, store::parse_model_state(text));
  if (state.model != model.id || state.spec != model.shape->spec || state.shards.size() != model.shards())
    return fail(Errc::kMismatch, "model \"" + name + "\" was deleted and created again; open it again");
  auto opened = std::make_shared<const OpenModel>(OpenModel{
      .shape = model.shape, .id = model.id, .owners = std::move(state.shards), .started = state.started});
  const std::lock_guard lock(mutex_);
  if (model_ != nullptr && model_->id == opened->id) model_ = opened;
  return opened;
}

template <typename T>
Result<T> StoreClient::with_retries(Model& model, Nanos deadline,
                                    const std::function<Result<T>(const OpenModel&)>& attempt) {
  for (RetryPause pause(deadline);;) {
    Result<T> result = attempt(*model);
    if (result || !is_retryable(result.error().code)) return result;
    if (!pause.wait()) return RetryPause::timed_out(result.error());
    SLUICE_ASSIGN_OR_RETURN(reopened, reopen(*model, deadline));
    model = std::move(reopened);
  }
}
// Of all results that the other sources need.
template Result<uint64_t> StoreClient::with_retries(Model&, Nanos,
                                                    const std::function<Result<uint64_t>(const OpenModel&)>&);
template Result<wire::PushAnswer> StoreClient::with_retries(
    Model&, Nanos, const std::function<Result<wire::PushAnswer>(const OpenModel&)>&);
template Result<bool> StoreClient::with_retries(Model&, Nanos,
                                                const std::function<Result<bool>(const OpenModel&)>&);

Result<void> StoreClient::open_model(const std::string& name) {
  const Nanos deadline = monotonic_now() + options_.timeout;
  SLUICE_ASSIGN_OR_RETURN(model, find_model(name, deadline));
  if (!model->started) {
    const std::lock_guard lock(pulls_.mutex);
    SLUICE_RETURN_IF_ERROR(with_retries<uint64_t>(
        model, deadline, [&](const OpenModel& m) { return pulls_.wait_version(m, 0, deadline); }));
  }
  set_current(std::move(model));
  return {};
}

Result<void> StoreClient::delete_model(const std::string& name) {
  const Nanos deadline = monotonic_now() + options_.timeout;
  auto model = find_model(name, deadline);
  if (!model && model.error().code == Errc::kUnknownSession) return {};
  if (!model) return tl::unexpected(model.error());
  const auto delete_at = [&](const config::Endpoint& owner) -> Result<void> {
    SLUICE_ASSIGN_OR_RETURN(connection, StoreConnection::open(owner, options_.identity, deadline));
    auto answer = connection.query(ModelQueryKind::kDelete, name, "", answer_deadline());
    if (answer || answer.error().code == Errc::kUnknownSession) return {};
    return tl::unexpected(answer.error());
  };
  // The leader first: from its answer on, the model does not exist.
  auto deleted = with_retries<bool>(*model, deadline, [&](const OpenModel& m) -> Result<bool> {
    SLUICE_RETURN_IF_ERROR(delete_at(m.owners.front().address));
    return true;
  });
  if (!deleted && deleted.error().code != Errc::kUnknownSession) return tl::unexpected(deleted.error());
  std::set<std::string> done{config::to_string((*model)->owners.front().address)};
  Result<void> result;
  for (const store::ShardOwner& owner : (*model)->owners) {
    if (!done.insert(config::to_string(owner.address)).second) continue;
    if (auto removed = delete_at(owner.address); !removed && result)
      result = add_context("the model is deleted, but files may be left", removed.error());
  }
  return result;
}

Result<std::string> StoreClient::list() {
  const Nanos deadline = monotonic_now() + options_.timeout;
  SLUICE_ASSIGN_OR_RETURN(text, query(ModelQueryKind::kList, "", "", Attempt::kAgain, deadline));
  SLUICE_RETURN_IF_ERROR(store::parse_model_names(text));
  return text;
}

Result<std::string> StoreClient::describe() {
  SLUICE_ASSIGN_OR_RETURN(model, current_model());
  const Nanos deadline = monotonic_now() + options_.timeout;
  const std::string& name = model->shape->spec.name;
  SLUICE_ASSIGN_OR_RETURN(text, query(ModelQueryKind::kOpen, name, "", Attempt::kAgain, deadline));
  SLUICE_RETURN_IF_ERROR(store::parse_model_state(text));
  return text;
}

}  // namespace sluice::store_client
