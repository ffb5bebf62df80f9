// What `sluice top` shows: two answers of each reducer of a pool made into text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/units.h"

namespace sluice::cli {

struct TopSample {
  struct Reducer {
    std::string name;                 // "host:port"
    Nanos at = 0;                     // when it answered
    nlohmann::json status = nullptr;  // null: it did not
    std::string error = {};
  };
  std::vector<Reducer> reducers;
};

// Rates are of the time between the two; a reducer that was not there before, or is another one since, has
// none yet. Ends with a line's end; no line has more than `columns` characters, and there are at most
// `lines`. What reducers say is shown as printable ASCII.
[[nodiscard]] std::string top_text(const TopSample& before, const TopSample& now, size_t columns,
                                   size_t lines);

}  // namespace sluice::cli
