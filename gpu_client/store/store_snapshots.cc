// Creation of models by class StoreClient, from tensors or from a snapshot, and snapshots.
#include <cstring>

#include "core/clock.h"
#include "gpu_client/store/store_client.h"
#include "store/model/model_json.h"
#include "store/snapshot/half_floats.h"
#include "store/snapshot/write_snapshot.h"

namespace sluice::store_client {
namespace {

using wire::DType;

Status fill_zeros(uint64_t /*offset*/, std::span<std::byte> piece) {
  std::memset(piece.data(), 0, piece.size());
  return {};
}

size_t arrays_of(const OpenModel& model) {
  return array_count(model.shape->spec.rule.kind);
}

}  // namespace

Result<void> StoreClient::upload(const OpenModel& model, const FirstVersion& first, Nanos deadline) {
  const uint64_t bytes = model.shape->body_bytes(DType::kF32);
  const auto upload_shard = [&](uint32_t shard, StoreConnection& owner) -> Result<void> {
    for (size_t array = 0; array < arrays_of(model); ++array) {
      SLUICE_ASSIGN_OR_RETURN(fill, first.body(*model.shape, shard, array));
      const wire::Install install{.model = model.id,
                                  .shard = shard,
                                  .version = first.facts.version,
                                  .steps = first.facts.steps,
                                  .array = static_cast<uint8_t>(array),
                                  .bytes = bytes};
      SLUICE_RETURN_IF_ERROR(owner.send(install, answer_deadline()));
      SLUICE_RETURN_IF_ERROR(owner.send_pieces(bytes, fill));
      SLUICE_RETURN_IF_ERROR(owner.receive<wire::Done>(answer_deadline()));
    }
    return {};
  };
  SLUICE_RETURN_IF_ERROR(pushes_.run(model, deadline, upload_shard));
  SLUICE_ASSIGN_OR_RETURN(leader, pushes_.leader(model, deadline));
  const wire::StartModel start{.model = model.id, .version = first.facts.version};
  SLUICE_RETURN_IF_ERROR(leader->send(start, answer_deadline()));
  SLUICE_RETURN_IF_ERROR(leader->receive<wire::Done>(answer_deadline()));
  return {};
}

Result<bool> StoreClient::create(const store::ModelSpec& spec, const FirstVersion& first) {
  const Nanos deadline = monotonic_now() + options_.timeout;
  SLUICE_ASSIGN_OR_RETURN(text, query(wire::ModelQueryKind::kCreate, spec.name, store::model_text(spec),
                                      Attempt::kAgain, deadline));
  SLUICE_ASSIGN_OR_RETURN(state, store::parse_model_state(text));
  if (const std::string difference = store::difference(state.spec, spec); !difference.empty())
    return fail(Errc::kMismatch, "model \"" + spec.name + "\" exists: " + difference);
  if (!state.created) {
    SLUICE_RETURN_IF_ERROR(open_model(spec.name));
    return false;
  }
  Model model = make_model(std::move(state));
  const std::lock_guard lock(pushes_.mutex);
  // After a lost answer to START_MODEL the model has started.
  const auto attempt = [&](const OpenModel& m) -> Result<bool> {
    if (m.started) return true;
    SLUICE_RETURN_IF_ERROR(upload(m, first, deadline));
    return true;
  };
  SLUICE_RETURN_IF_ERROR(with_retries<bool>(model, deadline, attempt));
  set_current(std::move(model));
  return true;
}

Result<bool> StoreClient::create(const std::string& specification, const void* const* tensors) {
  SLUICE_ASSIGN_OR_RETURN(spec, store::parse_model(specification));
  if (tensors != nullptr) SLUICE_RETURN_IF_ERROR(check_pointers(spec, tensors, "tensors"));
  FirstVersion first;
  first.body = [tensors](const ModelShape& shape, uint32_t shard,
                         size_t array) -> Result<MessageChannel::Fill> {
    if (tensors == nullptr || array != 0) return fill_zeros;
    return [tensors, &body = shape.bodies[shard]](uint64_t offset, std::span<std::byte> piece) {
      body.gather(tensors, DType::kF32, offset, piece);
      return Status();
    };
  };
  return create(spec, first);
}

Result<bool> StoreClient::restore(const std::string& specification, const std::string& path,
                                  store::SnapshotSource source) {
  SLUICE_ASSIGN_OR_RETURN(spec, store::parse_model(specification));
  SLUICE_ASSIGN_OR_RETURN(file, store::SnapshotFile::open(path, spec, source));
  FirstVersion first{.facts = file.facts(), .body = {}};
  // The state begins anew, so the rule must count its steps from there.
  if (!file.resumable()) first.facts.steps = 0;
  first.body = [&file](const ModelShape& shape, uint32_t shard,
                       size_t array) -> Result<MessageChannel::Fill> {
    if (array >= file.arrays()) return fill_zeros;
    const auto values = std::make_shared<std::vector<float>>(shape.layout.shard_elements());
    SLUICE_RETURN_IF_ERROR(file.read(shape.layout, shard, array, *values));
    return [values](uint64_t offset, std::span<std::byte> piece) {
      store::store_elements(DType::kF32,
                            std::span(*values).subspan(offset / sizeof(float), piece.size() / sizeof(float)),
                            piece.data());
      return Status();
    };
  };
  return create(spec, first);
}

Result<uint64_t> StoreClient::snapshot(const std::string& path, store::SnapshotContent content) {
  SLUICE_ASSIGN_OR_RETURN(model, current_model());
  const std::lock_guard lock(pulls_.mutex);
  const Nanos deadline = monotonic_now() + options_.timeout;
  const size_t arrays = content == store::SnapshotContent::kResumable ? arrays_of(*model) : 1;
  const uint64_t elements = model->shape->layout.shard_elements();
  std::vector<std::unique_ptr<float[]>> memory;
  std::vector<store::ConstShardArrays> shards(model->shards());
  for (store::ConstShardArrays& shard : shards) {
    memory.push_back(std::make_unique_for_overwrite<float[]>(arrays * elements));
    for (size_t array = 0; array < arrays; ++array) shard[array] = memory.back().get() + array * elements;
  }
  std::vector<uint64_t> steps(model->shards());
  const auto pull_shard = [&](const OpenModel& m, uint64_t version, uint32_t shard,
                              StoreConnection& owner) -> Result<void> {
    for (size_t array = 0; array < arrays; ++array) {
      const wire::Pull request{
          .model = m.id, .shard = shard, .version = version, .array = static_cast<uint8_t>(array)};
      float* const out = memory[shard].get() + array * elements;
      const auto use = [out](uint64_t offset, std::span<const std::byte> piece) {
        const std::span values(out + offset / sizeof(float), piece.size() / sizeof(float));
        return store::decode_body(DType::kF32, piece.data(), values);
      };
      SLUICE_ASSIGN_OR_RETURN(pulled, pull_array(owner, m, request, use));
      steps[shard] = pulled;
    }
    return {};
  };
  const auto attempt = [&](const OpenModel& m) -> Result<uint64_t> {
    SLUICE_ASSIGN_OR_RETURN(current, pulls_.wait_version(m, 0, deadline));
    const auto task = [&](uint32_t shard, StoreConnection& owner) {
      return pull_shard(m, current, shard, owner);
    };
    SLUICE_RETURN_IF_ERROR(pulls_.run(m, deadline, task));
    return current;
  };
  SLUICE_ASSIGN_OR_RETURN(version, with_retries<uint64_t>(model, deadline, attempt));
  for (const uint64_t s : steps) {
    if (s != steps.front()) return fail(Errc::kBadField, "the owners disagree on the steps of a version");
  }
  SLUICE_RETURN_IF_ERROR(store::write_snapshot(path, model->shape->spec, model->shape->layout,
                                               {.version = version, .steps = steps.front()}, shards,
                                               content));
  return version;
}

}  // namespace sluice::store_client
