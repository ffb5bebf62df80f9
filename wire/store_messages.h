// Messages of models (protocol.md section 16). A client or another reducer sends a request on a connection
// with purpose kStore and gets one answer, FAILED if the request cannot be executed. Where a message has
// `bytes`, that many bytes follow it in MODEL_DATA frames.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"
#include "wire/dtype.h"
#include "wire/frame.h"
#include "wire/message_limits.h"

namespace sluice::wire {

inline constexpr size_t kMaxModelNameText = 64;
// Payload of every MODEL_DATA but a body's last: whole values, and whole blocks. Small, because a step uses
// the values of a frame as soon as it is there.
inline constexpr size_t kModelDataBytes = 496 * size_of(DType::kMxfp8);

// The request after HELLO; WELCOME has feature bit 11. READY gives the connection to the models.
struct StoreRequest {
  static constexpr FrameType kType = FrameType::kStore;
  static constexpr bool kMayGrow = true;
  Mac mac{};
  static void visit(auto& m, auto& v) { v(m.mac); }
};
struct StoreReady {
  static constexpr FrameType kType = FrameType::kStoreReady;
  static constexpr bool kMayGrow = true;
  uint64_t store = 0;  // id of the state folder, which outlives the process
  static void visit(auto& m, auto& v) { v(m.store); }
};

// kOpen: the answer describes the model `name`. kCreate: the body is its specification. kDelete: removes it.
// kList: the answer has the names of all models.
enum class ModelQueryKind : uint8_t { kOpen = 0, kCreate = 1, kDelete = 2, kList = 3 };
struct ModelQuery {
  static constexpr FrameType kType = FrameType::kModelQuery;
  static constexpr bool kMayGrow = true;
  ModelQueryKind kind = ModelQueryKind::kOpen;
  std::string name{};
  uint64_t bytes = 0;
  static void visit(auto& m, auto& v) { v(m.kind), v.text(m.name, kMaxModelNameText), v(m.bytes); }
};
// The body is JSON.
struct ModelAnswer {
  static constexpr FrameType kType = FrameType::kModelAnswer;
  static constexpr bool kMayGrow = true;
  uint64_t bytes = 0;
  static void visit(auto& m, auto& v) { v(m.bytes); }
};

// Stages a delta at the owner of one shard. Answer: DONE.
struct Push {
  static constexpr FrameType kType = FrameType::kPush;
  static constexpr bool kMayGrow = true;
  uint64_t model = 0;
  uint32_t shard = 0;
  uint64_t worker = 0;
  uint64_t number = 0;  // of this worker's push; increases
  uint64_t base = 0;    // the version that the worker started from
  DType dtype = DType::kF32;
  uint64_t bytes = 0;  // of the shard's values in this type
  static void visit(auto& m, auto& v) {
    v(m.model), v(m.shard), v(m.worker), v(m.number), v(m.base), v(m.dtype), v(m.bytes);
  }
};

// To the leader, when all owners have staged the delta, or before. Answered when a version contains it, when
// none will, or after the timeout (FAILED, kTimeout): the client asks again.
struct PushStep {
  static constexpr FrameType kType = FrameType::kPushStep;
  static constexpr bool kMayGrow = true;
  uint64_t model = 0;
  uint64_t worker = 0;
  uint64_t number = 0;
  uint64_t base = 0;
  uint32_t weight_bits = 0;  // of an f32: finite and above 0
  uint32_t timeout_ms = 0;
  uint8_t early = 0;  // sync: 1: the delta is on its way, and the step may begin with what has arrived
  static void visit(auto& m, auto& v) {
    v(m.model), v(m.worker), v(m.number), v(m.base), v(m.weight_bits), v(m.timeout_ms), v(m.early);
  }
};
enum class PushOutcome : uint8_t {
  kContained = 0,   // `version` or an earlier one contains it
  kSuperseded = 1,  // a version contains a later push of this worker
  kLate = 2,        // sync: its base is no longer the current version
  kStale = 3,       // bounded: its base is too old
  kFuture = 4,      // its base does not exist
  kNotStaged = 5,   // an owner has lost the delta: push again
};
inline constexpr std::array<std::string_view, 6> kPushOutcomeNames = {
    "contained", "superseded", "late", "stale", "future", "not_staged"};
struct PushAnswer {
  static constexpr FrameType kType = FrameType::kPushAnswer;
  static constexpr bool kMayGrow = true;
  PushOutcome outcome = PushOutcome::kContained;
  uint64_t version = 0;  // the current one
  static void visit(auto& m, auto& v) { v(m.outcome), v(m.version); }
};

// One array of one shard of one committed version. `array` 0 has the parameters, others the state of the
// rule. An early pull waits for a version that is not there yet, until the timeout (FAILED, kTimeout), and
// gets its values while they are computed. After the body comes DONE once the version is committed. If it is
// not, the owner closes the connection.
struct Pull {
  static constexpr FrameType kType = FrameType::kPull;
  static constexpr bool kMayGrow = true;
  uint64_t model = 0;
  uint32_t shard = 0;
  uint64_t version = 0;
  uint8_t array = 0;
  DType dtype = DType::kF32;
  uint8_t early = 0;  // 1: an early pull, of array 0
  uint32_t timeout_ms = 0;
  static void visit(auto& m, auto& v) {
    v(m.model), v(m.shard), v(m.version), v(m.array), v(m.dtype), v(m.early), v(m.timeout_ms);
  }
};
struct PullAnswer {
  static constexpr FrameType kType = FrameType::kPullAnswer;
  static constexpr bool kMayGrow = true;
  uint64_t steps = 0;
  uint64_t bytes = 0;
  static void visit(auto& m, auto& v) { v(m.steps), v(m.bytes); }
};

// To the leader: answered when the current version is at least `at_least`, or after the timeout with an
// earlier one.
struct Current {
  static constexpr FrameType kType = FrameType::kCurrent;
  static constexpr bool kMayGrow = true;
  uint64_t model = 0;
  uint64_t at_least = 0;
  uint32_t timeout_ms = 0;
  static void visit(auto& m, auto& v) { v(m.model), v(m.at_least), v(m.timeout_ms); }
};
struct CurrentAnswer {
  static constexpr FrameType kType = FrameType::kCurrentAnswer;
  static constexpr bool kMayGrow = true;
  uint8_t started = 0;  // 0: the creator has not uploaded the first version yet
  uint64_t version = 0;
  static void visit(auto& m, auto& v) { v(m.started), v(m.version); }
};

// Uploads one array of one shard of a model's first version; array_count() of them, in order. Answer: DONE.
struct Install {
  static constexpr FrameType kType = FrameType::kInstall;
  static constexpr bool kMayGrow = true;
  uint64_t model = 0;
  uint32_t shard = 0;
  uint64_t version = 0;
  uint64_t steps = 0;
  uint8_t array = 0;
  uint64_t bytes = 0;  // f32
  static void visit(auto& m, auto& v) {
    v(m.model), v(m.shard), v(m.version), v(m.steps), v(m.array), v(m.bytes);
  }
};
// To the leader: all shards have the first version. Answer: DONE.
struct StartModel {
  static constexpr FrameType kType = FrameType::kStartModel;
  static constexpr bool kMayGrow = true;
  uint64_t model = 0;
  uint64_t version = 0;
  static void visit(auto& m, auto& v) { v(m.model), v(m.version); }
};

// Leader to owner: compute and prepare a version. The body is, for each push in the order of workers:
// worker u64, number u64, weight f32, early u8. Answer: DONE once the copy has it too.
struct Step {
  static constexpr FrameType kType = FrameType::kStep;
  static constexpr bool kMayGrow = true;
  uint64_t model = 0;
  uint32_t shard = 0;
  uint64_t generation = 0;  // of the shard's owner, as the leader knows it
  uint64_t revision = 0;    // of the model's state, from which the leader makes the step
  uint64_t attempt = 0;     // of the leader at steps; increases
  uint64_t version = 0;
  uint64_t bytes = 0;
  static void visit(auto& m, auto& v) {
    v(m.model), v(m.shard), v(m.generation), v(m.revision), v(m.attempt), v(m.version), v(m.bytes);
  }
};
inline constexpr size_t kStepPushBytes = 21;

// Owner to copy: a prepared version, or one that is being computed. A body with, for each of `pushes`: worker
// u64, number u64; then one with all arrays as f32, kModelDataBytes of each in turn. Answer: DONE.
struct CopyVersion {
  static constexpr FrameType kType = FrameType::kCopyVersion;
  static constexpr bool kMayGrow = true;
  uint64_t model = 0;
  uint32_t shard = 0;
  uint64_t generation = 0;
  uint64_t version = 0;
  uint64_t steps = 0;
  uint8_t committed = 0;  // 1: a new copy gets a version that is committed already
  uint32_t pushes = 0;
  uint64_t bytes = 0;
  static void visit(auto& m, auto& v) {
    v(m.model), v(m.shard), v(m.generation), v(m.version), v(m.steps), v(m.committed), v(m.pushes),
        v(m.bytes);
  }
};

// Leader to owner: the version is the current one. Answer: DONE.
struct Committed {
  static constexpr FrameType kType = FrameType::kCommitted;
  static constexpr bool kMayGrow = true;
  uint64_t model = 0;
  uint32_t shard = 0;
  uint64_t version = 0;
  static void visit(auto& m, auto& v) { v(m.model), v(m.shard), v(m.version); }
};

struct Done {
  static constexpr FrameType kType = FrameType::kDone;
  static constexpr bool kMayGrow = true;
  static void visit(auto&, auto&) {}
};
// The request was not executed. The connection continues.
struct Failed {
  static constexpr FrameType kType = FrameType::kFailed;
  static constexpr bool kMayGrow = true;
  Errc code = Errc::kInternal;
  std::string text{};
  static void visit(auto& m, auto& v) { v(m.code), v.text(m.text, kMaxErrorText); }
};

}  // namespace sluice::wire
