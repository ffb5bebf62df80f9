#include "blackbox/dump_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "blackbox/event_kinds.h"
#include "core/clock.h"

#ifndef SLUICE_VERSION
#error "SLUICE_VERSION is defined by the build"
#endif

namespace sluice::blackbox {
namespace {

constexpr uint64_t kNoRank = 0xffffffff;  // wire::kNoRank
constexpr size_t kMostSessions = 16;      // in the header

// LineWriter formats lines of JSON into a buffer of its own and writes the buffer when it is full.
class LineWriter {
 public:
  explicit LineWriter(int fd) noexcept : fd_(fd) {}
  LineWriter(const LineWriter&) = delete;

  // Starts a field: a comma, except in front of the first field of a line, and the key.
  LineWriter& key(std::string_view name) noexcept {
    put(is_first_ ? '{' : ',');
    is_first_ = false;
    put('"');
    append(name);
    append("\":");
    return *this;
  }
  void end_line() noexcept {
    append("}\n");
    is_first_ = true;
  }
  void field(std::string_view name, uint64_t value) noexcept {
    key(name);
    number(value);
  }
  void field(std::string_view name, std::string_view value) noexcept {
    key(name);
    text(value);
  }
  void id_field(std::string_view name, uint64_t value) noexcept {
    key(name);
    id(value);
  }
  void number(uint64_t value) noexcept {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    append({digits.data(), static_cast<size_t>(end - digits.data())});
  }
  // 16 hexadecimal digits, quoted: a reader of JSON may hold numbers as doubles.
  void id(uint64_t value) noexcept {
    put('"');
    for (int shift = 60; shift >= 0; shift -= 4) put("0123456789abcdef"[value >> shift & 15]);
    put('"');
  }
  // Texts may come from a peer: everything but printable ASCII is escaped.
  void text(std::string_view value) noexcept {
    put('"');
    for (const char c : value) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') put('\\');
      if (c >= ' ' && c <= '~') {
        put(c);
      } else {
        append("\\u00");
        put("0123456789abcdef"[byte >> 4]);
        put("0123456789abcdef"[byte & 15]);
      }
    }
    put('"');
  }
  void append(std::string_view characters) noexcept {
    for (const char c : characters) put(c);
  }
  void put(char c) noexcept {
    if (used_ == buffer_.size()) flush();
    buffer_[used_++] = c;
  }
  void flush() noexcept {
    for (size_t done = 0; done < used_ && error_ == 0;) {
      const ssize_t n = ::write(fd_, buffer_.data() + done, used_ - done);
      if (n > 0) {
        done += static_cast<size_t>(n);
      } else if (n == 0 || errno != EINTR) {
        error_ = n == 0 ? ENOSPC : errno;
      }
    }
    used_ = 0;
  }
  [[nodiscard]] int error() const noexcept { return error_; }  // errno of the first failed write

 private:
  const int fd_;
  int error_ = 0;
  bool is_first_ = true;
  size_t used_ = 0;
  std::array<char, 16384> buffer_;
};

// RingReader reads the records of a ring in their order and skips those that are gone.
template <typename Record, size_t kCapacity>
class RingReader {
 public:
  explicit RingReader(const EventRing<Record, kCapacity>& ring) noexcept
      : ring_(ring), next_(ring.begin()), end_(ring.end()) {
    advance();
  }
  [[nodiscard]] bool has_record() const noexcept { return has_record_; }
  [[nodiscard]] const Record& record() const noexcept { return record_; }
  void advance() noexcept {
    for (has_record_ = false; next_ != end_ && !has_record_;) has_record_ = ring_.read(next_++, record_);
  }

