#include "config/pool.h"

#include <sys/stat.h>

#include <utility>

#include "config/file_contents.h"

namespace sluice::config {
namespace {

constexpr std::string_view kLineSpaces = " \t\r\v\f";

// Removes the slot counts that an MPI hostfile has after a host.
std::string_view without_slots(std::string_view line) {
  for (;;) {
    const size_t end = line.find_last_not_of(kLineSpaces);
    line = line.substr(0, end == line.npos ? 0 : end + 1);
    const size_t space = line.find_last_of(kLineSpaces);
    if (space == line.npos) return line;
    const std::string_view word = line.substr(space + 1);
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    if (equals == word.npos || equals + 1 == word.size() ||
        word.find_first_not_of("0123456789", equals + 1) != word.npos ||
        (name != "slots" && name != "max_slots" && name != "max-slots")) {
      return line;
    }
    line = line.substr(0, space);
  }
}

}  // namespace

Result<std::vector<Endpoint>> parse_pool_file(std::string_view text) {
  std::vector<Endpoint> out;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    const std::string_view whole_line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const std::string_view entry = without_slots(whole_line.substr(0, whole_line.find('#')));
    const size_t column = entry.find_first_not_of(kLineSpaces);
    if (column == std::string_view::npos) continue;
    const std::string position = std::to_string(line) + ":" + std::to_string(column + 1) + ": ";
    SLUICE_RETURN_IF_ERROR(add_endpoint(entry.substr(column), position, out));
  }
  if (out.empty()) return invalid("1:1: expected host[:port][*weight], found an empty list");
  return out;
}

Result<Pool> read_pool(std::string_view text) {
  if (text == kNoReducers) return Pool{};
  const size_t first = text.find_first_not_of(kLineSpaces);
  if (first == std::string_view::npos || text[first] != '@') {
    SLUICE_ASSIGN_OR_RETURN(list, parse_endpoints(text));
    return Pool{.reducers = std::move(list), .file = {}};
  }
  std::string path(text.substr(first + 1));
  constexpr std::string_view kList = "reducer list";
  if (path.empty()) return invalid("\"@\" must be followed by a file name");
  SLUICE_ASSIGN_OR_RETURN(content, read_text_file(path, kMaxPoolFile, FileKind::kAny, kList, kList));
  auto list = parse_pool_file(content);
  if (!list) return fail(list.error().code, path + ":" + list.error().text);
  return Pool{.reducers = std::move(*list), .file = std::move(path)};
}

std::optional<FileWatch::Stamp> FileWatch::stat_file() const {
  struct stat s {};
  if (::stat(path_.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return std::nullopt;
  return Stamp{.device = s.st_dev,
               .inode = s.st_ino,
               .size = s.st_size,
               .modified = Nanos{s.st_mtim.tv_sec} * kSecond + s.st_mtim.tv_nsec};
}

Result<std::vector<Endpoint>> read_reducers(std::string_view text) {
  return read_pool(text).map([](Pool&& pool) { return std::move(pool.reducers); });
}

bool FileWatch::has_changed() {
  const std::optional<Stamp> now = stat_file();
  if (std::exchange(last_seen_, now) != now || !now || now == reported_) return false;
  reported_ = now;
  return true;
}

}  // namespace sluice::config
