#include "store/model/model_json.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "config/json.h"
#include "config/printable_text.h"

namespace sluice::store {
namespace {

using Json = nlohmann::json;

std::string shown(const Json& value) {
  // Replaces invalid UTF-8 instead of throwing.
  return config::printable(config::json_text(value), 80);
}

// Reads the fields of one object, and keeps the first error.
class ObjectReader {
 public:
  // `path` is the object's name with a final dot, or empty for the outermost object.
  ObjectReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) {
      const std::string name = path_.empty() ? "the model" : path_.substr(0, path_.size() - 1);
      set_error(name + " is " + shown(object) + "; expected an object");
    }
  }

  const Json* find(const char* name, const std::string& expected) {
    names_.emplace_back(name);
    if (error_) return nullptr;
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    set_error(path_ + name + " is missing; expected " + expected);
    return nullptr;
  }

  template <typename Int>
  void read(const char* name, Int& value) {
    constexpr auto kMost = std::numeric_limits<Int>::max();
    const std::string expected = "an integer from 0 to " + std::to_string(kMost);
    const Json* field = find(name, expected);
    if (field == nullptr) return;
    if (!field->is_number_unsigned() || field->get<uint64_t>() > kMost) return wrong(name, *field, expected);
    value = field->get<Int>();
  }
  void read_number(const std::string& name, double& value) {
    const Json* field = find(name.c_str(), "a number");
    if (field == nullptr) return;
    if (!field->is_number()) return wrong(name, *field, "a number");
    value = field->get<double>();
  }
  void read_text(const char* name, std::string& value) {
    const Json* field = find(name, "a text");
    if (field == nullptr) return;
    if (!field->is_string()) return wrong(name, *field, "a text");
    value = field->get<std::string>();
  }
  template <typename Parse, typename Enum>
  void read_name(const char* name, Parse parse, Enum& value, const std::string& expected) {
    const Json* field = find(name, expected);
    if (field == nullptr) return;
    const auto parsed = field->is_string() ? parse(field->get_ref<const std::string&>()) : std::nullopt;
    if (!parsed) return wrong(name, *field, expected);
    value = *parsed;
  }

  void wrong(const std::string& name, const Json& value, const std::string& expected) {
    set_error(path_ + name + " is " + shown(value) + "; expected " + expected);
  }

  // Call it after the last field.
  [[nodiscard]] Result<void> finish() {
    if (error_) return tl::unexpected(*error_);
    for (const auto& [name, value] : object_.items()) {
      if (std::ranges::find(names_, name) != names_.end()) continue;
      std::string expected;
      for (const std::string& known : names_) expected += (expected.empty() ? "" : ", ") + known;
      return invalid(path_ + config::printable(name, 40) + " is unknown; expected " + expected);
    }
    return {};
  }

 private:
  void set_error(std::string text) {
    if (!error_) error_ = Error{Errc::kInvalidArgument, std::move(text)};
  }

  const Json& object_;
  std::string path_;
  std::vector<std::string> names_;
  std::optional<Error> error_;
};

Result<void> read_mode(const Json& json, StepMode& mode) {
  ObjectReader reader(json, "mode.");
  reader.read_name("kind", parse_step_kind, mode.kind, "\"sync\", \"async\" or \"bounded\"");
  if (mode.kind == StepKind::kSync) {
    reader.read("quorum", mode.quorum);
    reader.read("grace_ms", mode.grace_ms);
  } else if (mode.kind == StepKind::kBounded) {
    reader.read("staleness", mode.staleness);
    reader.read_name("stale", parse_stale_push, mode.stale, "\"refuse\" or \"scale\"");
  }
  return reader.finish();
}

Result<void> read_rule(const Json& json, UpdateRule& rule) {
  ObjectReader reader(json, "rule.");
  reader.read_name("kind", parse_rule_kind, rule.kind, "\"add\", \"sgd\", \"nesterov\" or \"adamw\"");
  for (const RuleField& field : kRuleFields) {
    if (field.used_by(rule.kind)) reader.read_number(std::string(field.name), rule.*field.value);
  }
  return reader.finish();
}

