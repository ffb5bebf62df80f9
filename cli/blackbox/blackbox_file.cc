#include "cli/blackbox/blackbox_file.h"

#include <charconv>
#include <optional>
#include <utility>

#include "blackbox/dump_file.h"
#include "blackbox/event_kinds.h"
#include "config/file_contents.h"
#include "config/json.h"
#include "config/printable_text.h"

namespace sluice::cli {
namespace {

using blackbox::Event;
using blackbox::EventKindInfo;
using blackbox::PeerKind;
using blackbox::Role;
using Json = nlohmann::json;

// A process writes less: 6144 records, whose texts have up to 192 bytes.
constexpr size_t kMaxLineValues = 4096;
constexpr size_t kMostBytes = 16 * kMiB;
constexpr uint64_t kMostTime = uint64_t{1} << 62;  // differences of times do not overflow

std::optional<uint64_t> number_of(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

std::string text_of(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return {};
  return config::printable(found->get_ref<const std::string&>(), 256);
}

// 16 hexadecimal digits.
std::optional<uint64_t> id_of(const Json& object, std::string_view key) {
  const std::string text = text_of(object, key);
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id, 16);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return id;
}

std::optional<Nanos> time_of(const Json& object, std::string_view key) {
  const auto value = number_of(object, key);
  if (!value || *value > kMostTime) return std::nullopt;
  return static_cast<Nanos>(*value);
}

Errc code_of(const Json& object) {
  const std::string name = text_of(object, "code");
  if (name.empty()) return Errc::kOk;
  for (uint16_t number = 0; number < 256; ++number) {
    const auto code = static_cast<Errc>(number);
    if (is_known(code) && to_string(code) == name) return code;
  }
  return Errc::kInternal;  // of a newer version
}

uint64_t peer_of(const Json& object, PeerKind kind) {
  switch (kind) {
    case PeerKind::kRank: return number_of(object, "peer_rank").value_or(blackbox::kNoPeer);
    case PeerKind::kReducer: return id_of(object, "peer_reducer").value_or(blackbox::kNoPeer);
    case PeerKind::kCollective: return number_of(object, "collective").value_or(blackbox::kNoPeer);
    case PeerKind::kNone:
    case PeerKind::kOpposite: break;
  }
  return blackbox::kNoPeer;
}

RecordedEvent event_of(const Json& object, const EventKindInfo& info, Nanos at) {
  RecordedEvent out{.event = {.at = at, .kind = info.kind}, .text = text_of(object, "text")};
  Event& e = out.event;
  if (const auto rank = number_of(object, "rank")) {
    e.role = Role::kRank;
    e.source = *rank;
  } else if (const auto reducer = id_of(object, "reducer")) {
    e.role = Role::kReducer;
    e.source = *reducer;
  }
  e.session = id_of(object, "session").value_or(0);
  e.peer = peer_of(object, blackbox::peer_kind_of(info, e.role));
  if (!info.a.empty()) e.a = number_of(object, info.a).value_or(0);
  if (!info.b.empty()) e.b = number_of(object, info.b).value_or(0);
  e.code = code_of(object);
  return out;
}

// BlackboxParser reads the lines of one file.
class BlackboxParser {
 public:
  explicit BlackboxParser(const std::string& path) { out_.file = path; }

  Result<RecordedProcess> parse(std::string_view text) {
    if (text.empty()) return invalid(out_.file + ": the file is empty");
    while (!text.empty()) {
      ++line_;
      const size_t length = text.find('\n');
      const bool is_whole = length != text.npos;
      const std::string_view line = text.substr(0, length);
      text.remove_prefix(is_whole ? length + 1 : text.size());
      if (auto added = add_line(line, is_whole); !added) return tl::unexpected(added.error());
    }
    out_.is_truncated = !has_ended_;
    return std::move(out_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> garbage(const char* what) const {
    return invalid(out_.file + ":" + std::to_string(line_) + ": " + what);
  }

  Result<void> add_line(std::string_view line, bool is_whole) {
    const Json object = config::parse_limited_json(line, kMaxLineValues);
    if (line_ == 1) return object.is_object() ? add_header(object) : garbage("not a black box of Sluice");
    if (has_ended_) return garbage("text behind the end of the black box");
    if (!object.is_object()) return is_whole ? garbage("not an event of a black box") : Result<void>();
    if (object.contains("end_of_events")) {
      has_ended_ = true;
      return {};
    }
    const auto at = time_of(object, "at");
    const std::string name = text_of(object, "event");
    if (!at || name.empty()) return garbage("not an event of a black box");
    if (const EventKindInfo* const info = blackbox::find_event_kind(name)) {
      out_.events.push_back(event_of(object, *info, *at));
    } else {
      ++out_.unknown;
    }
    return {};
  }

  Result<void> add_header(const Json& object) {
    const auto version = number_of(object, "sluice_blackbox");
    const auto monotonic = time_of(object, "monotonic");
    const auto wall = time_of(object, "wall");
    if (!version) return garbage("not a black box of Sluice");
    if (*version != blackbox::kDumpVersion) {
      return invalid(out_.file + ": the black box has format " + std::to_string(*version) +
                     "; this program reads format " + std::to_string(blackbox::kDumpVersion));
    }
    if (!monotonic || !wall) return garbage("the header has no times");
    out_.program = text_of(object, "program");
    out_.version = text_of(object, "version");
    out_.host = text_of(object, "host");
    out_.boot = text_of(object, "boot");
    out_.why = text_of(object, "why");
    out_.pid = number_of(object, "pid").value_or(0);
    out_.monotonic = *monotonic;
    out_.wall = *wall;
    out_.events_replaced = number_of(object, "events_replaced").value_or(0);
    out_.frequent_replaced = number_of(object, "frequent_replaced").value_or(0);
    out_.dropped = number_of(object, "dropped").value_or(0);
    return {};
  }

  RecordedProcess out_;
  size_t line_ = 0;
  bool has_ended_ = false;
};

}  // namespace

Result<RecordedProcess> parse_blackbox(std::string_view text, const std::string& path) {
  return BlackboxParser(path).parse(text);
}

Result<RecordedProcess> read_blackbox(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(text,
                          config::read_text_file(path, kMostBytes, config::FileKind::kAny, "the black box"));
  return parse_blackbox(text, path);
}

}  // namespace sluice::cli
