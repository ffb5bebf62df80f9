#include "store/model/model_spec.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <utility>

#include "config/printable_text.h"
#include "config/sizes.h"

namespace sluice::store {
namespace {

constexpr std::array<std::string_view, kStepKindCount> kStepNames = {"sync", "async", "bounded"};
constexpr std::array<std::string_view, kStalePushCount> kStaleNames = {"refuse", "scale"};

template <typename Enum, size_t n>
std::optional<Enum> parse_name(const std::array<std::string_view, n>& names, std::string_view name) noexcept {
  for (size_t i = 0; i < n; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

std::string tensor_field(size_t index, std::string_view field) {
  return "tensors[" + std::to_string(index) + "]." + std::string(field);
}

tl::unexpected<Error> wrong(const std::string& field, const std::string& value, const std::string& expected) {
  return invalid(field + " is " + value + "; expected " + expected);
}

Result<void> check_range(const std::string& field, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return {};
  return wrong(field, std::to_string(value), std::to_string(least) + " to " + std::to_string(most));
}

// Names are parts of file names and of keys of the coordinator.
bool is_model_name(std::string_view name) noexcept {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= kMaxModelName && name.front() != '.' && name.front() != '-' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

bool is_tensor_name(std::string_view name) noexcept {
  const auto allowed = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  return !name.empty() && name.size() <= kMaxTensorName && std::ranges::all_of(name, allowed) &&
         !name.starts_with("sluice.") && name != "__metadata__";
}

Result<void> check_shape(const TensorSpec& tensor, size_t index, uint64_t& total) {
  const std::string field = tensor_field(index, "shape");
  if (tensor.shape.size() > kMaxDimensions) {
    return wrong(field, shape_text(tensor.shape),
                 "at most " + std::to_string(kMaxDimensions) + " dimensions");
  }
  uint64_t elements = 1;
  for (const uint64_t size : tensor.shape) {
    if (size == 0) return wrong(field, shape_text(tensor.shape), "dimensions of 1 and more");
    if (size > (kMaxElements - total) / elements) {
      return wrong(field, shape_text(tensor.shape),
                   "at most " + std::to_string(kMaxElements) + " elements in all tensors, " +
                       std::to_string(total) + " of them before this tensor");
    }
    elements *= size;
  }
  if (elements > kMaxElements - total) {  // a scalar
    return wrong(field, "[]", "at most " + std::to_string(kMaxElements) + " elements in all tensors");
  }
  total += elements;
  return {};
}

Result<void> check_tensors(const std::vector<TensorSpec>& tensors) {
  SLUICE_RETURN_IF_ERROR(check_range("the number of tensors", tensors.size(), 1, kMaxTensors));
  std::unordered_map<std::string_view, size_t> names;
  uint64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& tensor = tensors[i];
    if (!is_tensor_name(tensor.name)) {
      return wrong(tensor_field(i, "name"), config::in_quotes(tensor.name),
                   "1 to " + std::to_string(kMaxTensorName) +
                       " printable ASCII characters without \" and \\, not \"__metadata__\", and no prefix "
                       "\"sluice.\"");
    }
    if (const auto [first, added] = names.try_emplace(tensor.name, i); !added) {
      return wrong(tensor_field(i, "name"), config::in_quotes(tensor.name),
                   "another name than that of tensors[" + std::to_string(first->second) + "]");
    }
    if (tensor.dtype != wire::DType::kF32 && tensor.dtype != wire::DType::kF16 &&
        tensor.dtype != wire::DType::kBf16) {
      return wrong(tensor_field(i, "dtype"), config::in_quotes(to_string(tensor.dtype)), "f32, f16 or bf16");
    }
    SLUICE_RETURN_IF_ERROR(check_shape(tensor, i, total));
  }
  return {};
}

Result<void> check_mode(const StepMode& mode) {
  switch (mode.kind) {
    case StepKind::kSync:
      SLUICE_RETURN_IF_ERROR(check_range("mode.quorum", mode.quorum, 1, kMaxQuorum));
      return check_range("mode.grace_ms", mode.grace_ms, 0, kMaxGraceMs);
    case StepKind::kAsync: return {};
    case StepKind::kBounded:
      SLUICE_RETURN_IF_ERROR(check_range("mode.staleness", mode.staleness, 0, kMaxStaleness));
      return check_range("mode.stale", static_cast<uint64_t>(mode.stale), 0, kStalePushCount - 1);
  }
  return check_range("mode.kind", static_cast<uint64_t>(mode.kind), 0, kStepKindCount - 1);
}

Result<void> check_rule(const UpdateRule& rule) {
  SLUICE_RETURN_IF_ERROR(check_range("rule.kind", static_cast<uint64_t>(rule.kind), 0, kRuleKindCount - 1));
  for (const RuleField& field : kRuleFields) {
    const double value = rule.*field.value;
    // False for NaN, too.
    if (!field.used_by(rule.kind) || (value >= field.least && value <= field.most)) continue;
    return wrong("rule." + std::string(field.name), config::number_text(value),
                 config::number_text(field.least) + " to " + config::number_text(field.most));
  }
  return {};
}

// All fields in a fixed order, as (name, value). The texts are the input of fingerprint().
std::vector<std::pair<std::string, std::string>> fields_of(const ModelSpec& spec) {
  std::vector<std::pair<std::string, std::string>> fields;
  fields.emplace_back("name", '"' + spec.name + '"');
  fields.emplace_back("mode.kind", to_string(spec.mode.kind));
  if (spec.mode.kind == StepKind::kSync) {
    fields.emplace_back("mode.quorum", std::to_string(spec.mode.quorum));
    fields.emplace_back("mode.grace_ms", std::to_string(spec.mode.grace_ms));
  } else if (spec.mode.kind == StepKind::kBounded) {
    fields.emplace_back("mode.staleness", std::to_string(spec.mode.staleness));
    fields.emplace_back("mode.stale", to_string(spec.mode.stale));
  }
  fields.emplace_back("rule.kind", to_string(spec.rule.kind));
  for (const RuleField& field : kRuleFields) {
    if (field.used_by(spec.rule.kind))
      fields.emplace_back("rule." + std::string(field.name), config::number_text(spec.rule.*field.value));
  }
  fields.emplace_back("versions", std::to_string(spec.versions));
  fields.emplace_back("the number of tensors", std::to_string(spec.tensors.size()));
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    const TensorSpec& t = spec.tensors[i];
    fields.emplace_back("tensors[" + std::to_string(i) + "]",
                        '"' + t.name + "\" " + std::string(to_string(t.dtype)) + ' ' + shape_text(t.shape));
  }
  return fields;
}

}  // namespace

uint64_t TensorSpec::elements() const noexcept {
  uint64_t n = 1;
  for (const uint64_t size : shape) n *= size;
  return n;
}

uint64_t ModelSpec::elements() const noexcept {
  uint64_t n = 0;
  for (const TensorSpec& tensor : tensors) n += tensor.elements();
  return n;
}

Result<void> validate(const ModelSpec& spec) {
  if (!is_model_name(spec.name)) {
    return wrong("name", config::in_quotes(spec.name),
                 "1 to " + std::to_string(kMaxModelName) +
                     " letters, digits and characters of \"._-\", beginning with a letter, digit or \"_\"");
  }
  SLUICE_RETURN_IF_ERROR(check_mode(spec.mode));
  SLUICE_RETURN_IF_ERROR(check_rule(spec.rule));
  SLUICE_RETURN_IF_ERROR(check_range("versions", spec.versions, kMinVersions, kMaxVersions));
  return check_tensors(spec.tensors);
}

std::string difference(const ModelSpec& existing, const ModelSpec& requested) {
  const auto left = fields_of(existing);
  const auto right = fields_of(requested);
  // The lists have different lengths only after a field with different values.
  const auto [a, b] = std::ranges::mismatch(left, right);
  if (a == left.end() || b == right.end()) return "";
  return a->first + " is " + a->second + " in the existing model, and " + b->second + " in the request";
}

wire::Digest fingerprint(const ModelSpec& spec) {
  std::string text = "sluice model 1\n";
  for (const auto& [name, value] : fields_of(spec)) ((((text += name) += '=') += value) += '\n');
  return wire::sha256(std::as_bytes(std::span(text)));
}

std::string_view to_string(StepKind kind) noexcept {
  const auto index = static_cast<size_t>(kind);
  return index < kStepNames.size() ? kStepNames[index] : "unknown";
}
std::string_view to_string(StalePush policy) noexcept {
  const auto index = static_cast<size_t>(policy);
  return index < kStaleNames.size() ? kStaleNames[index] : "unknown";
}
std::optional<StepKind> parse_step_kind(std::string_view name) noexcept {
  return parse_name<StepKind>(kStepNames, name);
}
std::optional<StalePush> parse_stale_push(std::string_view name) noexcept {
  return parse_name<StalePush>(kStaleNames, name);
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (const uint64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

}  // namespace sluice::store
