#include "config/pool.h"

#include <sys/stat.h>

#include <cstring>
#include <utility>

#include "config/whole_file.h"

namespace sluice::config {
namespace {

constexpr std::string_view kSpaces = " \t\r\v\f";

Result<std::string> read_file(const std::string& path) {
  WholeFile file = read_whole_file(path, kMaxPoolFile, FileKind::kAny);
  if (file.end == WholeFile::End::kRead) return std::move(file.text);
  if (file.end == WholeFile::End::kTooLong) {
    return fail(Errc::kInvalidArgument,
                path + ": more than " + std::to_string(kMaxPoolFile) + " bytes are no list of reducers");
  }
  return fail(Errc::kSystem, "can't read the list of reducers " + path + ": " + std::strerror(file.error));
}

// Without the words that an MPI's hostfile has behind a host.
std::string_view without_slots(std::string_view line) {
  for (;;) {
    const size_t end = line.find_last_not_of(kSpaces);
    line = line.substr(0, end == line.npos ? 0 : end + 1);
    const size_t space = line.find_last_of(kSpaces);
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
    const std::string_view whole = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const std::string_view said = without_slots(whole.substr(0, whole.find('#')));
    const size_t column = said.find_first_not_of(kSpaces);
    if (column == std::string_view::npos) continue;
    const std::string place = std::to_string(line) + ":" + std::to_string(column + 1) + ": ";
    if (auto added = add_endpoint(said.substr(column), place, out); !added)
      return tl::unexpected(added.error());
  }
  if (out.empty()) return fail(Errc::kInvalidArgument, "1:1: no reducer is named");
  return out;
}

Result<Pool> read_pool(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos || text[first] != '@') {
    auto list = parse_endpoints(text);
    if (!list) return tl::unexpected(list.error());
    return Pool{.reducers = std::move(*list), .file = {}};
  }
  std::string path(text.substr(first + 1));
  if (path.empty()) return fail(Errc::kInvalidArgument, "\"@\" without a file behind it");
  auto content = read_file(path);
  if (!content) return tl::unexpected(content.error());
  auto list = parse_pool_file(*content);
  if (!list) return fail(list.error().code, path + ":" + list.error().text);
  return Pool{.reducers = std::move(*list), .file = std::move(path)};
}

std::optional<FileWatch::Stamp> FileWatch::look() const {
  struct stat s {};
  if (::stat(path_.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return std::nullopt;
  return Stamp{.device = s.st_dev,
               .inode = s.st_ino,
               .size = s.st_size,
               .written = Nanos{s.st_mtim.tv_sec} * kSecond + s.st_mtim.tv_nsec};
}

Result<std::vector<Endpoint>> read_reducers(std::string_view text) {
  auto pool = read_pool(text);
  if (!pool) return tl::unexpected(pool.error());
  return std::move(pool->reducers);
}

bool FileWatch::changed() {
  const std::optional<Stamp> now = look();
  if (std::exchange(seen_, now) != now || !now || now == read_) return false;
  read_ = now;
  return true;
}

}  // namespace sluice::config
