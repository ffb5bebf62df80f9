#include "config/discovery/srv_message.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "config/plain_text.h"

namespace sluice::config::discovery {
namespace {

constexpr size_t kHeader = 12;
constexpr size_t kMaxName = 253;
constexpr size_t kMaxLabel = 63;
constexpr uint16_t kSrv = 33, kOpt = 41, kInternet = 1;
constexpr uint16_t kIsReply = 0x8000, kIsCut = 0x0200, kRecurse = 0x0100;
constexpr uint8_t kNoError = 0, kNoSuchName = 3;

void put16(DnsBytes& out, uint16_t v) {
  out.push_back(static_cast<uint8_t>(v >> 8));
  out.push_back(static_cast<uint8_t>(v & 0xff));
}

tl::unexpected<Error> malformed() {
  return fail(Errc::kBadField, "a malformed answer of the DNS");
}

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::optional<uint16_t> u16() {
    if (bytes_.size() - at_ < 2) return std::nullopt;
    const auto v = static_cast<uint16_t>(bytes_[at_] << 8 | bytes_[at_ + 1]);
    at_ += 2;
    return v;
  }
  [[nodiscard]] bool skip(size_t n) {
    if (bytes_.size() - at_ < n) return false;
    at_ += n;
    return true;
  }
  // Follows pointers, each of which must point to before where the name's last piece began: so it ends.
  [[nodiscard]] std::optional<std::string> name() {
    std::string out;
    size_t at = at_, earliest = at_;
    bool jumped = false;
    for (;;) {
      if (at >= bytes_.size()) return std::nullopt;
      const uint8_t length = bytes_[at];
      if ((length & 0xc0) == 0xc0) {
        if (at + 1 >= bytes_.size()) return std::nullopt;
        const size_t to = static_cast<size_t>(length & 0x3f) << 8 | bytes_[at + 1];
        if (!jumped) at_ = at + 2;
        jumped = true;
        if (to >= earliest) return std::nullopt;
        at = earliest = to;
        continue;
      }
      if (length > kMaxLabel || bytes_.size() - at - 1 < length) return std::nullopt;
      if (length == 0) break;
      if (!out.empty()) out += '.';
      out.append(bytes_.begin() + static_cast<std::ptrdiff_t>(at + 1),
                 bytes_.begin() + static_cast<std::ptrdiff_t>(at + 1 + length));
      if (out.size() > kMaxName) return std::nullopt;
      at += 1u + length;
    }
    if (!jumped) at_ = at + 1;
    return out;
  }
  [[nodiscard]] size_t at() const noexcept { return at_; }
  void go_to(size_t at) noexcept { at_ = at; }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

}  // namespace

Result<DnsBytes> srv_query(const std::string& name, uint16_t id) {
  const auto bad = [&] {
    return fail(Errc::kInvalidArgument, "\"" + plain(name) + "\" is no name of the DNS");
  };
  if (name.empty() || name.size() > kMaxName) return bad();
  DnsBytes out;
  put16(out, id);
  put16(out, kRecurse);
  put16(out, 1);  // questions
  put16(out, 0);
  put16(out, 0);
  put16(out, 1);  // additional: OPT
  for (std::string_view rest = name;;) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    if (dot == 0 || dot > kMaxLabel) return bad();
    out.push_back(static_cast<uint8_t>(dot));
    out.insert(out.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(dot));
    if (dot == rest.size()) break;
    rest.remove_prefix(dot + 1);
  }
  out.push_back(0);
  put16(out, kSrv);
  put16(out, kInternet);
  out.push_back(0);  // OPT, of the root
  put16(out, kOpt);
  put16(out, kUdpPayload);
  put16(out, 0);
  put16(out, 0);
  put16(out, 0);
  return out;
}

Result<SrvReply> read_srv_reply(std::span<const uint8_t> bytes, uint16_t id) {
  if (bytes.size() < kHeader) return malformed();
  Reader in(bytes);
  const uint16_t said = *in.u16(), flags = *in.u16(), questions = *in.u16(), answers = *in.u16();
  if (said != id || (flags & kIsReply) == 0) return fail(Errc::kBadField, "no answer to this query");
  in.go_to(kHeader);
  SrvReply reply;
  reply.code = static_cast<uint8_t>(flags & 0x0f);
  if (reply.code != kNoError) {
    reply.kind = reply.code == kNoSuchName ? SrvReply::Kind::kNothing : SrvReply::Kind::kRefused;
    return reply;
  }
  if ((flags & kIsCut) != 0) {
    reply.kind = SrvReply::Kind::kCut;
    return reply;
  }
  for (uint16_t i = 0; i < questions; ++i) {
    if (!in.name() || !in.skip(4)) return malformed();
  }
  for (uint16_t i = 0; i < answers; ++i) {
    if (!in.name()) return malformed();
    const auto type = in.u16();
    if (!type || !in.skip(6)) return malformed();  // class, time to live
    const auto length = in.u16();
    const size_t begin = in.at();
    if (!length || !in.skip(*length)) return malformed();
    if (*type != kSrv) continue;
    in.go_to(begin);
    if (!in.skip(4)) return malformed();  // priority, weight: of a service's pods all the same
    const auto port = in.u16();
    auto target = in.name();
    if (!port || !target || in.at() != begin + *length) return malformed();
    in.go_to(begin + *length);
    reply.records.push_back({.target = std::move(*target), .port = *port});
  }
  if (!reply.records.empty()) reply.kind = SrvReply::Kind::kRecords;
  return reply;
}

}  // namespace sluice::config::discovery