// Only the three names that model_text() writes; not all that wire::parse_dtype accepts.
std::optional<wire::DType> parse_tensor_dtype(std::string_view name) noexcept {
  for (const wire::DType t : {wire::DType::kF32, wire::DType::kF16, wire::DType::kBf16}) {
    if (to_string(t) == name) return t;
  }
  return std::nullopt;
}

Result<void> read_tensor(const Json& json, size_t index, TensorSpec& tensor) {
  ObjectReader reader(json, "tensors[" + std::to_string(index) + "].");
  reader.read_text("name", tensor.name);
  reader.read_name("dtype", parse_tensor_dtype, tensor.dtype, "\"f32\", \"f16\" or \"bf16\"");
  const std::string expected = "a list of at most " + std::to_string(kMaxDimensions) + " positive integers";
  if (const Json* shape = reader.find("shape", expected)) {
    const auto is_size = [](const Json& size) { return size.is_number_unsigned(); };
    if (!shape->is_array() || shape->size() > kMaxDimensions || !std::ranges::all_of(*shape, is_size)) {
      reader.wrong("shape", *shape, expected);
    } else {
      tensor.shape = shape->get<std::vector<uint64_t>>();
    }
  }
  return reader.finish();
}

}  // namespace

Result<ModelSpec> parse_model(std::string_view text) {
  if (text.size() > kMaxModelText) {
    return invalid("the model has " + std::to_string(text.size()) + " bytes of JSON; expected at most " +
                   std::to_string(kMaxModelText));
  }
  if (const std::string excess = config::json_excess(text, kMaxModelValues); !excess.empty())
    return invalid("the model " + excess);
  const Json json = config::parse_json(text);
  if (json.is_discarded()) return invalid("the model is not valid JSON: " + config::in_quotes(text));
  ModelSpec spec;
  ObjectReader reader(json, "");
  reader.read_text("name", spec.name);
  reader.read("versions", spec.versions);
  const Json* const mode = reader.find("mode", "an object");
  const Json* const rule = reader.find("rule", "an object");
  const Json* const tensors = reader.find("tensors", "a list");
  if (tensors != nullptr && (!tensors->is_array() || tensors->size() > kMaxTensors))
    reader.wrong("tensors", *tensors, "a list of at most " + std::to_string(kMaxTensors) + " tensors");
  SLUICE_RETURN_IF_ERROR(reader.finish());
  SLUICE_RETURN_IF_ERROR(read_mode(*mode, spec.mode));
  SLUICE_RETURN_IF_ERROR(read_rule(*rule, spec.rule));
  spec.tensors.resize(tensors->size());
  for (size_t i = 0; i < spec.tensors.size(); ++i)
    SLUICE_RETURN_IF_ERROR(read_tensor((*tensors)[i], i, spec.tensors[i]));
  SLUICE_RETURN_IF_ERROR(validate(spec));
  return spec;
}

std::string model_text(const ModelSpec& spec) {
  Json mode = {{"kind", to_string(spec.mode.kind)}};
  if (spec.mode.kind == StepKind::kSync) {
    mode["quorum"] = spec.mode.quorum;
    mode["grace_ms"] = spec.mode.grace_ms;
  } else if (spec.mode.kind == StepKind::kBounded) {
    mode["staleness"] = spec.mode.staleness;
    mode["stale"] = to_string(spec.mode.stale);
  }
  Json rule = {{"kind", to_string(spec.rule.kind)}};
  for (const RuleField& field : kRuleFields) {
    if (field.used_by(spec.rule.kind)) rule[std::string(field.name)] = spec.rule.*field.value;
  }
  Json tensors = Json::array();
  for (const TensorSpec& t : spec.tensors)
    tensors.push_back({{"name", t.name}, {"dtype", to_string(t.dtype)}, {"shape", t.shape}});
  const Json json = {{"name", spec.name},
                     {"versions", spec.versions},
                     {"mode", std::move(mode)},
                     {"rule", std::move(rule)},
                     {"tensors", std::move(tensors)}};
  return config::json_text(json);
}

}  // namespace sluice::store
