#include "bench/traces/trace.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

namespace sluice::bench {
namespace {

constexpr std::string_view kBlank = " \t";

// Removes the next word from `line` and returns it; empty at the end of the line.
std::string_view next_word(std::string_view& line) {
  const size_t begin = std::min(line.find_first_not_of(kBlank), line.size());
  const size_t end = std::min(line.find_first_of(kBlank, begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

// Parses an integer from `min` to `max`.
Result<uint64_t> parse_number(std::string_view word, const char* name, uint64_t min, uint64_t max) {
  const std::string quoted = std::string(name) + " \"" + std::string(word.substr(0, 40)) + "\"";
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_number = end == word.data() + word.size() && !word.empty();
  if (!is_number || (error != std::errc() && error != std::errc::result_out_of_range))
    return fail(Errc::kInvalidArgument, quoted + ": expected an integer");
  if (error != std::errc() || value > max)
    return fail(Errc::kInvalidArgument, quoted + " is above " + std::to_string(max));
  if (value < min) return fail(Errc::kInvalidArgument, quoted + " is below " + std::to_string(min));
  return value;
}

Result<Bucket> parse_bucket(std::string_view line, uint64_t element_bytes) {
  const auto ready = parse_number(next_word(line), "ready_us", 0, kMaxReadyUs);
  if (!ready) return tl::unexpected(ready.error());
  const auto bytes = parse_number(next_word(line), "bytes", 1, kMaxBucketBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  if (*bytes % element_bytes != 0) {
    return fail(Errc::kInvalidArgument, "bytes \"" + std::to_string(*bytes) +
                                            "\" is not a multiple of the element size, " +
                                            std::to_string(element_bytes) + " B");
  }
  if (!next_word(line).empty())
    return fail(Errc::kInvalidArgument, "expected \"<ready_us> <bytes>\", found more words");
  return Bucket{.ready_us = *ready, .bytes = *bytes};
}

}  // namespace

uint64_t Trace::bytes() const {
  uint64_t sum = 0;
  for (const Bucket& bucket : buckets) sum += bucket.bytes;
  return sum;
}

std::string trace_text(const Trace& trace) {
  std::string text;
  for (const std::string& comment : trace.comments) text += "# " + comment + "\n";
  for (const Bucket& bucket : trace.buckets)
    text += std::to_string(bucket.ready_us) + " " + std::to_string(bucket.bytes) + "\n";
  return text;
}

Result<Trace> parse_trace(std::string_view text, const std::string& source, uint64_t element_bytes) {
  Trace trace;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t begin = line.find_first_not_of(kBlank);
    if (begin == std::string_view::npos) continue;
    if (line[begin] == '#') {
      line.remove_prefix(begin + 1);
      trace.comments.emplace_back(line.substr(std::min(line.find_first_not_of(kBlank), line.size())));
      continue;
    }
    const std::string where = source + " line " + std::to_string(number);
    auto bucket = parse_bucket(line, element_bytes);
    if (!bucket) return add_context(where, std::move(bucket.error()));
    if (!trace.buckets.empty() && bucket->ready_us < trace.compute_us()) {
      return fail(Errc::kInvalidArgument, where + ": " + std::to_string(bucket->ready_us) +
                                              " us is before the " + std::to_string(trace.compute_us()) +
                                              " us of the previous bucket; sort the buckets by time");
    }
    if (trace.buckets.size() == kMaxBuckets) {
      return fail(Errc::kInvalidArgument, where + ": more than " + std::to_string(kMaxBuckets) + " buckets");
    }
    trace.buckets.push_back(*bucket);
  }
  if (trace.buckets.empty())
    return fail(Errc::kInvalidArgument, source + ": expected at least one line \"<ready_us> <bytes>\"");
  return trace;
}

Result<Trace> read_trace(const std::string& path, uint64_t element_bytes) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return fail(Errc::kSystem, "cannot read " + path + ": " + std::strerror(errno));
  return parse_trace(text.str(), path, element_bytes);
}

Trace scale_times(Trace trace, double factor) {
  for (Bucket& bucket : trace.buckets)
    bucket.ready_us = static_cast<uint64_t>(std::llround(static_cast<double>(bucket.ready_us) * factor));
  return trace;
}

}  // namespace sluice::bench