 private:
  const EventRing<Record, kCapacity>& ring_;
  uint64_t next_;
  const uint64_t end_;
  bool has_record_ = false;
  Record record_{};
};

// Calls visit(event, text) for each record in the order of time.
template <typename Visit>
void visit_records(const ProcessRings& rings, Visit visit) noexcept {
  RingReader events(rings.events);
  RingReader frequent(rings.frequent);
  while (events.has_record() || frequent.has_record()) {
    const bool takes_frequent =
        !events.has_record() || (frequent.has_record() && frequent.record().at < events.record().event.at);
    if (takes_frequent) {
      visit(frequent.record(), std::string_view());
      frequent.advance();
    } else {
      const TextEvent& record = events.record();
      visit(record.event, {record.text.data(), ::strnlen(record.text.data(), record.text.size())});
      events.advance();
    }
  }
}

void write_peer(LineWriter& out, PeerKind kind, uint64_t peer) noexcept {
  if (peer == kNoPeer) return;
  if (kind == PeerKind::kRank && peer < kNoRank) out.field("peer_rank", peer);
  if (kind == PeerKind::kReducer) out.id_field("peer_reducer", peer);
  if (kind == PeerKind::kCollective) out.field("collective", peer);
}

void write_event(LineWriter& out, const Event& e, std::string_view text) noexcept {
  const EventKindInfo* const info = find_event_kind(e.kind);
  if (info == nullptr) return;
  out.field("at", static_cast<uint64_t>(e.at));
  out.field("event", info->name);
  if (e.role == Role::kRank) out.field("rank", e.source);
  if (e.role == Role::kReducer) out.id_field("reducer", e.source);
  if (e.session != 0) out.id_field("session", e.session);
  write_peer(out, peer_kind_of(*info, e.role), e.peer);
  if (!info->a.empty()) out.field(info->a, e.a);
  if (!info->b.empty()) out.field(info->b, e.b);
  if (e.code != Errc::kOk) out.field("code", to_string(e.code));
  if (!text.empty()) out.field("text", text);
  out.end_line();
}

void write_sessions(LineWriter& out, const ProcessRings& rings) noexcept {
  std::array<uint64_t, kMostSessions> sessions{};
  size_t count = 0;
  visit_records(rings, [&](const Event& e, std::string_view) {
    const auto end = sessions.begin() + static_cast<ptrdiff_t>(count);
    if (e.session != 0 && count < sessions.size() && std::find(sessions.begin(), end, e.session) == end)
      sessions[count++] = e.session;
  });
  out.key("sessions");
  out.put('[');
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out.put(',');
    out.id(sessions[i]);
  }
  out.put(']');
}

// Equal for processes with one CLOCK_MONOTONIC. Empty if the system does not tell it.
std::string_view read_boot_id(std::array<char, 64>& buffer) noexcept {
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  ::close(fd);
  const std::string_view text(buffer.data(), n > 0 ? static_cast<size_t>(n) : 0);
  return text.substr(0, text.find('\n'));
}

void write_header(LineWriter& out, const DumpHeader& header, const ProcessRings& rings) noexcept {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::array<char, 64> boot_id{};
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  const Nanos monotonic = monotonic_now();
  out.field("sluice_blackbox", kDumpVersion);
  out.field("program", header.program);
  out.field("version", SLUICE_VERSION);
  out.field("host", host.data());
  out.field("pid", static_cast<uint64_t>(::getpid()));
  out.field("boot", read_boot_id(boot_id));
  out.field("monotonic", static_cast<uint64_t>(monotonic));
  out.field("wall", static_cast<uint64_t>(wall.tv_sec) * kSecond + static_cast<uint64_t>(wall.tv_nsec));
  out.field("why", header.why);
  write_sessions(out, rings);
  out.field("events_replaced", rings.events.replaced());
  out.field("frequent_replaced", rings.frequent.replaced());
  out.field("dropped", rings.events.dropped() + rings.frequent.dropped());
  out.end_line();
}

int write_lines(int fd, const DumpHeader& header, const ProcessRings& rings) noexcept {
  LineWriter out(fd);
  write_header(out, header, rings);
  uint64_t count = 0;
  visit_records(rings, [&](const Event& e, std::string_view text) {
    write_event(out, e, text);
    ++count;
  });
  out.field("end_of_events", count);
  out.end_line();
  out.flush();
  return out.error();
}

}  // namespace

const char* write_dump(const char* path, const DumpHeader& header, const ProcessRings& rings) noexcept {
  struct stat existing {};
  // A rename would replace a device or a link.
  if (::lstat(path, &existing) == 0 && !S_ISREG(existing.st_mode)) return "not a regular file";
  std::array<char, PATH_MAX> temporary{};
  const int length = std::snprintf(temporary.data(), temporary.size(), "%s.%d.tmp", path, ::getpid());
  if (length < 0 || static_cast<size_t>(length) >= temporary.size()) return std::strerror(ENAMETOOLONG);
  const auto open_new = [&] {
    return ::open(temporary.data(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  };
  int fd = open_new();
  if (fd < 0 && errno == EEXIST) {  // left by a process that was killed while it wrote
    ::unlink(temporary.data());
    fd = open_new();
  }
  if (fd < 0) return std::strerror(errno);
  int error = write_lines(fd, header, rings);
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.data(), path) != 0) error = errno;
  if (error == 0) return nullptr;
  ::unlink(temporary.data());
  return std::strerror(error);
}

}  // namespace sluice::blackbox
